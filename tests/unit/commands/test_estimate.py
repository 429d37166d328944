from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dedup_job.commands.estimate import try_sample
from dedup_job.index.keepers import Keepers
from dedup_job.mongo.source import Storage
from dedup_job.pipeline.sample_source import LEAST, MOST, MOST_BYTES, CollectionSample, sample_size
from dedup_job.records import Action, Batch, Fingerprints
from tests.support.recipes import recipe_of

RECIPE = recipe_of("data")


class RecordingEngine:
    """An engine that records what it is given; it gives each record its own name as a reason."""

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
def test_a_trial_decides_each_record_of_its_sample_once(count: int, workers: int) -> None:
    raws = [b"%d" % number for number in range(count)]
    sample = CollectionSample(count, Batch(raws, raws), [0] * count, [])
    keepers = Keepers(RECIPE, 1 << 20)
    context: Any = SimpleNamespace(
        settings=SimpleNamespace(
            engine=SimpleNamespace(workers=workers), limits=SimpleNamespace(batch_records=100)
        ),
        recipe=RECIPE,
        source=None,
        keepers=lambda source, engine: keepers,
    )
    engine, told = RecordingEngine(), list[int]()

    trial = try_sample(context, engine, sample, told.append)  # type: ignore[arg-type]

    assert engine.given == raws
    assert trial.reasons == [raw.decode() for raw in raws]
    assert [verdict.action for plan in trial.plans for verdict in plan.verdicts] == [Action.UNCHECKED] * count
    assert sum(told) == count
    assert min(trial.start, trial.seconds) > 0


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
