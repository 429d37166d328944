from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dedup_job.analysis import index_cost
from dedup_job.analysis.index_cost import TextModel
from dedup_job.commands.estimate import Trial, _false_positive_rate, fingerprint_sample
from dedup_job.index.keepers import KeeperRefetch, Keepers
from dedup_job.mongo.source import Storage
from dedup_job.pipeline.sample import LEAST, MOST, MOST_BYTES, CollectionSample, sample_size
from dedup_job.records import UNIQUE, Action, Batch, Fingerprints, KeeperMatch, Plan, Verdict
from tests.support.recipes import recipe_of

COPY = Verdict(Action.DUPLICATE, "exact", KeeperMatch(bytes(22), 0, 1.0))
NEAR = Verdict(Action.DUPLICATE, "near", KeeperMatch(bytes(22), 2, 0.9))
RNG = np.random.default_rng(1)
BITS = RNG.integers(1 << 64, size=(500, 1), dtype=np.uint64)
RECIPE = recipe_of("data")


def keepers() -> Keepers:
    return Keepers(RECIPE, 1 << 20, KeeperRefetch(lambda _: [], lambda _: Fingerprints.join([])))


def plan_of(bits: np.ndarray, near: float = 1.0, keys: np.ndarray | None = None) -> Plan:
    """A plan of unique records with these fingerprints, uint64 (n, 1)."""
    n = len(bits)
    return Plan(
        ids=[b"0123456789" + row.to_bytes(12, "big") for row in range(n)],
        verdicts=[UNIQUE] * n,
        bits=bits,
        has_fingerprint=np.arange(n) < near * n,
        keys=RNG.integers(1, 1 << 32, size=(n, 9), dtype=np.uint32) if keys is None else keys,
        digests=np.arange(2 * n, dtype=np.uint64).reshape(n, 2) + np.uint64(1),
        hashes=np.zeros((n, 2), np.uint64),
    )


def filled(count: int) -> Keepers:
    full, made = keepers(), TextModel.of([plan_of(BITS, near=0.9)])
    while full.texts < count:
        full.load_plan(made.texts(min(5_000, count - full.texts)))
    full.add_texts(made.texts(0).ids, made.texts(0))  # texts are put in order when one is looked up
    return full


class Noting:
    """An engine that notes which records it is given; each has its number for a reason."""

    def __init__(self) -> None:
        self.given: list[bytes] = []

    def fingerprint(self, raws: Sequence[bytes]) -> Fingerprints:
        return Fingerprints.join([RECIPE.unchecked(raw.decode(), raw) for raw in raws])

    def fingerprint_batches(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Fingerprints]]:
        for batch in batches:
            self.given.extend(batch.raws)
            yield batch, self.fingerprint(batch.raws)


@pytest.mark.parametrize("count", [1, 2, 3, 16, 50, 1_000])
@pytest.mark.parametrize("workers", [1, 2, 64])
def test_a_trial_fingerprints_each_record_of_its_sample_once(count: int, workers: int) -> None:
    raws = [b"%d" % number for number in range(count)]
    sample = CollectionSample(count, Storage(count, count, count, count), Batch(raws, raws), [0] * count, [])
    settings = SimpleNamespace(
        engine=SimpleNamespace(workers=workers), limits=SimpleNamespace(batch_records=100)
    )
    engine, told = Noting(), list[int]()
    context: Any = SimpleNamespace(settings=settings)
    found = fingerprint_sample(context, engine, sample, told.append)  # type: ignore[arg-type]
    assert engine.given == raws
    assert found.prints.reasons == [raw.decode() for raw in raws]
    assert sum(told) == count
    assert min(found.start, found.alone, found.together) > 0


