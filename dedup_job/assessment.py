"""Assessment: how good settings are on labelled pairs, and which would be better on the collection itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from dedup_job import job
from dedup_job.document import Action, Batch, Fingerprints
from dedup_job.errors import ConfigError, UsageError
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.inspection import records_named
from dedup_job.match.keepers import Keepers, Recollection
from dedup_job.mongo.ids import extended, readings
from dedup_job.mongo.window import Window
from dedup_job.parts import Parts, first_records
from dedup_job.plan import RawIds
from dedup_job.report import tuning
from dedup_job.report.labelled import Evaluation, Judged, Labelled
from dedup_job.report.rules import distance, similarity
from dedup_job.report.scoring import Setting
from dedup_job.report.tuned import Tuning

IDS_AT_ONCE = 10_000
NOTHING_OLDER = Recollection(lambda _: [], lambda _: Fingerprints.join([]))
MOST_SHINGLES = 20_000_000  # in a sample: bounds its memory, whatever the size of the texts


def evaluate(parts: Parts, pairs: Sequence[Labelled]) -> Evaluation:
    """Judge labelled pairs with the present settings; raises UsageError for an id that no record has.

    Each pair is decided by itself, as a run would that found these two records alone.
    """
    with parts.engine() as engine:
        ids = _ids_of(parts, pairs)
        place: dict[bytes, int] = {}
        taken: list[Fingerprints] = []
        for batch, found in engine.fingerprinted(_named(parts, ids.values())):
            place |= zip(batch.ids, range(len(place), len(place) + len(batch)), strict=True)
            taken.append(found)
        prints = Fingerprints.join(taken)
        judged = []
        for pair in pairs:
            rows = [place[ids[pair.first]], place[ids[pair.second]]]
            if rows[0] == rows[1]:
                raise UsageError(f"line {pair.line}: names the same record twice")
            judged.append(_judged(pair, prints.take(rows), parts.recipe))
    return Evaluation(Setting.of(parts.recipe.matching), parts.recipe.digest, judged)


def _ids_of(parts: Parts, pairs: Sequence[Labelled]) -> dict[str, bytes]:
    """Return the record that each id of the pairs names; most are found at their first reading, at once."""
    lines = {given: pair.line for pair in reversed(pairs) for given in (pair.second, pair.first)}
    likeliest = {given: next(iter(readings(given)), b"") for given in lines}
    absent: set[bytes] = set()
    for some in _runs([raw_id for raw_id in likeliest.values() if raw_id], IDS_AT_ONCE):
        absent |= parts.source.absent(some)
    ids = {}
    for given, raw_id in likeliest.items():
        if not raw_id or raw_id in absent:
            raw_id = next((found.id for found in records_named(parts, given)), b"")
        if not raw_id:
            raise UsageError(f"line {lines[given]}: no record has the id {given!r}; nothing was evaluated")
        ids[given] = raw_id
    return ids


def _named(parts: Parts, ids: Iterable[bytes]) -> Iterator[Batch]:
    """Yield the records of these ids, each once, in any order: from the source, else from the target."""
    for some in _runs(list(dict.fromkeys(ids)), parts.settings.limits.batch_records):
        missing = set(some)
        for place in (parts.source, parts.target):
            for found in place.fetch(list(missing)):
                there = list(missing.intersection(found))
                missing.difference_update(there)
                yield Batch(there, [found[raw_id] for raw_id in there])
        if missing:
            gone = extended(missing.pop())
            raise UsageError(f"the record {gone} was deleted meanwhile; nothing was evaluated")


def _judged(pair: Labelled, prints: Fingerprints, recipe: Recipe) -> Judged:
    """Decide two records alone, the fingerprints of which are given."""
    ids = [b"first", b"second"]
    keepers = Keepers(recipe, 1, NOTHING_OLDER)
    texts = keepers.enter(RawIds.of(ids), prints).texts
    verdict = job.decide(ids, prints, texts, recipe.matching, keepers).verdicts[1]
    return Judged(
        pair,
        found=verdict.action is Action.DUPLICATE,
        distance=distance(prints),
        similarity=similarity(prints),
        unjudged=", ".join(sorted(set(prints.reasons) - {""})),
    )


def _runs(ids: Sequence[bytes], length: int) -> Iterator[Sequence[bytes]]:
    """Yield the ids, so many at a time."""
    return (ids[first : first + length] for first in range(0, len(ids), length))


def tune(parts: Parts, records: int, at: float, told: Callable[[int], object]) -> Tuning:
    """Try bands of several shapes on the first records of the source; `told` of how many more were read."""
    sample = _sample(parts, records, told)
    present, pairs = Setting.of(parts.recipe.matching), tuning.near_duplicates(sample, at)
    tried = tuning.grid(replace(present, min_similarity=at), sample.width)
    return Tuning(
        sample=sample,
        at=at,
        present=present,
        records=parts.source.estimated_count(),
        pairs=pairs,
        rows=list(tuning.rows(sample, tried, pairs)),
        levels=list(tuning.levels(sample, present, at, pairs)),
    )


def _sample(parts: Parts, records: int, told: Callable[[int], object]) -> tuning.Sample:
    """Fingerprint the first records, until they are enough."""
    taken: list[Fingerprints] = []
    shingles = 0
    with parts.engine() as engine:
        for _, prints in engine.fingerprinted(first_records(parts.source.batches(Window()), records)):
            taken.append(prints)
            told(len(prints))
            shingles += len(prints.shingles.values)
            if shingles >= MOST_SHINGLES:
                break
    if not taken:
        raise ConfigError(f"{parts.source_name} has no records to try settings on")
    sample = tuning.Sample.of(Fingerprints.join(taken))
    if not len(sample):
        reasons = ", ".join(sorted({reason for prints in taken for reason in prints.reasons}))
        raise ConfigError(f"no text in the first {sample.read:,} records ({reasons}); see [source] fields")
    return sample
