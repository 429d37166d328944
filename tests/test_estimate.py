from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from dedup_job.document import UNIQUE, Action, Fingerprints, Match, Verdict
from dedup_job.estimate import growth
from dedup_job.estimate.growth import _Model
from dedup_job.estimate.sample import LEAST, MOST, MOST_BYTES, enough
from dedup_job.match.keepers import Keepers, Recollection
from dedup_job.mongo.source import Storage
from dedup_job.plan import Plan
from dedup_job.ragged import Ragged

COPY = Verdict(Action.DUPLICATE, "exact", Match(bytes(22), 0, 1.0))
BITS = np.random.default_rng(1).integers(1 << 64, size=(500, 1), dtype=np.uint64)


def keepers() -> Keepers:
    return Keepers(64, 3, 1 << 20, Recollection(lambda _: {}, lambda _: nothing(0)))


def nothing(rows: int) -> Fingerprints:
    return Fingerprints(
        reasons=[""] * rows,
        bits=BITS[:rows],
        near=np.ones(rows, np.bool_),
        short=np.zeros(rows, np.bool_),
        digests=np.repeat(BITS[:rows], 2, axis=1),
        hashes=np.zeros((rows, 2), np.uint64),
        shingles=Ragged.empty(rows),
    )


def model(lengths: Sequence[int], bits: npt.NDArray[np.uint64] = BITS) -> _Model:
    like = Plan(
        [bytes(22)],
        [UNIQUE],
        np.zeros((1, 1), np.uint64),
        np.ones(1, np.bool_),
        Ragged.empty(1),
        np.zeros((1, 2), np.uint64),
        np.zeros((1, 2), np.uint64),
    )
    return _Model(like, bits, near=0.9, lengths=np.array(lengths))


def filled(count: int, lengths: Sequence[int]) -> Keepers:
    full, made = keepers(), model(lengths)
    while len(full) < count:
        full.admit(made.plan(min(5_000, count - len(full))))
    full.near(nothing(500).bits)  # an index is made when something is looked up
    full.with_text(nothing(500).digests)
    return full


@pytest.mark.parametrize(("lengths", "tried"), [([0], 60_000), ([0, 4, 20], 60_000), ([0], 120_000)])
def test_the_bytes_of_many_keepers_are_foretold_from_those_that_were_tried_out(
    lengths: Sequence[int], tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    unique = 120_000
    monkeypatch.setattr(growth, "LARGEST", tried)
    foretold = growth.grown(keepers(), nothing(500), [model(lengths).plan(1_000)], unique).nbytes
    # An index is cut anew as it grows, so the bytes grow in steps.
    assert foretold == pytest.approx(filled(unique, lengths).nbytes, rel=0.1)


def test_a_handful_of_keepers_needs_no_forecast() -> None:
    few = growth.grown(keepers(), nothing(10), [model([0]).plan(10)], 1.0)
    assert few.look_up >= 0
    assert few.nbytes > 0


def test_made_up_plans_are_like_the_one_that_was_decided() -> None:
    plan = model([0, 10]).plan(2_000)
    assert len(set(plan.ids)) == len(np.unique(plan.bits)) == 2_000
    assert {len(raw_id) for raw_id in plan.ids} == {22}
    assert plan.near.mean() == pytest.approx(0.9, abs=0.03)
    assert np.diff(plan.prefixes.offsets).mean() == pytest.approx(5, abs=0.5)


def test_made_up_fingerprints_crowd_as_real_ones_do() -> None:
    crowded = BITS & np.roll(BITS, 1)  # each bit is 1 in a quarter of them
    made = np.unpackbits(model([0], crowded).plan(2_000).bits.view(np.uint8), axis=1).mean(axis=0)
    real = np.unpackbits(crowded.view(np.uint8), axis=1).mean(axis=0)
    assert made == pytest.approx(real, abs=0.06)


def test_a_text_that_most_of_the_sample_repeats_is_one_of_the_made_up_ones() -> None:
    plan, full = model([0]).plan(100), keepers()
    bits = np.concatenate([plan.bits[:20], plan.bits[:1].repeat(80, axis=0)])
    plan = replace(plan, verdicts=[UNIQUE] * 20 + [COPY] * 80, bits=bits)
    growth.grown(full, nothing(100), [plan], 5_000)
    assert len(full) == 5_000
    assert len(full.near(plan.bits[:1]).positions) < 5


@pytest.mark.parametrize(
    ("records", "size", "expected"),
    [
        (10_000, 1_000, LEAST),
        (4_000_000, 1_000, 12_000),
        (50_000_000, 1_000, 42_426),
        (10**9, 100, MOST),
        (50_000_000, 100_000, MOST_BYTES // 100_000),
        (1_000, 50 << 20, 50),
        (0, 0, LEAST),
    ],
)
def test_a_sample_grows_with_the_collection_and_stays_within_its_bytes(
    records: int, size: int, expected: int
) -> None:
    assert enough(Storage(records, records * size, 0, 0)) == expected