@pytest.mark.long
@pytest.mark.parametrize("tried", [60_000, 120_000])
def test_the_bytes_of_many_texts_are_foretold_from_those_that_were_tried_out(
    tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = 120_000
    monkeypatch.setattr(index_cost, "LARGEST", tried)
    foretold = index_cost.measure_index_cost(keepers(), [plan_of(BITS, near=0.9)], texts).nbytes
    # Keys are put in order from time to time, so the bytes grow in steps.
    assert foretold == pytest.approx(filled(texts).nbytes, rel=0.15)


def test_a_handful_of_texts_needs_no_forecast() -> None:
    few = index_cost.measure_index_cost(keepers(), [plan_of(BITS[:10])], 1.0)
    assert few.look_up >= 0
    assert few.nbytes > 0


def test_made_up_texts_are_like_those_that_were_decided() -> None:
    model = TextModel.of([plan_of(BITS, near=0.9)])
    texts = model.texts(2_000)
    assert len(set(texts.ids)) == len(np.unique(texts.digests, axis=0)) == 2_000
    assert {len(raw_id) for raw_id in texts.ids} == {22}
    assert len(np.unique(texts.bits)) > 1_990
    assert texts.has_fingerprint.mean() == pytest.approx(0.9, abs=0.03)
    assert texts.keys.shape == (2_000, 9)
    assert len(np.unique(texts.keys)) > 15_900
    assert texts.is_kept.all()


def test_made_up_fingerprints_crowd_as_real_ones_do() -> None:
    crowded = BITS & np.roll(BITS, 1)  # each bit is 1 in a quarter of them
    made = np.unpackbits(TextModel.of([plan_of(crowded)]).texts(2_000).bits.view(np.uint8), axis=1).mean(
        axis=0
    )
    real = np.unpackbits(crowded.view(np.uint8), axis=1).mean(axis=0)
    assert made == pytest.approx(real, abs=0.06)


def test_a_sample_without_fingerprints_gives_texts_without_them() -> None:
    texts = TextModel.of([plan_of(np.zeros((50, 1), np.uint64), near=0.0)]).texts(10)
    assert not texts.has_fingerprint.any()
    assert not texts.bits.any()
    index_cost.measure_index_cost(keepers(), [plan_of(BITS[:10], near=0.0)], 100.0)


def test_a_text_that_most_of_the_sample_repeats_is_one_of_the_made_up_ones() -> None:
    bits = np.concatenate([BITS[:20], BITS[:1].repeat(80, axis=0)])
    plan = replace(plan_of(bits), verdicts=[UNIQUE] * 20 + [COPY] * 80)
    assert len(TextModel.of([plan]).bits) == 20


def decided(plan: Plan) -> Trial:
    full = keepers()
    full.load_plan(plan.texts)
    return Trial([plan], full, 0.0, 0)


def test_candidates_that_are_none_are_counted_once_and_against_all_pairs() -> None:
    """100 kept texts: the tenth and ninetieth are within the radius of the first, no other pair is near."""
    bits = BITS[:100].copy()
    bits[[10, 90]] = bits[0] ^ np.uint64(1)
    # the first, and for the second also the tenth
    assert _false_positive_rate(decided(plan_of(bits))) == 2 * 2 / 100**2
    assert _false_positive_rate(decided(plan_of(BITS[:100]))) == 0.0


def test_keepers_that_one_form_finds_again_and_again_are_few() -> None:
    """1,000 texts of one form share their keys: the first ones are found by all, and stay at hand."""
    bits = BITS[:1].repeat(1_000, axis=0)
    form = plan_of(bits, keys=np.full((1_000, 9), 7, np.uint32))
    assert 0 < _false_positive_rate(decided(form)) < 2 * 50 / 1_000**2


def test_dropped_texts_are_no_keepers_found_in_vain() -> None:
    bits = BITS[:2].repeat(2, axis=0)
    plan = replace(plan_of(bits), verdicts=[UNIQUE, NEAR, UNIQUE, NEAR])
    assert _false_positive_rate(decided(plan)) == 0.0
    assert _false_positive_rate(decided(replace(plan, verdicts=[NEAR] * 4))) == 0.0


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
    assert sample_size(Storage(records, records * size, 0, 0)) == expected
