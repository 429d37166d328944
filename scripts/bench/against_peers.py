"""Time the job and its peers from cleaned text to decision, in memory, and score the rows each keeps.

    python -m scripts.bench.against_peers --data DIR --tools DIR [--sets leetcode,medical_qa,reuters21578]
        [--peers "rensa RMinHash,gaoya MinHash"] [--runs 3] [--quick]

Data and tools are the same as for `scripts.bench.accuracy`. There is no database: all candidates get the
same cleaned texts, and return the rows that they keep. The job is `Deduplicator.add_all`, which cleans the
texts a second time. The MinHash peers get shingles; making these is part of their time. Each run is a
separate process with everything loaded before the clock starts; figures are medians.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from statistics import median

from dedup_job import Deduplicator
from scripts.bench.measure import row, table
from scripts.bench.peers import PEERS
from scripts.bench.reference import Judge, TextSet, arguments, chosen, wanted

OURS = "**dedup-job**"


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of one run: kept rows, seconds by the clock and by the processor, and peak memory."""

    rows: Sequence[int]
    seconds: float
    cpu: float
    peak: float


def our_rows(texts: Sequence[str]) -> list[int]:
    """Return the rows that the job keeps."""
    left_out = Deduplicator().add_all(enumerate(texts))
    return [row for row in range(len(texts)) if row not in left_out]


def taken(name: str, texts: Sequence[str]) -> Taken:
    """Run one candidate on texts, with everything loaded; call this in a separate process."""
    work = our_rows if name == OURS else PEERS[name]
    # Compiles code and reads files that are loaded once per process.
    work(texts[:50])
    started, busy = time.perf_counter(), time.process_time()
    rows = work(texts)
    seconds, cpu = time.perf_counter() - started, time.process_time() - busy
    return Taken(rows, seconds, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def runs(name: str, given: Sequence[str], count: int) -> Iterator[Taken]:
    """Run one candidate `count` times, each time in a fresh process."""
    for _ in range(count):
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            yield pool.submit(taken, name, given).result()


def compare(texts: TextSet, judge: Judge, args: argparse.Namespace) -> None:
    """Print a row for each candidate on one set; empty texts are kept without asking it."""
    given = texts.asked
    for name in (OURS, *args.peers):
        try:
            found = list(runs(name, given, args.runs))
        except ImportError as error:
            row(texts.name, name, f"{error.name} is not installed")
            continue
        score = judge.score(texts.kept(found[0].rows))
        rate, cpu = (median(len(given) / getattr(one, key) for one in found) for key in ("seconds", "cpu"))
        peak = median(one.peak for one in found)
        row(texts.name, name, rate, cpu, peak, f"{score.f1:.4f}", f"{score.recall:.4f}", score.wiped)


def main() -> None:
    """Run the benchmark and print its table."""
    parser = arguments(__doc__)
    parser.add_argument("--peers", type=chosen(*PEERS), default=list(PEERS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one run of one set")
    args = parser.parse_args()
    if args.quick:
        args.runs, args.sets = 1, args.sets[:1]
    table("set", "who", "documents/s", "documents/CPU s", "peak MB", "F1", "recall", "wiped out")
    for texts, judge in wanted(args):
        compare(texts, judge, args)


if __name__ == "__main__":
    main()
