"""What is said to be found of planted copies is what was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from scripts.bench.findings import Finding, findings, kept_of
from scripts.bench.made_up import EXACT, NEAR, ORIGINAL, Collection, Flags, Pages
from scripts.bench.measure import DATABASE

COUNT = 2_000
PAGES = Collection(Pages())
KINDS = PAGES.planted(np.arange(COUNT)).kinds


def found(kept: Flags, sample: int = COUNT) -> dict[str, Finding]:
    return {one.kind: one for one in findings(PAGES, kept, sample)}


def test_all_is_found_where_the_originals_alone_are_kept() -> None:
    every = found(KINDS == ORIGINAL)

    assert every["near, similarity 0.8 and more"].share == 1
    assert every["exact"] == Finding("exact", int((KINDS == EXACT).sum()), int((KINDS == EXACT).sum()))
    assert every["no copies, dropped"].found == 0


def test_nothing_is_found_where_all_are_kept() -> None:
    assert not any(one.found for one in found(np.ones(COUNT, np.bool_)).values())


def test_an_original_that_is_dropped_for_its_copy_counts_as_found_and_as_dropped() -> None:
    kept = np.ones(COUNT, np.bool_)
    kept[PAGES.planted(np.arange(COUNT)).origins[KINDS == EXACT]] = False

    assert found(kept)["exact"].share == 1
    assert found(kept)["no copies, dropped"].found == (~kept).sum()


def test_near_copies_add_up_and_are_counted_by_similarity() -> None:
    every = found(KINDS != NEAR)
    whole = every.pop("near, similarity 0.8 and more")
    below = every["planted below 0.8, which does not count"]

    assert whole.records + below.records == (KINDS == NEAR).sum()
    assert whole.records == sum(one.records for name, one in every.items() if name.startswith("of them"))


def test_a_sample_is_of_the_size_asked_for() -> None:
    every = found(KINDS == ORIGINAL, sample=50)
    near, rest = (
        every["near, similarity 0.8 and more"],
        every["planted below 0.8, which does not count"],
    )

    assert near.records + rest.records == 50


def test_a_share_of_nothing_is_no_number() -> None:
    assert np.isnan(Finding("exact", 0, 0).share)


def test_what_the_target_holds_is_read_by_number(mongo_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.bench.findings.DATABASE", "test_findings")
    numbers = np.array([0, 3, 999])
    with MongoClient[dict[str, Any]](mongo_uri) as client:
        client["test_findings"].unique.insert_many(map(RawBSONDocument, PAGES.records(numbers)))
        kept = kept_of(mongo_uri, 1_000)
        client.drop_database("test_findings")

    assert DATABASE != "test_findings"
    assert np.flatnonzero(kept).tolist() == numbers.tolist()
