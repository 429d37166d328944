"""Forecast time, memory and disk of a backfill from rates measured on a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from dedup_job.analysis.duplicate_rate import SampledCopies, ShareRange
from dedup_job.index.shingle_cache import ENTRY_BYTES

# A commit is not measured, because an estimate writes nothing.  Assumed instead: writes per chunk, each a
# round trip and a flush of the journal to a solid-state disk; and the rate at which records reach the target.
WRITES_PER_CHUNK, FLUSH_SECONDS, BYTES_PER_SECOND = 6, 0.004, 60e6
# Those of these writes that happen while the next chunk is decided.
LATER = 3


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that the job runs on.

    Attributes:
        workers: Processes that fingerprint.
        cores: Processors.
        shared: Whether the MongoDB server runs on the same processors.
    """

    workers: int
    cores: int
    shared: bool


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured costs, in seconds; per record unless it says otherwise.

    Attributes:
        start: Once for a run: starting the workers.
        read: The server's time for a page, divided by its records.
        alone: Fingerprinting by one worker that has the machine to itself.
        together: Fingerprinting by all workers at once, divided by all their records.
        ship: The main process's part in fingerprinting.
        decide: Adding, lookup, comparison and keeping, when half of the collection is decided.
        round_trip: One round trip to the server, per chunk of records.
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
    """Measured sizes, in bytes; per record unless it says otherwise.

    Attributes:
        record: As the server sends it.
        stored: On disk, with its entry in the `_id` index.
        plan: Its part of a plan on disk.
        dropped: The ledger's row about a duplicate, on disk.
        shingles: Shingles of a text, when sent and when cached.
        process: The whole main process before it has read anything.
        worker: One whole worker, with its part of the memory it shares with other workers; None if the system
            does not report it.
        keepers: The whole index of all distinct texts.
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
    def cached_text(self) -> float:
        """Bytes of a text in the cache."""
        return self.shingles + ENTRY_BYTES


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Limits from the settings.

    Attributes:
        chunk: Records of a chunk.
        in_flight: Bytes of records in flight.
        cache: Bytes of cached shingles.
        records_per_second: Read rate.
        bytes_per_second: Read rate.
    """

    chunk: int
    in_flight: int
    cache: int
    records_per_second: float = inf
    bytes_per_second: float = inf


@dataclass(frozen=True, slots=True)
class SampleStatistics:
    """Statistics of a sample.

    Attributes:
        source: Name of the collection.
        records: Records of the collection, approximately.
        read: Records of the sample.
        stretches: Stretches of consecutive records that the sample consists of.
        judged: Share of the sample that can be judged.
        copies: Duplicates in the sample.
        near: Share of the duplicates that are not exact.
        wrong: Probability that a keeper is a candidate for a record that is no duplicate of it.
    """

    source: str
    records: int
    read: int
    stretches: int
    judged: float
    copies: SampledCopies
    near: float
    wrong: float

    @property
    def dropped(self) -> ShareRange:
        """Share of all records that a backfill drops."""
        of_judged = self.copies.dropped()
        return ShareRange(
            *(self.judged * share for share in (of_judged.low, of_judged.likely, of_judged.high))
        )

    @property
    def unique(self) -> float:
        """Likely number of records that are kept or copied."""
        return self.records * (1 - self.dropped.likely)

    @property
    def texts(self) -> float:
        """Likely number of distinct texts; texts of near-duplicates count, because the index holds them."""
        return self.records * (self.judged - self.dropped.likely * (1 - self.near))


@dataclass(frozen=True, slots=True)
class Forecast:
    """Time, memory and disk of a backfill of the whole collection on this machine."""

    sampled: SampleStatistics
    machine: Machine
    costs: Costs
    sizes: Sizes
    limits: ResourceLimits
    warnings: Sequence[str] = ()

    @property
    def dropped(self) -> ShareRange:
        """Share of all records that a backfill drops."""
        return self.sampled.dropped

    @property
    def reread(self) -> float:
        """Keepers' texts that are read again per record, because their shingles are no longer cached.

        A near duplicate is compared with one keeper, and further keepers may be candidates without a match.
        """
        cached = self.limits.cache / max(1.0, self.sizes.cached_text * self.sampled.unique)
        compared = self.dropped.likely * self.sampled.near + self.sampled.wrong * self.sampled.unique / 2
        return max(0.0, 1 - cached) * compared

    @property
    def commit(self) -> float:
        """Seconds to commit a record; assumed, not measured."""
        written = (1 - self.dropped.likely) * self.sizes.record / BYTES_PER_SECOND
        return WRITES_PER_CHUNK * (self.costs.round_trip + FLUSH_SECONDS) / self.limits.chunk + written

    @property
    def deciding(self) -> float:
        """Seconds per record in the process that decides and commits."""
        costs = self.costs
        later = LATER * (costs.round_trip + FLUSH_SECONDS) / self.limits.chunk
        decided = costs.ship + costs.decide + self.reread * (costs.read + costs.alone)
        return max(decided, later) + self.commit - later

    @property
    def bounds(self) -> dict[str, float]:
        """Seconds per record, by each step or limit that may be the slowest."""
        costs, machine = self.costs, self.machine
        # Every record is read and fingerprinted once, and keepers that are no longer cached again.
        readings = 1 + self.reread
        server = readings * costs.read + self.commit
        fingerprinting = readings * costs.together
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
        """Name of the step or limit that is the slowest."""
        return max(self.bounds, key=self.bounds.__getitem__)

    @property
    def seconds(self) -> float:
        """Seconds that the run takes."""
        return self.costs.start + self.sampled.records * max(self.bounds.values())

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of memory, by use."""
        sizes, unique = self.sizes, self.sampled.unique
        # Two chunks for each worker, and the one that is being decided.
        chunks = 2 * self.machine.workers + 1
        ahead = min(self.limits.in_flight, chunks * self.limits.chunk * sizes.record)
        shipped = ahead / sizes.record * sizes.shingles if sizes.record else 0.0
        return {
            "process": sizes.process,
            "index": sizes.keepers,
            "cache": int(min(self.limits.cache, unique * sizes.cached_text)),
            "in_flight": int(ahead + shipped),
            "workers": (sizes.worker or 0) * self.machine.workers,
        }

    @property
    def disk(self) -> dict[str, int]:
        """Bytes on disk, by use, without the journal and the oplog."""
        records, sizes = self.sampled.records, self.sizes
        return {
            "target": int(records * (1 - self.dropped.likely) * sizes.stored),
            "ledger": int(records * (sizes.plan + self.dropped.likely * sizes.dropped)),
        }

    @property
    def rates(self) -> dict[str, float]:
        """Records per second, by step."""
        costs = self.costs
        seconds: Mapping[str, float] = {
            "reading": costs.read,
            "fingerprinting": costs.together,
            "fingerprinting_one_worker": costs.alone,
            "deciding": costs.decide,
            "committing": self.commit,
        }
        return {name: 1 / cost if cost else inf for name, cost in seconds.items()}
