"""Kept records, read where they are or come from: in the target, or else in the source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dedup_job.mongo.source import Source
from dedup_job.mongo.target import Target


class ReadOnlyTarget:
    """A target as it is or would be, that is only read."""

    def __init__(self, target: Target, source: Source) -> None:
        self._target, self._source = target, source

    def fetch(self, ids: Sequence[bytes], fields: Sequence[str] = ()) -> Iterator[dict[bytes, bytes]]:
        """Yield the records of these keepers, by id, in pieces; see `Lookup.pieces`."""
        rest = dict.fromkeys(ids)
        for there in self._target.fetch(ids, fields):
            for raw_id in there:
                rest.pop(raw_id, None)
            yield there
        yield from self._source.fetch(self._to_come(list(rest)), fields)

    def absent(self, ids: Iterable[bytes]) -> set[bytes]:
        """Return those of these keepers that are in neither."""
        gone = self._target.absent(ids)
        to_come = self._to_come(list(gone))
        return gone.difference(to_come) | self._source.absent(to_come)

    def _to_come(self, ids: Sequence[bytes]) -> Sequence[bytes]:
        """Return those of some ids that the target has not got whose records are looked for in the source."""
        return ids
