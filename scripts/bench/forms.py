"""Measure the cost of form texts, which all share some keys, MongoDB to MongoDB.

    python -m scripts.bench.forms [--thirty 300000] [--one 100000] [--copies 60000] [--runs 3] [--quick]

Three questions, each with the default settings; a question with 0 records is skipped:

thirty: Thirty forms of 100 words, with six fields of three words. A varying number of fields is filled in, so
that similarities within a form are about 0.6 to 0.9. Does a record take more CPU when more records are
decided? The workers run ahead of the deciding process, and their work per record is constant, so their CPU is
the mean of the run, including their start.

one: One form of 60 words with three such fields, all filled in at random, so that similarities are about 0.67
and all records are kept; compared with ordinary texts of 60 words, in turn: ratios of seconds, memory and
CPU.

copies: The same form; 5 % of the records are copies of an earlier record with one word changed. How many of
these copies are found?
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import median

from scripts.bench.findings import kept_of, near_findings
from scripts.bench.made_up import Collection, Forms, Pages, refill
from scripts.bench.measure import MB, Usage, job_commands, row, table
from scripts.bench.watched_job import backfill
from scripts.dev.local_mongod import Server, open_server

THIRTY = Collection(Forms(), copies=0)
ONE_FORM = Forms(forms=1, words_each=60, fields=3, least=1.0, most=1.0)
ONE = Collection(ONE_FORM, copies=0)
ORDINARY = Collection(Pages(words_each=60, spread=0, english=0), copies=0)
CHANGED = Collection(ONE_FORM, copies=0.05, near=1.0, apart=ONE_FORM.words_each)
# Near copies whose similarity is computed.
SAMPLE = 20_000


def ask_thirty(server: Server, count: int) -> None:
    """Decide records of thirty forms, and print the cost of each tenth of them."""
    refill(server.uri, THIRTY, count)
    print(f"\n{count:,} records of thirty forms\n")
    _, stretches = backfill(server, count // 10, lambda stretches: None)
    first, last = stretches[0], stretches[-1]
    workers = 1e6 * last.end.workers / count
    table("decided", "in the index", "documents/s", "CPU us a record, deciding", "with the workers'")
    for one in stretches:
        row(one.end.decided, one.end.indexed, one.rate, one.cpu, one.cpu + workers)
    ratios = (last.rate / first.rate, last.cpu / first.cpu, (last.cpu + workers) / (first.cpu + workers))
    row("last against first, times", "", *ratios)


def ask_one(server: Server, count: int, runs: int) -> None:
    """Decide records of one form and ordinary records in turn; print both, and the ratios."""
    forms, others = [], []
    for _ in range(runs):
        forms.append(decided(server, ONE, count))
        others.append(decided(server, ORDINARY, count))
    print(f"\n{count:,} records of one form, and as many ordinary ones: medians of {runs}\n")
    table("texts", "seconds", "CPU s", "peak MB", "kept")
    show_runs("one form", forms)
    show_runs("ordinary", others)
    pairs = [(form, other) for (form, _), (other, _) in zip(forms, others, strict=True)]
    ratios = [(f.seconds / o.seconds, f.cpu / o.cpu, f.peak / o.peak) for f, o in pairs]
    columns = list(zip(*ratios, strict=True))
    row("one form against ordinary, times", *map(median, columns), "")
    row("from pair to pair", *(f"{min(column):.2f} to {max(column):.2f}" for column in columns), "")


def decided(server: Server, collection: Collection, count: int) -> tuple[Usage, int]:
    """Fill the source and decide it; return the usage of the job, and the number of kept records."""
    refill(server.uri, collection, count)
    with job_commands(server) as commands:
        usage, report = commands.run("backfill")
    return usage, report["unique"]


def show_runs(name: str, runs: Sequence[tuple[Usage, int]]) -> None:
    """Print the medians of some runs."""
    usage = Usage.median([usage for usage, _ in runs])
    row(name, usage.seconds, usage.cpu, usage.peak / MB, runs[-1][1])


def ask_copies(server: Server, count: int) -> None:
    """Decide records of one form with copies among them, and print how many copies were found."""
    decided(server, CHANGED, count)
    print(f"\n{count:,} records of one form, 5 % of them copies with one word changed\n")
    table("planted", "records", "found", "share")
    for one in near_findings(CHANGED, kept_of(server.uri, count), SAMPLE):
        row(one.kind, one.records, one.found, f"{one.share:.5f}")


def main() -> None:
    """Ask the questions and print their tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--thirty", type=int, default=300_000, metavar="RECORDS")
    parser.add_argument("--one", type=int, default=100_000, metavar="RECORDS")
    parser.add_argument("--copies", type=int, default=60_000, metavar="RECORDS")
    parser.add_argument("--runs", type=int, default=3, help="of `one`")
    parser.add_argument("--quick", action="store_true", help="5,000 records for each question, one run")
    args = parser.parse_args()
    if args.quick:
        args.thirty = args.one = args.copies = 5_000
        args.runs = 1
    with open_server() as server:
        if args.thirty:
            ask_thirty(server, args.thirty)
        if args.one:
            ask_one(server, args.one, args.runs)
        if args.copies:
            ask_copies(server, args.copies)


if __name__ == "__main__":
    main()
