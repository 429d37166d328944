"""A forecast: how long a backfill takes and what it holds, from rates that were measured on a sample.

A run reads ahead, decides and commits in one process while workers fingerprint.  A record takes as long as it
is read, or decided and committed, or its share of the workers' time, or its share of all the work on the
machine's processors, whichever is longest; what is longest is what limits the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from dedup_job.lab.unseen import Copies, Span
from dedup_job.match.recent import ENTRY

# A commit is not measured, for nothing is written.  Taken instead: so many writes a chunk, each a round trip
# and a flush of the journal to a solid-state disk, and so many bytes a second into the target.
WRITES, FLUSH_SECONDS, BYTES_PER_SECOND = 6, 0.004, 60e6
LATER = 3  # of these writes, while the next chunk is decided


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the job runs.

    workers  processes that fingerprint
    cores    processors
    shared   whether the server runs on them as well
    """

    workers: int
    cores: int
    shared: bool


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds for a record.

    start        once for a run: workers that come to life
    read         a page's time at the server, by its records
    alone        one worker that has the machine to itself
    together     all workers at once, each record's share
    ship         the parent's part in that
    decide       entering, look-up, comparison, and taking in, when half of the collection is decided
    round_trip   one, for a chunk of records
    """

    start: float
    read: float
    alone: float
    together: float
    ship: float
    decide: float
    round_trip: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes, for a record where nothing else is said.

    record     as the server sends it
    stored     of it on disk, with its entry in the index on `_id`
    plan       its part of a plan on disk
    dropped    the row on a duplicate, on disk
    shingles   of a text, as they are sent and kept
    process    of the parent, with nothing in it yet; in all
    worker     of one worker, in all, with its part of what they are forked from; None where nobody tells
    keepers    of the index over all different texts; in all
    """

    record: float
    stored: float
    plan: float
    dropped: float
    shingles: float
    process: int
    worker: int | None
    keepers: int

    @property
    def at_hand(self) -> float:
        """Of a text in the cache."""
        return self.shingles + ENTRY


@dataclass(frozen=True, slots=True)
class Limits:
    """What the settings allow: records of a chunk, bytes in flight and in the cache, and rates of reading."""

    chunk: int
    in_flight: int
    cache: int
    records_per_second: float = inf
    bytes_per_second: float = inf


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was sampled, and what it shows.

    source     name of the collection
    records    records of the collection, about
    read       records of the sample
    stretches  stretches of the collection that they come from
    judged     share of them that can be judged
    copies     what they show of duplicates
    near       share of the duplicates that are not exact
    wrong      how likely a keeper is a candidate for a record that it does not stand for
    """

    source: str
    records: int
    read: int
    stretches: int
    judged: float
    copies: Copies
    near: float
    wrong: float

    @property
    def dropped(self) -> Span:
        """The share of all records that are dropped."""
        of_judged = self.copies.dropped()
        return Span(*(self.judged * share for share in (of_judged.low, of_judged.likely, of_judged.high)))

    @property
    def unique(self) -> float:
        """The records that are likely to be kept or copied."""
        return self.records * (1 - self.dropped.likely)

    @property
    def texts(self) -> float:
        """The different texts that there are likely to be: those of near-duplicates are remembered too."""
        return self.records * (self.judged - self.dropped.likely * (1 - self.near))


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a backfill of the whole collection would take on this machine."""

    sampled: Sampled
    machine: Machine
    costs: Costs
    sizes: Sizes
    limits: Limits
    warnings: Sequence[str] = ()

    @property
    def dropped(self) -> Span:
        """The share of all records that are dropped."""
        return self.sampled.dropped

    @property
    def reread(self) -> float:
        """How many keepers' texts are read again for a record, because they are not at hand any more.

        Each near duplicate needs one, and each candidate that is none; the cache holds some.
        """
        held = self.limits.cache / max(1.0, self.sizes.at_hand * self.sampled.unique)
        wanted = self.dropped.likely * self.sampled.near + self.sampled.wrong * self.sampled.unique / 2
        return max(0.0, 1 - held) * wanted

    @property
    def commit(self) -> float:
        """Seconds to commit a record; taken, not measured."""
        written = (1 - self.dropped.likely) * self.sizes.record / BYTES_PER_SECOND
        return WRITES * (self.costs.round_trip + FLUSH_SECONDS) / self.limits.chunk + written

    @property
    def deciding(self) -> float:
        """Seconds for a record in the process that decides."""
        costs, again = self.costs, self.reread
        later = LATER * (costs.round_trip + FLUSH_SECONDS) / self.limits.chunk
        decided = costs.ship + costs.decide + again * (costs.read + costs.alone)
        return max(decided, later) + self.commit - later

    @property
    def bounds(self) -> dict[str, float]:
        """Seconds for a record by each of what may limit the run."""
        costs, machine = self.costs, self.machine
        again = self.reread
        server = (1 + again) * costs.read + self.commit
        fingerprinting = (1 + again) * costs.together
        busy = costs.decide + fingerprinting * min(machine.workers, machine.cores)
        return {
            "reading": costs.read,
            "deciding": self.deciding,
            "the workers": fingerprinting,
            "the processors": (busy + (server if machine.shared else 0.0)) / machine.cores,
            "max_docs_per_second": 1 / self.limits.records_per_second,
            "max_mb_per_second": self.sizes.record / self.limits.bytes_per_second,
        }

    @property
    def limit(self) -> str:
        """What limits the run."""
        return max(self.bounds, key=self.bounds.__getitem__)

    @property
    def seconds(self) -> float:
        """How long the run takes."""
        return self.costs.start + self.sampled.records * max(self.bounds.values())

    @property
    def memory(self) -> dict[str, int]:
        """Bytes by what holds them."""
        sizes, unique = self.sizes, self.sampled.unique
        chunks = 2 * self.machine.workers + 1
        ahead = min(self.limits.in_flight, chunks * self.limits.chunk * sizes.record)
        shipped = ahead / sizes.record * sizes.shingles if sizes.record else 0.0
        return {
            "process": sizes.process,
            "index": sizes.keepers,
            "cache": int(min(self.limits.cache, unique * sizes.at_hand)),
            "in_flight": int(ahead + shipped),
            "workers": (sizes.worker or 0) * self.machine.workers,
        }

    @property
    def disk(self) -> dict[str, int]:
        """Bytes on disk by what takes them; the journal and the oplog are left out."""
        records, sizes = self.sampled.records, self.sizes
        return {
            "target": int(records * (1 - self.dropped.likely) * sizes.stored),
            "ledger": int(records * (sizes.plan + self.dropped.likely * sizes.dropped)),
        }

    @property
    def rates(self) -> dict[str, float]:
        """Records a second of each step."""
        costs = self.costs
        seconds: Mapping[str, float] = {
            "reading": costs.read,
            "fingerprinting": costs.together,
            "fingerprinting_one_worker": costs.alone,
            "deciding": costs.decide,
            "committing": self.commit,
        }
        return {name: 1 / cost if cost else inf for name, cost in seconds.items()}
