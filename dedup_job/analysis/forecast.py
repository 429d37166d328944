"""Forecast time, memory and disk of a backfill: what a sample took, scaled to the collection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from dedup_job.analysis.match_conditions import segments_searched
from dedup_job.fingerprint.recipe import Matching
from dedup_job.report.terminal_text import format_bytes, format_duration

# A commit is not measured, because an estimate writes nothing.  Assumed instead: writes per chunk, each a
# round trip and a flush of the journal to a solid-state disk; and the rate at which records reach the target.
WRITES_PER_CHUNK, FLUSH_SECONDS, BYTES_PER_SECOND = 6, 0.004, 60e6
# Bytes in memory of a text's digest, and of a key with its share of the map's directory.
DIGEST_BYTES, KEY_BYTES = 16, 7
# Bytes on disk of a row in `dropped` (135, compressed to a quarter) and of its entry in an index.
DROPPED_ROW_BYTES = 135 * 0.25 + 32
# With fewer pairs of copies than this in the sample, the largest share is a guess.
FEW_PAIRS = 10


def index_bytes(bits: int, matching: Matching) -> int:
    """Return the bytes in memory of a text's fingerprint of so many bits, and of its keys."""
    keys = segments_searched(bits, matching.radius) + matching.bands
    return bits // 8 + 1 + KEY_BYTES * keys


@dataclass(frozen=True, slots=True)
class DroppedShare:
    """The share of all records that a backfill drops.

    Attributes:
        low: The share of the sample: copies that are in the sample together with their original.
        high: The same, with the pairs of copies scaled to the number of pairs in the collection.  A group of
            copies has more pairs than copies, so this is too high for large groups.
        pairs: Pairs of copies that are far apart in the collection and both in the sample.
    """

    low: float
    high: float
    pairs: int


