"""Records that a run decided, read again: duplicates with their keepers, kept records, members of groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from bson import decode, json_util

from dedup_job.commands.context import Context, Records
from dedup_job.document import Fingerprints
from dedup_job.engine.local import LocalEngine
from dedup_job.fingerprint.shingles import NUMBER
from dedup_job.lab.rethreshold import Regrouped
from dedup_job.ledger.read_only import ReadOnlyTarget
from dedup_job.match.similarity import Sets, similarities_from
from dedup_job.mongo.shown_ids import ID_JSON, SHOWABLE
from dedup_job.report.evidence import Pair
from dedup_job.report.page.reservoir import DrawnGroup

T = TypeVar("T")

FEW, MANY = 4, 100  # that are read at once: few at first, until it is known how large they are
AT_ONCE_BYTES = 8 << 20
MOST_BYTES = 256 << 20  # of one sample
FIELD_MOST = 200  # characters of a field that is shown


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it is now; `text` is None where it is gone or cannot be judged any more.

    fields  what the settings ask for, by path
    row     of its fingerprint
    """

    id: bytes
    text: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    row: int = -1


@dataclass(frozen=True, slots=True)
class Seen:
    """A pair, read again; `prints` has the rows of both."""

    pair: Pair
    keeper: Record
    duplicate: Record
    prints: Fingerprints

    @property
    def is_whole(self) -> bool:
        """Whether there is a text of both."""
        return self.keeper.text is not None and self.duplicate.text is not None

    @property
    def has_other_numbers(self) -> bool:
        """Whether the texts differ in a number."""
        first, second = (NUMBER.findall(record.text or "") for record in (self.keeper, self.duplicate))
        return self.is_whole and first != second


class ReadAgain:
    """Reads records again: as many at a time as memory allows, and of each sample no more than 256 MB."""

    def __init__(self, context: Context, engine: LocalEngine) -> None:
        self._reader, self._engine = context.recipe.reader, engine
        self._source, self._target = context.source, ReadOnlyTarget(context.target, context.source)
        settings = context.settings.report
        self._paths = list(dict.fromkeys([*settings.show, *filter(None, [settings.group_by])]))
        tops, names = [path.split(".")[0] for path in self._paths], self._reader.fields.names
        is_nameable = names and not any(name.startswith("$") for name in tops)
        self._names = tuple(dict.fromkeys([*names, *tops])) if is_nameable else ()
        self._at_once, self._nbytes = FEW, 0

    def pairs(self, pairs: Sequence[Pair]) -> Iterator[Seen]:
        """Yield pairs with their texts."""
        for some in self._portions(pairs):
            keepers = self._raws(self._target, [pair.match.keeper for pair in some])
            duplicates = self._raws(self._source, [pair.duplicate for pair in some])
            records, prints = self._read([*keepers.items(), *duplicates.items()])
            kept = {record.id: record for record in records[: len(keepers)]}
            dropped = {record.id: record for record in records[len(keepers) :]}
            for pair in some:
                keeper, duplicate = pair.match.keeper, pair.duplicate
                yield Seen(
                    pair, kept.get(keeper, Record(keeper)), dropped.get(duplicate, Record(duplicate)), prints
                )

    def kept(self, ids: Sequence[bytes]) -> Iterator[Record]:
        """Yield kept records with their texts."""
        for some in self._portions(ids):
            yield from self._read([*self._raws(self._target, some).items()])[0]

    def regrouped(self, groups: Sequence[DrawnGroup]) -> Iterator[Regrouped]:
        """Yield the near duplicates of each group, compared with one another."""
        shingles = self._shingles([raw_id for group in groups for raw_id, _ in group.members])
        for group in groups:
            there = [
                (alike, row) for (_, alike), row in zip(group.members, shingles, strict=False) if len(row)
            ]
            if there:
                similarity, rows = zip(*there, strict=True)
                yield Regrouped(np.array(similarity), _among(rows), group.near)

    def _shingles(self, ids: Sequence[bytes]) -> Iterator[Any]:
        for some in self._portions(ids):
            raws = self._raws(self._source, some)
            prints = self._engine.fingerprint([*raws.values()])
            rows = dict(zip(raws, prints.shingles, strict=True))
            yield from (rows.get(raw_id, np.empty(0, np.uint32)) for raw_id in some)

    def _portions(self, items: Sequence[T]) -> Iterator[Sequence[T]]:
        """Yield the items in turn, as many at a time as their sizes so far allow."""
        start, first = 0, self._nbytes
        while start < len(items) and self._nbytes - first < MOST_BYTES:
            some, before = items[start : start + self._at_once], self._nbytes
            yield some
            start += len(some)
            each = max(1, self._nbytes - before) / len(some)
            self._at_once = max(1, min(MANY, 2 * self._at_once, int(AT_ONCE_BYTES / each)))

    def _raws(self, records: Records, ids: Sequence[bytes]) -> dict[bytes, bytes]:
        pieces = records.fetch(list(dict.fromkeys(ids)), self._names)
        raws = {raw_id: raw for piece in pieces for raw_id, raw in piece.items()}
        self._nbytes += sum(map(len, raws.values()))
        return raws

    def _read(self, found: Sequence[tuple[bytes, bytes]]) -> tuple[list[Record], Fingerprints]:
        """Return records with their texts; one that killed its worker is not touched here."""
        raws = [raw for _, raw in found]
        prints = self._engine.fingerprint(raws) if raws else Fingerprints.join([])
        judged = [row for row, reason in enumerate(prints.reasons) if not reason]
        texts = dict(zip(judged, self._reader.texts([raws[row] for row in judged])[0], strict=True))
        return [
            Record(raw_id, texts.get(row), self._fields(raw), row) for row, (raw_id, raw) in enumerate(found)
        ], prints

    def _fields(self, raw: bytes) -> dict[str, str]:
        record = decode(raw, SHOWABLE) if self._paths else {}
        return {path: _shown(_value(record, path)) for path in self._paths}


def _among(rows: Sequence[Any]) -> Any:
    """Return the similarity of each text to each, float64 (m, m)."""
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    sets = Sets(offsets, np.concatenate(rows))
    left, right = np.divmod(np.arange(len(rows) ** 2), len(rows))
    return similarities_from(sets, left, sets, right, 0.0).reshape(len(rows), len(rows))


def _value(record: Any, path: str) -> Any:
    """Return the value at a dotted path, or None."""
    for part in path.split("."):
        if isinstance(record, list) and part.isascii() and part.isdigit():
            record = record[int(part)] if int(part) < len(record) else None
        else:
            record = record.get(part) if isinstance(record, dict) else None
    return record


def _shown(value: Any) -> str:
    """Return a value for people: a text as it is, "" for none, anything else as extended JSON."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json_util.dumps(value, json_options=ID_JSON)
    return text if len(text) <= FIELD_MOST else text[:FIELD_MOST] + "…"
