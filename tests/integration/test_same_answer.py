"""Decisions do not depend on workers, batch size or the number of runs, even with crowded keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bson import ObjectId

from dedup_job.index.candidate_index import FOUND, LISTED
from scripts.bench.corpus import Mix, generate
from scripts.bench.made_up import Collection, Forms
from tests.support.job import Job

RECORDS = 360
FORM = Collection(Forms(forms=1, words_each=60, fields=3, least=0.3, most=1.0), copies=0.2)


def crowded() -> list[dict[str, Any]]:
    """Records of one form, some of them copies: its keys are shared by more of them than a key remembers."""
    texts = FORM.texts(np.arange(RECORDS))
    return [
        {"_id": ObjectId(number.to_bytes(12, "big")), "text": text.decode()}
        for number, text in enumerate(texts)
    ]


@pytest.fixture
def undisturbed(job: Job) -> tuple[Any, ...]:
    """What one worker makes of the records in one batch."""
    job.source.insert_many(crowded())
    job.set("limits", batch_records=1_000)
    job.set("engine", workers=1)
    report = job.decide("backfill")
    assert report.counts.unique > 2 * LISTED > 2 * FOUND
    assert report.counts.near > 20
    return job.outcome()


@pytest.mark.parametrize(
    ("workers", "batch_records"),
    [pytest.param(2, 1, marks=pytest.mark.long), (2, 7), (1, 64), (2, 65), (2, 200)],
)
def test_workers_and_batches_decide_nothing(
    undisturbed: tuple[Any, ...], another_job: Callable[[], Job], workers: int, batch_records: int
) -> None:
    other = another_job()
    other.set("limits", batch_records=batch_records)
    other.set("engine", workers=workers)
    other.decide("backfill")
    assert other.outcome() == undisturbed


@pytest.mark.parametrize("cuts", [(100,), (5, 150, 151, 300)])
def test_where_runs_are_cut_decides_nothing(
    undisturbed: tuple[Any, ...], another_job: Callable[[], Job], cuts: tuple[int, ...]
) -> None:
    other, records = another_job(), crowded()
    other.source.delete_many({})
    other.set("limits", batch_records=40)
    mode = "backfill"
    for start, stop in zip((0, *cuts), (*cuts, RECORDS), strict=True):
        other.source.insert_many(records[start:stop])
        other.decide(mode)
        mode = "run"
    assert other.outcome() == undisturbed


def test_the_recipe_is_the_same_for_collections_of_every_kind(
    job: Job, another_job: Callable[[], Job]
) -> None:
    collections = [
        generate(40, mix=Mix(length=25, spread=0.1)),
        generate(40, mix=Mix(length=3_000, html=1.0)),
        generate(300, mix=Mix(length=200, odd=0.2)),
        iter([{"data": "one"}]),
    ]
    recipes = set()
    for records in collections:
        one = another_job()
        one.set("source", fields=["data"])
        one.source.insert_many(list(records))
        recipes.add(one.decide("backfill").as_json()["recipe"])
    assert len(recipes) == 1