def dropped_share(records: int, stretches: Sequence[Sequence[bytes]], sampled: int) -> DroppedShare:
    """Return which share of a collection a backfill drops, by a sample.

    Copies next to each other are as frequent in a stretch of the sample as in the collection.  Copies far
    apart are rare in a sample: it has (sampled / records)^2 of their pairs.

    >>> dropped_share(1_000, [[b"a", b"a", b"b"], [b"b", b"c"]], 10)
    DroppedShare(low=0.2, high=1.0, pairs=1)

    Args:
        records: Records of the collection.
        stretches: The keeper of each record that can be compared, by stretch.
        sampled: Records of the sample, including those that cannot be compared.
    """
    distinct = [set(stretch) for stretch in stretches]
    occurrences = Counter(keeper for stretch in distinct for keeper in stretch)
    low = (sum(map(len, stretches)) - len(occurrences)) / sampled
    pairs = sum(count * (count - 1) // 2 for count in occurrences.values())
    together = sum(map(len, stretches)) - sum(map(len, distinct))
    high = (together + pairs * records / sampled) / sampled
    return DroppedShare(low, max(low, min(1.0, high)) if sampled < records else low, pairs)


@dataclass(frozen=True, slots=True)
class Seconds:
    """Measured times, in seconds.

    Attributes:
        start: To start the workers, once.
        read: To read a record.
        work: To fingerprint and decide a record, with all workers.
        busy: Processor time of this process in `work`; near `work` if deciding is the limit.
        round_trip: To the server and back.
    """

    start: float
    read: float
    work: float
    busy: float
    round_trip: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """Measured sizes, in bytes; per record unless it says otherwise.

    Attributes:
        record: As the server sends it.
        stored: On disk, with its entry in the `_id` index.
        plan: Its part of a plan on disk.
        shingles: Its shingles, when sent and when cached.
        text: A distinct text in the index.
        process: The main process before the backfill.
        worker: A worker with its share of shared memory; None if the system does not report it.
    """

    record: float
    stored: float
    plan: float
    shingles: float
    text: float
    process: int
    worker: int | None


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Limits from the settings.

    Attributes:
        workers: Worker processes.
        chunk: Records of a chunk.
        in_flight: Bytes of records in flight.
        cache: Bytes of cached shingles.
        records_per_second: Read rate.
        bytes_per_second: Read rate.
    """

    workers: int
    chunk: int
    in_flight: int
    cache: int
    records_per_second: float = inf
    bytes_per_second: float = inf


@dataclass(frozen=True, slots=True)
class Forecast:
    """Time, memory and disk of a backfill of the whole collection on this machine.

    Memory and disk are for the share that the sample drops; they are less if the collection drops more.

    Attributes:
        source: Name of the collection.
        records: Its records, approximately.
        sampled: Records of the sample.
        stretches: Stretches of consecutive records that the sample consists of.
        distinct: Share of the sample's records that have a text of their own, kept or not.
        dropped: The share that is dropped.
        seconds_each: Measured times.
        sizes: Measured sizes.
        limits: Limits from the settings.
        warnings: Warnings that the first records cause.
    """

    source: str
    records: int
    sampled: int
    stretches: int
    distinct: float
    dropped: DroppedShare
    seconds_each: Seconds
    sizes: Sizes
    limits: ResourceLimits
    warnings: Sequence[str] = ()

    @property
    def write(self) -> float:
        """Seconds to commit a record; assumed, not measured."""
        trips = WRITES_PER_CHUNK * (self.seconds_each.round_trip + FLUSH_SECONDS) / self.limits.chunk
        return trips + (1 - self.dropped.low) * self.sizes.record / BYTES_PER_SECOND

    @property
    def bounds(self) -> dict[str, float]:
        """Seconds per record, by each step or limit that may be the slowest."""
        times = self.seconds_each
        # This process decides and writes.  While it is busy, the workers wait for it.
        slower = "deciding" if times.busy > 0.8 * times.work else "the workers"
        return {
            "reading": times.read,
            slower: times.work + self.write,
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
        return self.seconds_each.start + self.records * max(self.bounds.values())

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of memory, by use."""
        sizes, limits = self.sizes, self.limits
        # Two chunks for each worker, and the one that is being decided.
        ahead = min(limits.in_flight, (2 * limits.workers + 1) * limits.chunk * sizes.record)
        return {
            "process": sizes.process,
            "index": int(self.records * self.distinct * sizes.text),
            "cache": int(min(limits.cache, self.records * (1 - self.dropped.low) * sizes.shingles)),
            "in_flight": int(ahead * (1 + sizes.shingles / max(1.0, sizes.record))),
            "workers": (sizes.worker or 0) * limits.workers,
        }

    @property
    def disk(self) -> dict[str, int]:
        """Bytes on disk, by use, without the journal and the oplog."""
        sizes, low = self.sizes, self.dropped.low
        return {
            "target": int(self.records * (1 - low) * sizes.stored),
            "ledger": int(self.records * (sizes.plan + low * DROPPED_ROW_BYTES)),
        }

    @property
    def rates(self) -> dict[str, float]:
        """Records per second, by step."""
        times = self.seconds_each
        steps = {"reading": times.read, "fingerprinting_and_deciding": times.work, "writing": self.write}
        return {name: 1 / seconds if seconds else inf for name, seconds in steps.items()}

    def as_json(self) -> dict[str, Any]:
        """Return the forecast as one JSON object, in seconds, bytes, and records per second."""
        return {
            "source": self.source,
            "records": self.records,
            "sampled": self.sampled,
            "stretches": self.stretches,
            "seconds": round(self.seconds, 1),
            "docs_per_second": round(1 / max(self.bounds.values()), 1),
            "limited_by": self.limit,
            "bounds": {name: round(1 / seconds, 1) for name, seconds in self.bounds.items() if seconds},
            "memory": self.memory,
            "disk": self.disk,
            "dropped": {"low": round(self.dropped.low, 4), "high": round(self.dropped.high, 4)},
            "pairs_apart": self.dropped.pairs,
            "workers": self.limits.workers,
            "rates": {name: None if rate == inf else round(rate, 1) for name, rate in self.rates.items()},
            "sizes": {name: value and round(value, 1) for name, value in asdict(self.sizes).items()},
            **({"warnings": list(self.warnings)} if self.warnings else {}),
        }

    def as_text(self) -> str:
        """Return the forecast as text."""
        memory, disk, rates, workers = self.memory, self.disk, self.rates, self.limits.workers
        own = sum(size for name, size in memory.items() if name != "workers")
        each = f"; plus {workers} workers of {format_bytes(self.sizes.worker)}" if self.sizes.worker else ""
        return "\n".join(
            [
                f"estimate: a backfill of {self.source}, "
                f"about {self.records:,} records of {format_bytes(self.sizes.record)}",
                *(f"  WARNING: {warning}" for warning in self.warnings),
                f"  sample    {self.sampled:,} records in {self.stretches:,} "
                f"{'stretch' if self.stretches == 1 else 'stretches'}",
                f"  time      {format_duration(self.seconds)}, "
                f"{1 / max(self.bounds.values()):,.0f} documents/s; limited by {self.limit}",
                f"  memory    {format_bytes(own)}, {format_bytes(memory['index'])} of them the index, "
                f"{format_bytes(memory['cache'])} the cache{each}",
                f"  disk      {format_bytes(sum(disk.values()))}: "
                f"target {format_bytes(disk['target'])}, ledger {format_bytes(disk['ledger'])}; "
                "without journal and oplog",
                f"  dropped   {self._dropped_line()}",
                f"  measured, documents/s: reading {rates['reading']:,.0f}, "
                f"fingerprinting and deciding {rates['fingerprinting_and_deciding']:,.0f}",
                f"  assumed, as nothing is written: writing {rates['writing']:,.0f}, with {WRITES_PER_CHUNK} "
                f"writes per chunk at {FLUSH_SECONDS * 1000:.0f} ms and {BYTES_PER_SECOND / 1e6:.0f} MB/s",
            ]
        )

    def _dropped_line(self) -> str:
        low, high, pairs = 100 * self.dropped.low, 100 * self.dropped.high, self.dropped.pairs
        if self.sampled >= self.records:
            return f"{low:.1f} %: the sample has all records"
        most = f"up to {high:.1f} %" if pairs >= FEW_PAIRS else "more"
        return (
            f"{low:.1f} % in the sample, as memory and disk assume; {most} in the collection,\n"
            "            if copies are far apart: `report` counts them"
        )
