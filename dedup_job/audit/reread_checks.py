"""Checks of `verify` that read dropped records and keepers again: their `within` values and similarities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from dedup_job.audit.audit_checks import Check
from dedup_job.audit.audit_context import AuditSession
from dedup_job.fingerprint.recipe import Matching
from dedup_job.fingerprint.shingles import CJK_LENGTH, NUMBER_PATTERN, OTHER_LENGTH, comparable_text
from dedup_job.ledger.rows_on_records import DecisionRow
from dedup_job.mongo.ids import extended
from dedup_job.pipeline.command_context import RecordLookup
from dedup_job.records import chunked, digest
from dedup_job.report.verify_result import AuditDifference
from dedup_job.text.code_points import is_cjk

GROUPS = Check(
    "group_differs", "a dropped record of another group ([match] within) than its keeper", of_sample=False
)
SIMILARITIES = Check(
    "similarity_differs", "a duplicate that is not as similar to its keeper as its row says", of_sample=False
)

# Duplicates of each reason that are compared again, and characters above which a text is left out.
COMPARED, LONGEST = 1_000, 100_000
# Rows have four decimals, and two shingles may by chance have the same hash.
TOLERANCE = 0.005
PAIRS_AT_ONCE = 20

T = TypeVar("T")


def check_groups(audit: AuditSession) -> Iterator[AuditDifference]:
    """Yield the dropped records of another group than their keeper; reads all dropped records again."""
    fields = audit.context.recipe.reader.fields
    if not fields.within:
        return

    def groups_of(raws: Sequence[bytes]) -> list[bytes]:
        return [extracted.group for extracted in fields.texts_of(raws)]

    wrong = [
        {"id": extended(raw_id)}
        for ids in audit.book.pages("SELECT id FROM decided WHERE action = 1")
        for raw_id, group, kept_group in _read_pairs(audit, ids, groups_of)
        if group != kept_group
    ]
    if wrong:
        yield GROUPS.difference(len(wrong), wrong)


def check_similarities(audit: AuditSession) -> Iterator[AuditDifference]:
    """Yield the duplicates whose similarity to their keeper is not the one in their row, of a sample.

    The similarity is computed by its definition, with sets of strings: the code that decides has no part in
    it.  Exact duplicates must have the text of their keeper.
    """
    matching = audit.context.recipe.matching
    reader = audit.context.recipe.reader
    wrong = list[dict[str, Any]]()
    sample = [*_draw(audit, "exact"), *(_draw(audit, "near") if matching.min_similarity else ())]
    for ids in chunked(sample, PAIRS_AT_ONCE):
        rows = map(DecisionRow.read, audit.reader.rows_on("dropped", ids))
        stored = {row.id: row.similarity for row in rows}
        for raw_id, text, kept_text in _read_pairs(audit, ids, reader.texts):
            told = stored.get(raw_id)
            if told is None or text == kept_text or max(len(text), len(kept_text)) > LONGEST:
                continue
            similarity = plain_similarity(text, kept_text, matching)
            if abs(similarity - told) > TOLERANCE:
                shown = {"id": extended(raw_id), "keeper_id": extended(audit.book.keeper_of(raw_id))}
                wrong.append({**shown, "row": told, "similarity": round(similarity, 4)})
    if wrong:
        yield SIMILARITIES.difference(len(wrong), wrong)


def _draw(audit: AuditSession, reason: str) -> list[bytes]:
    """Return the ids of some duplicates with this reason, drawn at random."""
    question = f"SELECT id FROM decided WHERE action = 1 AND reason = '{reason}' ORDER BY random()"
    return audit.book.ids(f"{question} LIMIT {COMPARED}")


def plain_similarity(first: str, second: str, matching: Matching) -> float:
    """Return the similarity of two cleaned texts by its definition."""
    if matching.numbers == "distinguish" and NUMBER_PATTERN.findall(first) != NUMBER_PATTERN.findall(second):
        return 0.0
    one, other = _shingles(first, matching.shingle), _shingles(second, matching.shingle)
    return len(one & other) / len(one | other)


def _shingles(text: str, length: int | None) -> set[str]:
    signs = comparable_text(text)
    found = set[str]()
    for place, sign in enumerate(signs):
        size = length or (CJK_LENGTH if is_cjk.py_func(ord(sign)) else OTHER_LENGTH)  # type: ignore[attr-defined]
        if place + size <= len(signs):
            found.add(signs[place : place + size])
    return found or {signs}


def _read_pairs(
    audit: AuditSession, ids: Sequence[bytes], extract: Callable[[Sequence[bytes]], Sequence[T]]
) -> Iterator[tuple[bytes, T, T]]:
    """Read dropped records and their keepers again.

    Records that changed since they were judged are left out: their groups and texts may be others now.

    Args:
        audit: The audit.
        ids: Raw ids of dropped records.
        extract: Returns the needed value of each raw record.

    Yields:
        The raw id of a dropped record, its value, and the value of its keeper.
    """

    def read(place: RecordLookup, ids: Sequence[bytes]) -> dict[bytes, T]:
        found = dict[bytes, T]()
        for records in place.fetch(ids):
            for (raw_id, raw), needed in zip(records.items(), extract([*records.values()]), strict=True):
                if digest(raw) == audit.book.hash_of(raw_id):
                    found[raw_id] = needed
        return found

    keepers = {raw_id: audit.book.keeper_of(raw_id) for raw_id in ids}
    kept = read(audit.context.target, sorted(set(keepers.values())))
    for raw_id, needed in read(audit.context.source, ids).items():
        if keepers[raw_id] in kept:
            yield raw_id, needed, kept[keepers[raw_id]]
