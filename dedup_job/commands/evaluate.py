"""Evaluate: how good the present settings are on labelled pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dedup_job import job
from dedup_job.commands.context import Context
from dedup_job.commands.named import records_named
from dedup_job.document import Action, Batch, Fingerprints
from dedup_job.errors import UsageError
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.lab.labelled import Evaluation, Judged, Labelled
from dedup_job.lab.rules import distance, similarity
from dedup_job.lab.scoring import Setting
from dedup_job.match.keepers import Keepers, OlderKeepers
from dedup_job.mongo.shown_ids import extended, readings
from dedup_job.plan import RawIds
from dedup_job.report.terminal import id_text

IDS_AT_ONCE = 10_000
NOTHING_OLDER = OlderKeepers(lambda _: [], lambda _: Fingerprints.join([]))


def evaluate(context: Context, pairs: Sequence[Labelled]) -> Evaluation:
    """Judge labelled pairs with the present settings; raises UsageError for an id that no record has.

    Each pair is decided by itself, as a run would that found these two records alone.
    """
    with context.engine() as engine:
        ids = _ids_of(context, pairs)
        place: dict[bytes, int] = {}
        taken: list[Fingerprints] = []
        for batch, found in engine.fingerprinted(_named(context, ids.values())):
            place |= zip(batch.ids, range(len(place), len(place) + len(batch)), strict=True)
            taken.append(found)
        prints = Fingerprints.join(taken)
        judged = []
        for pair in pairs:
            rows = [place[ids[pair.first]], place[ids[pair.second]]]
            if rows[0] == rows[1]:
                raise UsageError(f"line {pair.line}: names the same record twice")
            judged.append(_judged(pair, prints.take(rows), context.recipe))
    return Evaluation(Setting.of(context.recipe.matching), context.recipe.digest, judged)


def _ids_of(context: Context, pairs: Sequence[Labelled]) -> dict[str, bytes]:
    """Return the record that each id of the pairs names; most are found at their first reading, at once."""
    lines = {given: pair.line for pair in reversed(pairs) for given in (pair.second, pair.first)}
    likeliest = {given: next(iter(readings(given)), b"") for given in lines}
    absent: set[bytes] = set()
    for some in _runs([raw_id for raw_id in likeliest.values() if raw_id], IDS_AT_ONCE):
        absent |= context.source.absent(some)
    ids = {}
    for given, raw_id in likeliest.items():
        if not raw_id or raw_id in absent:
            raw_id = next((found.id for found in records_named(context, given)), b"")
        if not raw_id:
            raise UsageError(f"line {lines[given]}: no record has the id {given!r}; nothing was evaluated")
        ids[given] = raw_id
    return ids


def _named(context: Context, ids: Iterable[bytes]) -> Iterator[Batch]:
    """Yield the records of these ids, each once, in any order: from the source, else from the target."""
    for some in _runs(list(dict.fromkeys(ids)), context.settings.limits.batch_records):
        missing = set(some)
        for place in (context.source, context.target):
            for found in place.fetch(list(missing)):
                there = list(missing.intersection(found))
                missing.difference_update(there)
                yield Batch(there, [found[raw_id] for raw_id in there])
        if missing:
            gone = id_text(extended(missing.pop()))
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
