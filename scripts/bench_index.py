"""Time the segment index on a stream with planted near-duplicates, beside other indexes where installed.

Times are CPU time of one core per fingerprint of the stream: look up, compare inside the batch, add what is
kept. Bytes are per fingerprint kept.

python scripts/bench_index.py --counts 1000000,10000000 --radius 3,7,11 --bits 64 --against faiss,simhash
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dedup_job.match.index import SegmentIndex, pairs_within
from dedup_job.match.keepers import Keepers, Recollection
from dedup_job.plan import Kept, RawIds
from dedup_job.ragged import Ragged

Fingerprints = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Trial:
    """One stream through one index."""

    name: str
    count: int
    radius: int
    bits: int
    batch: int
    uneven: bool


class Rival(Protocol):
    """What is measured: which rows lie near something added before, and the adding."""

    def near(self, fingerprints: Fingerprints) -> Flags: ...

    def add(self, fingerprints: Fingerprints) -> None: ...

    def nbytes(self) -> int: ...


class Ours:
    """The segment index, pairs inside the batch included."""

    def __init__(self, trial: Trial) -> None:
        self.index = SegmentIndex(trial.bits, trial.radius)
        self.radius = trial.radius

    def near(self, fingerprints: Fingerprints) -> Flags:
        inside = np.diff(pairs_within(fingerprints, self.radius).offsets) > 0
        return inside | (np.diff(self.index.within(fingerprints).offsets) > 0)

    def add(self, fingerprints: Fingerprints) -> None:
        self.index.add(fingerprints)

    def nbytes(self) -> int:
        return self.index.nbytes


class Faiss:
    """faiss IndexBinaryMultiHash with 16-bit maps and as many flips as our widest probe."""

    def __init__(self, trial: Trial) -> None:
        faiss: Any = importlib.import_module("faiss")
        faiss.omp_set_num_threads(1)
        maps = trial.bits // 16
        self.index = faiss.IndexBinaryMultiHash(trial.bits, maps, 16)
        self.index.nflip = trial.radius // maps
        self.radius = trial.radius

    def near(self, fingerprints: Fingerprints) -> Flags:
        limits, _, _ = self.index.range_search(fingerprints.view(np.uint8), self.radius + 1)
        return np.asarray(np.diff(limits) > 0)

    def add(self, fingerprints: Fingerprints) -> None:
        self.index.add(np.ascontiguousarray(fingerprints).view(np.uint8))

    def nbytes(self) -> int:
        return 0


class OneSimhash:
    """SimhashIndex of the `simhash` package."""

    def __init__(self, trial: Trial) -> None:
        self.simhash: Any = importlib.import_module("simhash")
        self.index = self.simhash.SimhashIndex([], f=trial.bits, k=trial.radius)
        self.index.log.disabled = True
        self.bits = trial.bits
        self.added = 0

    def value(self, row: Fingerprints) -> object:
        return self.simhash.Simhash(int.from_bytes(row.tobytes(), "little"), f=self.bits)

    def near(self, fingerprints: Fingerprints) -> Flags:
        return np.array([bool(self.index.get_near_dups(self.value(row))) for row in fingerprints])

    def add(self, fingerprints: Fingerprints) -> None:
        for row in fingerprints:
            self.index.add(str(self.added), self.value(row))
            self.added += 1

    def nbytes(self) -> int:
        return 0


RIVALS: dict[str, Callable[[Trial], Rival]] = {"ours": Ours, "faiss": Faiss, "simhash": OneSimhash}


def scattered(rows: npt.NDArray[np.uint64], words: int) -> Fingerprints:
    """Map row numbers to fixed pseudo-random words (splitmix64; Steele, Lea and Flood, OOPSLA 2014)."""
    z: Fingerprints = np.stack(
        [rows * np.uint64(words) + np.uint64(word + 1) for word in range(words)], axis=1
    )
    z *= np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def uneven(rows: npt.NDArray[np.uint64], words: int) -> Fingerprints:
    """Map row numbers to words as those of texts are: of four bits, one is 0 in three of four, one is 1.

    Two of them differ in 0.44 of their bits on the average.
    """
    some, others = scattered(rows, words), scattered(rows + np.uint64(1 << 40), words)
    seldom, often = np.uint64(0x4444_4444_4444_4444), np.uint64(0x8888_8888_8888_8888)
    made: Fingerprints = some & (others | ~seldom) | others & often
    return made


def stream(trial: Trial) -> Iterator[Fingerprints]:
    """Yield batches in which 3 rows of 10 copy one of the other 7, with up to `radius` bits flipped."""
    rng = np.random.default_rng(1)
    for start in range(0, trial.count, trial.batch):
        rows = np.arange(start, min(start + trial.batch, trial.count), dtype=np.uint64)
        planted = rows % 10 >= 7
        tens = rng.integers(0, start // 10 + 1, planted.sum(), dtype=np.uint64)
        rows[planted] = 10 * tens + rng.integers(0, 7, len(tens), dtype=np.uint64)
        prints = (uneven if trial.uneven else scattered)(rows, trial.bits // 64)
        flips = rng.integers(0, trial.radius + 1, len(rows))
        for k in range(trial.radius):
            hit = np.flatnonzero(planted & (flips > k))
            bit = rng.integers(0, trial.bits, len(hit), dtype=np.uint64)
            prints[hit, bit // np.uint64(64)] ^= np.uint64(1) << bit % np.uint64(64)
        yield prints


def decided(rival: Rival, trial: Trial) -> tuple[int, float, float]:
    """Decide a stream keep-first: records kept, CPU seconds in all, CPU seconds for one of the last batch."""
    kept, seconds, last = 0, 0.0, 0.0
    for prints in stream(trial):
        began = time.process_time()
        unique = prints[~rival.near(prints)]
        rival.add(unique)
        took = time.process_time() - began
        kept, seconds, last = kept + len(unique), seconds + took, took / len(prints)
    return kept, seconds, last


def measured(trial: Trial) -> str:
    """One line of figures."""
    make = RIVALS[trial.name]
    decided(make(trial), replace(trial, count=60_000))  # loads and compiles everything
    before = peak_rss()
    rival = make(trial)
    kept, seconds, last = decided(rival, trial)
    peak = peak_rss()
    held = rival.nbytes() or peak - before
    return (
        f"{trial.name:8}{trial.bits:5}{trial.radius:7}{trial.count:12,}{kept:12,}"
        f"{seconds / trial.count * 1e6:12.2f}{last * 1e6:12.2f}{held / kept:12.1f}{peak / 2**20:12.0f}"
    )


def peak_rss() -> int:
    """Return the most memory that this process has held at once, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def numbers(text: str) -> list[int]:
    """Read `3,7,11`."""
    return [int(part) for part in text.split(",")]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--counts", type=numbers, default=[1_000_000], help="fingerprints in the stream")
    parser.add_argument("--radius", type=numbers, default=[3])
    parser.add_argument("--bits", type=numbers, default=[64])
    parser.add_argument("--batch", type=int, default=1_000)
    parser.add_argument("--uneven", action="store_true", help="bits as uneven as those of real texts")
    parser.add_argument("--parts", action="store_true", help="the memory of keepers, part by part")
    parser.add_argument("--against", type=lambda text: text.split(","), default=[], help="faiss,simhash")
    return parser.parse_args()


