"""Measure how `dedup-job backfill` scales with workers, with text length, and with the share of copies.

    python -m scripts.bench.scaling [--lengths 100,1000,10000] [--duplicates 0,30,90] [--workers 1,2]
        [--megabytes 20] [--quick]

Documents/s are a run's own figures, MongoDB to MongoDB, on this machine's processors. The gain from more
workers is computed from two figures: the rate of one worker, and the rate of the deciding process when it
never waits for a fingerprint. That process still reads, packs the records for a worker, unpacks a worker's
answer, decides and commits. It is the upper limit, so workers beyond its rate gain nothing.
"""

from __future__ import annotations

import argparse
import os
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from pymongo import MongoClient

from dedup_job import config
from dedup_job.commands.backfill_and_run import decide
from dedup_job.mongo.pages import Window
from dedup_job.pipeline.command_context import Context
from dedup_job.pipeline.fingerprint_workers import FingerprintWorkers
from dedup_job.records import Batch, Fingerprints
from scripts.bench.corpus import Mix, generate
from scripts.bench.measure import Commands, fill, forget, job_commands, numbers, row, table
from scripts.dev.local_mongod import open_server

SIMULATED = (4, 8, 16, 32)
FEWEST = 1_000


@dataclass(frozen=True, slots=True)
class Parent:
    """The deciding process alone: documents/s by the clock, and its processor microseconds per document."""

    rate: float
    cpu: float


class Answers(FingerprintWorkers):
    """An engine that has all fingerprints already; it still packs records and unpacks answers."""

    def __init__(self, engine: FingerprintWorkers, answers: Sequence[bytes]) -> None:
        self._engine, self._answers = engine, answers

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def fingerprint_batches(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Fingerprints]]:
        for batch, answer in zip(batches, self._answers, strict=True):
            pickle.dumps(batch.raws)
            yield batch, pickle.loads(answer)

    def fingerprint(self, raws: Sequence[bytes]) -> Fingerprints:
        return self._engine.fingerprint(raws)


class PartsWithAnswers(Context):
    """The parts of a run, with a given engine."""

    answers: FingerprintWorkers | None = None

    def engine(self) -> FingerprintWorkers:
        return self.answers or super().engine()


def parent_alone(settings: Path) -> Parent:
    """Run a backfill in this process with all fingerprints computed in advance."""
    with PartsWithAnswers(config.load_settings(settings)) as context, context.engine() as engine:
        batches = context.source.batches(Window())
        answers = [pickle.dumps(prints) for _, prints in engine.fingerprint_batches(batches)]
        context.answers = Answers(engine, answers)
        started, busy = perf_counter(), process_time()
        report = decide(context, "backfill", lambda plan: None)
        seconds, cpu = perf_counter() - started, process_time() - busy
    return Parent(report.counts.read / seconds, 1e6 * cpu / report.counts.read)


def measure(length: int, copies: int, commands: Commands, args: argparse.Namespace) -> None:
    """Fill the source and print its row."""
    count = max(FEWEST, args.megabytes * 1_000_000 // (2 * length))
    mix = Mix(length=length, spread=0.0, duplicates=copies / 100, templates=0.0, odd=0.0)
    with MongoClient[dict[str, Any]](commands.server.uri) as client:
        fill(generate(count, mix=mix), client)
        rates = []
        for workers in args.workers:
            forget(client)
            _, report = commands.run("backfill", "--workers", str(workers))
            rates.append(report["docs_per_second"])
        forget(client)
        _, told = commands.run("estimate", "--workers", "1", "--sample", str(min(count, 2_000)))
        # A first run loads all code.
        parent_alone(commands.settings)
        forget(client)
        parent = parent_alone(commands.settings)
    alone = told["rates"]["fingerprinting_and_deciding"]
    simulated = [min(parent.rate, workers * alone) for workers in SIMULATED]
    row(length, copies, count, *rates, alone, parent.rate, parent.cpu, parent.rate / alone, *simulated)


def header(workers: Sequence[int]) -> list[str]:
    """Return the columns of the table."""
    return [
        *("characters", "copies, %", "documents"),
        *(f"{one} workers" if one > 1 else "1 worker" for one in workers),
        *("a worker alone", "parent alone", "its CPU, us each", "workers that fill it"),
        *(f"{one} workers, worked out" for one in SIMULATED),
    ]


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", type=numbers, default=[100, 1_000, 10_000])
    parser.add_argument("--duplicates", type=numbers, default=[0, 30, 90])
    parser.add_argument("--workers", type=numbers, default=[1, 2])
    parser.add_argument("--megabytes", type=int, default=20, help="of text in each collection, about")
    parser.add_argument("--quick", action="store_true", help="one length, 2 MB")
    args = parser.parse_args()
    if args.quick:
        args.lengths, args.megabytes = [1_000], 2
    print("documents/s\n")
    table(*header(args.workers))
    with open_server() as server, job_commands(server) as commands:
        os.environ["DEDUP_SOURCE_URI"] = server.uri
        for length in args.lengths:
            for copies in args.duplicates:
                measure(length, copies, commands, args)


if __name__ == "__main__":
    main()
