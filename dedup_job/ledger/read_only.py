"""A rehearsal: a target and a ledger for a dry run, which read what is there and write nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dedup_job.mongo.source import Source
from dedup_job.mongo.target import Target
from dedup_job.plan import Plan


class ReadOnlyTarget:
    """Knows the records that earlier runs put into the target, and those that this one would put there."""

    def __init__(self, target: Target, source: Source) -> None:
        self._target, self._source = target, source

    def fetch(self, ids: Sequence[bytes], fields: Sequence[str] = ()) -> Iterator[dict[bytes, bytes]]:
        """Yield the records of these keepers, by id, in pieces; see `Lookup.pieces`."""
        rest = dict.fromkeys(ids)
        for there in self._target.fetch(ids, fields):
            for raw_id in there:
                rest.pop(raw_id, None)
            yield there
        yield from self._source.fetch(list(rest), fields)

    def absent(self, ids: Iterable[bytes]) -> set[bytes]:
        """Return those of these keepers that are in neither."""
        return self._source.absent(self._target.absent(ids))


def accept(plan: Plan, _: Sequence[bytes]) -> Plan:
    """Take every verdict as it is; nothing is written, so nothing is refused."""
    return plan
