"""`promote` keeps its promises in every state; without one of its protections it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.explorer import Violation
from tests.support.promote_model import BACK, FORWARD, HALF, Model, Protocol, search

DIRECTIONS = {"promote": FORWARD, "back": BACK, "back from half way": HALF}


@pytest.mark.parametrize("name", DIRECTIONS)
def test_no_record_and_no_collection_is_lost_whatever_happens(name: str) -> None:
    assert search(Model(DIRECTIONS[name])) > 200


@pytest.mark.parametrize(
    ("protection", "promise"),
    [
        ("looks_first", "not in their places"),
        ("notes_others", "is not in the place"),
        ("copies", "is not in the place"),
        ("refuses_taken", "a collection is gone"),
        ("reuses_noted_name", "not in their places"),
        ("spares_target", "not in their places"),
    ],
)
def test_each_protection_that_is_taken_out_breaks_a_promise(protection: str, promise: str) -> None:
    with pytest.raises(Violation, match=promise):
        search(Model(FORWARD, replace(Protocol(), **{protection: False})))
