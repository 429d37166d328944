"""Times us and our peers from cleaned text to decision, in memory, in one process; scores what each keeps.

    python -m scripts.bench_peers --data DIR --tools DIR [--sets leetcode,medical_qa,reuters21578]
        [--peers "rensa RMinHash,gaoya MinHash"] [--runs 3] [--quick]

Data and tools are those of `bench_accuracy`.  No one talks to a database here: all are given the same
cleaned texts and answer with the rows that they keep.  Ours is `Deduplicator.add_all`, which cleans whatever
it is given once more; the MinHash peers are handed shingles, which are cut here and within their time.  Each
run is a process of its own, all that it needs loaded before the clock starts; figures are medians.
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
from scripts.measure import row, table
from scripts.peers import PEERS
from scripts.reference import Judge, TextSet, arguments, chosen, wanted

OURS = "**dedup-job**"


@dataclass(frozen=True, slots=True)
class Taken:
    """What one run kept, and what it took: seconds by the clock and by the processor, and the most memory."""

    rows: Sequence[int]
    seconds: float
    cpu: float
    peak: float


def our_rows(texts: Sequence[str]) -> list[int]:
    """Return the rows that we keep."""
    left_out = Deduplicator().add_all(enumerate(texts))
    return [row for row in range(len(texts)) if row not in left_out]


def taken(name: str, texts: Sequence[str]) -> Taken:
    """Run one of us on texts, with everything loaded; runs in a process of its own."""
    work = our_rows if name == OURS else PEERS[name]
    work(texts[:50])  # what is compiled or read from files once in a process is there then
    started, busy = time.perf_counter(), time.process_time()
    rows = work(texts)
    seconds, cpu = time.perf_counter() - started, time.process_time() - busy
    return Taken(rows, seconds, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def runs(name: str, given: Sequence[str], count: int) -> Iterator[Taken]:
    """Run one of us so often, each time in a fresh process."""
    for _ in range(count):
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            yield pool.submit(taken, name, given).result()


def compare(texts: TextSet, judge: Judge, args: argparse.Namespace) -> None:
    """Print a row for each of us on one set; what has no text is kept without asking."""
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