def parts(count: int, bits: int, radius: int) -> str:
    """Fill keepers with ObjectIds and random texts; what each part of them holds."""
    keepers = Keepers(bits, radius, 0, Recollection(lambda _: {}, lambda _: none()))
    for start in range(0, count, 5_000):
        rows = np.arange(start, min(start + 5_000, count), dtype=np.uint64)
        ids = b"".join(b"\x16\0\0\0\x07_id\0" + row.to_bytes(12, "big") + b"\0" for row in rows.tolist())
        kept = Kept(
            ids=RawIds(np.arange(len(rows) + 1) * 22, np.frombuffer(ids, np.uint8)),
            bits=scattered(rows, bits // 64),
            near=np.ones(len(rows), np.bool_),
            prefixes=Ragged.empty(len(rows)),
            digests=scattered(rows + np.uint64(1 << 40), 2),
        )
        keepers.restore(kept)
        if start % 50_000 == 0:
            keepers.near(kept.bits[:1_000])
            keepers.with_text(kept.digests[:1])
    keepers.near(kept.bits[:1])
    keepers.with_text(kept.digests[:1])
    shown = ", ".join(f"{name} {nbytes / count:.1f}" for name, nbytes in keepers.parts.items() if nbytes)
    return (
        f"{count:,} of {bits} bits within {radius}: {keepers.nbytes / count:.1f} ({shown}); {keepers.layout}"
    )


def none() -> Any:
    """Return nothing: no text is asked for."""
    raise AssertionError


def main() -> None:
    """Run each trial in a process of its own, so that its peak memory is its own."""
    options = arguments()
    names = ("index", "bits", "radius", "stream", "kept", "us each", "us at end", "bytes each", "peak MB")
    print("{:8}{:>5}{:>7}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}".format(*names))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        for setting in product(["ours", *options.against], options.counts, options.radius, options.bits):
            print(pool.submit(measured, Trial(*setting, options.batch, options.uneven)).result(), flush=True)
        if options.parts:
            print("\nbytes a record of all that stays in memory")
            for count, bits, radius in product(options.counts, options.bits, options.radius):
                print(pool.submit(parts, count, bits, radius).result(), flush=True)


if __name__ == "__main__":
    main()
