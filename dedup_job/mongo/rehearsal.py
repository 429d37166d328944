"""A rehearsal: a target and a ledger for a dry run, which read what is there and write nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dedup_job.mongo.source import Source
from dedup_job.mongo.target import Target
from dedup_job.plan import Plan


class RehearsalTarget:
    """Knows the records that earlier runs put into the target, and those that this one would put there."""

    def __init__(self, target: Target, source: Source) -> None:
        self._target, self._source = target, source

    def fetch(self, ids: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the records of these keepers, by id."""
        there = self._target.fetch(ids)
        rest = [raw_id for raw_id in ids if raw_id not in there]
        return there | (self._source.fetch(rest) if rest else {})

    def absent(self, ids: Iterable[bytes]) -> set[bytes]:
        """Return those of these keepers that are in neither."""
        return self._source.absent(self._target.absent(ids))


def accept(plan: Plan, _: Sequence[bytes]) -> Plan:
    """Take every verdict as it is; nothing is written, so nothing is refused."""
    return plan
