"""An undo loses no record that leaves the source meanwhile; without one of its protections it does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.explorer import Violation
from tests.support.undo_model import Protocol, search


@pytest.mark.long
def test_an_undo_loses_nothing_whatever_leaves_the_source_and_whoever_is_killed() -> None:
    assert search(Protocol()) > 10_000


@pytest.mark.parametrize("protection", ["puts_aside", "looks_again", "puts_back_first", "timed"])
def test_each_protection_of_an_undo_that_is_taken_out_loses_a_record(protection: str) -> None:
    with pytest.raises(Violation, match="lost"):
        search(replace(Protocol(), **{protection: False}))
