"""Moving records to an archive and back loses nothing; without one of its protections it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.support.explorer import Violation
from tests.support.sweep_model import ARCHIVE, SOURCE, Protocol, search


@pytest.mark.long
@pytest.mark.parametrize(
    ("places", "kills", "changes", "least"),
    [
        ((SOURCE, ARCHIVE), 2, 1, 50_000),
        ((SOURCE, ARCHIVE), 1, 2, 30_000),
        ((SOURCE, SOURCE), 1, 1, 20_000),
        ((SOURCE, ARCHIVE, SOURCE), 0, 1, 90_000),
        ((SOURCE, ARCHIVE, SOURCE), 1, 0, 150_000),
    ],
)
def test_a_record_is_in_source_or_archive_whatever_its_owner_does_and_whoever_is_killed(
    places: Sequence[str], kills: int, changes: int, least: int
) -> None:
    assert search(Protocol(), places, kills, changes) > least


@pytest.mark.parametrize(
    ("protection", "promise"),
    [
        ("copies_first", "lost"),
        ("compares", "lost"),
        ("sees_keeper", "unrepresented"),
        ("puts_back_first", "lost"),
        ("announces", "lost"),
        ("waits", "lost"),
        ("keeps_earlier", "lost"),
        ("timed", "lost"),
        ("spares_others", "lost"),
    ],
)
def test_each_protection_of_a_move_that_is_taken_out_breaks_a_promise(protection: str, promise: str) -> None:
    with pytest.raises(Violation, match=promise):
        search(replace(Protocol(), **{protection: False}), (SOURCE, ARCHIVE), kills=2)
