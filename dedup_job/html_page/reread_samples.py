"""Re-read the records of sampled pairs and groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from bson import decode, json_util

from dedup_job.fingerprint.shingles import NUMBER_PATTERN
from dedup_job.html_page.counts_and_samples import DrawnGroup
from dedup_job.html_page.threshold_effect import KeeperGroup
from dedup_job.index.shingle_similarity import ShingleSets, similarities_at_least
from dedup_job.mongo.id_lookup import RecordsInTurn
from dedup_job.mongo.ids import ID_JSON, SHOWABLE
from dedup_job.pipeline.command_context import Context, RecordLookup
from dedup_job.pipeline.fingerprint_workers import FingerprintWorkers
from dedup_job.records import Fingerprints
from dedup_job.report.sampled_pairs_and_groups import DuplicatePair
from dedup_job.within.group_separation import without_groups

T = TypeVar("T")

# Records read at once: few at first, while their size is unknown.
FEW, MANY = 4, 100
# Bytes of records read at once.
AT_ONCE_BYTES = 8 << 20
# Bytes of records read for one sample.
MOST_BYTES = 256 << 20
# Characters shown of a field.
FIELD_MOST = 200


@dataclass(frozen=True, slots=True)
class RereadRecord:
    """The present version of a record.

    Attributes:
        id: Its raw id.
        text: Its cleaned text; None if it was deleted or can no longer be judged.
        fields: The fields `show` and `group_by` of the settings, by path.
        row: The row of its fingerprint; -1 if it has none.
    """

    id: bytes
    text: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    row: int = -1


@dataclass(frozen=True, slots=True)
class RereadPair:
    """A re-read pair; `prints` holds the fingerprints of both records, among others."""

    pair: DuplicatePair
    keeper: RereadRecord
    duplicate: RereadRecord
    prints: Fingerprints

    @property
    def is_whole(self) -> bool:
        """Whether both records still have a text."""
        return self.keeper.text is not None and self.duplicate.text is not None

    @property
    def has_other_numbers(self) -> bool:
        """Whether both texts exist and differ in a number."""
        first, second = (
            NUMBER_PATTERN.findall(record.text or "") for record in (self.keeper, self.duplicate)
        )
        return self.is_whole and first != second


class RecordReader:
    """Re-reads records in portions of about 8 MB, and at most 256 MB of each sample."""

    def __init__(self, context: Context, engine: FingerprintWorkers) -> None:
        self._reader, self._engine = context.recipe.reader, engine
        self._group_words = context.recipe.group_words
        self._source, self._target = context.source, RecordsInTurn(context.target, context.source)
        settings = context.settings.page
        self._paths = list(dict.fromkeys([*settings.show, *filter(None, [settings.group_by])]))
        tops, names = [path.split(".")[0] for path in self._paths], self._reader.fields.names
        # A projection cannot name a field that begins with $; whole records are read then.
        can_project = names and not any(name.startswith("$") for name in tops)
        self._names = tuple(dict.fromkeys([*names, *tops])) if can_project else ()
        self._at_once, self._nbytes = FEW, 0

    def pairs(self, pairs: Sequence[DuplicatePair]) -> Iterator[RereadPair]:
        """Yield the pairs with their records."""
        for portion in self._portions(pairs):
            keepers = self._fetch(self._target, [pair.match.keeper for pair in portion])
            duplicates = self._fetch(self._source, [pair.duplicate for pair in portion])
            records, prints = self._read([*keepers.items(), *duplicates.items()])
            # Kept apart, as a record may be a keeper in the target and a duplicate in the source.
            kept = {record.id: record for record in records[: len(keepers)]}
            dropped = {record.id: record for record in records[len(keepers) :]}
            for pair in portion:
                keeper, duplicate = pair.match.keeper, pair.duplicate
                yield RereadPair(
                    pair,
                    kept.get(keeper, RereadRecord(keeper)),
                    dropped.get(duplicate, RereadRecord(duplicate)),
                    prints,
                )

    def kept(self, ids: Sequence[bytes]) -> Iterator[RereadRecord]:
        """Yield these kept records."""
        for portion in self._portions(ids):
            yield from self._read([*self._fetch(self._target, portion).items()])[0]

    def regrouped(self, groups: Sequence[DrawnGroup]) -> Iterator[KeeperGroup]:
        """Yield the near duplicates of each group with their similarities to the keeper and to each other."""
        shingles = self._shingles([raw_id for group in groups for raw_id, _ in group.members])
        for group in groups:
            # Shorter than the members where a sample has reached its 256 MB.
            members = [
                (similarity, row)
                for (_, similarity), row in zip(group.members, shingles, strict=False)
                if len(row)
            ]
            if members:
                similarities, rows = zip(*members, strict=True)
                yield KeeperGroup(np.array(similarities), _similarity_matrix(rows), group.near)

    def _shingles(self, ids: Sequence[bytes]) -> Iterator[Any]:
        """Yield the shingles of each source record, uint32 (k,); empty for a record without a text."""
        for portion in self._portions(ids):
            raws = self._fetch(self._source, portion)
            # The near duplicates of a keeper are all of its group.
            prints = without_groups(self._engine.fingerprint([*raws.values()]), self._group_words)
            rows = dict(zip(raws, prints.shingles, strict=True))
            yield from (rows.get(raw_id, np.empty(0, np.uint32)) for raw_id in portion)

    def _portions(self, items: Sequence[T]) -> Iterator[Sequence[T]]:
        """Yield the items in portions whose records take about 8 MB, until they take 256 MB in total."""
        start, first = 0, self._nbytes
        while start < len(items) and self._nbytes - first < MOST_BYTES:
            portion, before = items[start : start + self._at_once], self._nbytes
            # `_nbytes` grows while the caller reads the portion's records.
            yield portion
            start += len(portion)
            each = max(1, self._nbytes - before) / len(portion)
            self._at_once = max(1, min(MANY, 2 * self._at_once, int(AT_ONCE_BYTES / each)))

    def _fetch(self, records: RecordLookup, ids: Sequence[bytes]) -> dict[bytes, bytes]:
        portions = records.fetch(list(dict.fromkeys(ids)), self._names)
        raws = {raw_id: raw for portion in portions for raw_id, raw in portion.items()}
        self._nbytes += sum(map(len, raws.values()))
        return raws

    def _read(self, items: Sequence[tuple[bytes, bytes]]) -> tuple[list[RereadRecord], Fingerprints]:
        """Return records with texts and fields, and their fingerprints.

        Args:
            items: Raw ids and raw records.
        """
        raws = [raw for _, raw in items]
        prints = self._engine.fingerprint(raws)
        # A record that killed its worker must not be parsed in this process.
        judged = [row for row, reason in enumerate(prints.reasons) if not reason]
        texts = dict(zip(judged, self._reader.texts([raws[row] for row in judged]), strict=True))
        records = [
            RereadRecord(raw_id, texts.get(row), self._show_fields(raw), row)
            for row, (raw_id, raw) in enumerate(items)
        ]
        return records, prints

    def _show_fields(self, raw: bytes) -> dict[str, str]:
        record = decode(raw, SHOWABLE) if self._paths else {}
        return {path: _show_value(_value_at(record, path)) for path in self._paths}


def _similarity_matrix(rows: Sequence[Any]) -> Any:
    """Return the similarity of each text to each other text, float64 (m, m).

    Args:
        rows: The shingles of each text, uint32 (k,).
    """
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    sets = ShingleSets(offsets, np.concatenate(rows))
    left, right = np.divmod(np.arange(len(rows) ** 2), len(rows))
    return similarities_at_least(sets, left, sets, right, 0.0).reshape(len(rows), len(rows))


def _value_at(record: Any, path: str) -> Any:
    """Return the value at a dotted path, or None."""
    for part in path.split("."):
        if isinstance(record, list) and part.isascii() and part.isdigit():
            record = record[int(part)] if int(part) < len(record) else None
        else:
            record = record.get(part) if isinstance(record, dict) else None
    return record


def _show_value(value: Any) -> str:
    """Return a value for people: a text unchanged, "" for None, other values as extended JSON."""
    if value is None:
        return ""
    # JavaScript is a kind of str that cannot be the key of a dict.
    text = str(value) if isinstance(value, str) else json_util.dumps(value, json_options=ID_JSON)
    return text if len(text) <= FIELD_MOST else text[:FIELD_MOST] + "…"
