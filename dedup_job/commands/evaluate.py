"""`evaluate`: score the present settings on labelled pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dedup_job.analysis.labelled_pairs import Evaluation, JudgedPair, LabelledPair
from dedup_job.analysis.match_conditions import distance, similarity
from dedup_job.commands.record_lookup import find_versions
from dedup_job.errors import UsageError
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.index.keepers import Keepers
from dedup_job.mongo.ids import extended, readings
from dedup_job.pipeline import job
from dedup_job.pipeline.command_context import Context
from dedup_job.records import Action, Batch, Fingerprints, RawIds, chunked
from dedup_job.report.terminal_text import format_id
from dedup_job.within.group_separation import without_groups

IDS_AT_ONCE = 10_000


def evaluate(context: Context, pairs: Sequence[LabelledPair]) -> Evaluation:
    """Decide labelled pairs with the present settings, each as in a run over its two records alone.

    Raises:
        UsageError: If no record has one of the ids, a pair names one record twice, or two lines label a pair
            differently.
    """
    with context.engine() as engine:
        ids = _resolve_ids(context, pairs)
        pairs = _distinct_pairs(pairs, ids)
        row_of: dict[bytes, int] = {}
        parts: list[Fingerprints] = []
        for batch, part in engine.fingerprint_batches(_fetch_records(context, ids.values())):
            row_of |= zip(batch.ids, range(len(row_of), len(row_of) + len(batch)), strict=True)
            parts.append(part)
        prints = Fingerprints.join(parts)
        judged = []
        for pair in pairs:
            rows = [row_of[ids[pair.first]], row_of[ids[pair.second]]]
            judged.append(_decide_pair(pair, prints.take(rows), context.recipe))
    return Evaluation(context.recipe.matching, context.recipe.digest, judged)


def _resolve_ids(context: Context, pairs: Sequence[LabelledPair]) -> dict[str, bytes]:
    """Return the raw id of the record that each id of the pairs names."""
    lines = {given: pair.line for pair in reversed(pairs) for given in (pair.second, pair.first)}
    # An id may be read in several ways. The likeliest is checked for all ids together; most need no other.
    likeliest = {given: next(iter(readings(given)), b"") for given in lines}
    absent: set[bytes] = set()
    for chunk in chunked([raw_id for raw_id in likeliest.values() if raw_id], IDS_AT_ONCE):
        absent |= context.source.absent(chunk)
    ids = {}
    for given, raw_id in likeliest.items():
        if not raw_id or raw_id in absent:
            raw_id = next((record.id for record in find_versions(context, given)), b"")
        if not raw_id:
            raise UsageError(f"line {lines[given]}: no record has the id {given!r}; nothing was evaluated")
        ids[given] = raw_id
    return ids


def _distinct_pairs(pairs: Sequence[LabelledPair], ids: Mapping[str, bytes]) -> list[LabelledPair]:
    """Return the first of the lines that label a pair; a repeated line would count twice in the scores.

    Raises:
        UsageError: If a pair names one record twice, or two lines label it differently.
    """
    earlier: dict[frozenset[bytes], LabelledPair] = {}
    for pair in pairs:
        # In either order: whether two texts are the same does not depend on it.
        records = frozenset((ids[pair.first], ids[pair.second]))
        if len(records) == 1:
            raise UsageError(f"line {pair.line}: names the same record twice")
        first = earlier.setdefault(records, pair)
        if first.same != pair.same:
            raise UsageError(f"line {pair.line}: labels the pair of line {first.line} differently")
    return list(earlier.values())


def _fetch_records(context: Context, ids: Iterable[bytes]) -> Iterator[Batch]:
    """Yield the records with these ids, each once, in any order; preferably from the source."""
    for chunk in chunked(list(dict.fromkeys(ids)), context.settings.limits.batch_records):
        missing = set(chunk)
        for place in (context.source, context.target):
            for records in place.fetch(list(missing)):
                found = list(missing.intersection(records))
                missing.difference_update(found)
                yield Batch(found, [records[raw_id] for raw_id in found])
        if missing:
            gone = format_id(extended(missing.pop()))
            raise UsageError(f"the record {gone} was deleted during the evaluation; nothing was evaluated")


def _decide_pair(pair: LabelledPair, prints: Fingerprints, recipe: Recipe) -> JudgedPair:
    """Decide two records, given their fingerprints."""
    ids = [b"first", b"second"]
    keepers = Keepers(recipe, 1)
    texts = keepers.add_texts(RawIds.of(ids), prints).texts
    verdict = job.decide(ids, prints, texts, recipe.matching, keepers).verdicts[1]
    prints = without_groups(prints, recipe.group_words)
    return JudgedPair(
        pair,
        found=verdict.action is Action.DUPLICATE,
        distance=distance(prints),
        similarity=similarity(prints),
        unchecked=", ".join(sorted(set(prints.reasons) - {""})),
    )
