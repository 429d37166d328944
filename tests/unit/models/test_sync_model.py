"""Bringing a target up to date loses nothing; without one of its protections it does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.explorer import Violation
from tests.support.sync_model import Protocol, search


@pytest.mark.long
@pytest.mark.parametrize("is_missing", [False, True])
@pytest.mark.parametrize(("kills", "changes", "least"), [(1, 0, 50_000), (0, 1, 100_000)])
def test_what_the_source_says_as_it_was_decided_is_in_the_target_at_every_moment(
    kills: int, changes: int, least: int, is_missing: bool
) -> None:
    assert search(Protocol(), kills, changes, is_missing) > least


@pytest.mark.long
@pytest.mark.parametrize(
    ("protection", "kills", "changes", "promise"),
    [
        ("leaves_out", 0, 0, "it does not end"),
        ("hands_first", 0, 0, "lost: nothing in the target says"),
        ("accepts", 0, 0, "altered: the target has"),
        ("timed", 0, 1, "altered: the target has"),
        ("compares", 0, 0, "altered: the target has"),
        ("expects", 0, 1, "altered: the target has"),
        ("replaces", 1, 0, "altered: the target has"),
        ("fenced", 0, 0, "altered: the target has"),
    ],
)
def test_each_protection_of_an_apply_that_is_taken_out_breaks_a_promise(
    protection: str, kills: int, changes: int, promise: str
) -> None:
    with pytest.raises(Violation, match=promise) as broken:
        search(replace(Protocol(), **{protection: False}), kills, changes)

    assert broken.value.steps
