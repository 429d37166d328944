"""Time the start of a nightly run, up to its first decision, with a ledger of many made-up records.

Writes plans of 5,000 unique records each into its own mongod, loads them as a nightly run does, and searches
for the first thousand fingerprints and texts. CPU seconds are of this process, without mongod; memory limits
are the same as in the command.

    python -m scripts.bench.start --counts 1000000,5000000
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

import numpy as np
from bson import encode
from bson.objectid import ObjectId
from pymongo import MongoClient
from pymongo.collection import Collection

from dedup_job.fingerprint.recipe import Matching, Recipe
from dedup_job.index.keepers import Keepers
from dedup_job.ledger.head import Head
from dedup_job.ledger.plan_format import PlanId, StoredPlan, pack
from dedup_job.ledger.reader import LedgerReader
from dedup_job.mongo.pages import Window, since
from dedup_job.pipeline import measure_and_limit_memory
from dedup_job.pipeline.load_keepers_and_scan_source import load_keepers
from dedup_job.records import BACKFILL, UNIQUE, Counts, Plan
from dedup_job.run_and_exit import LARGE
from dedup_job.text.extract_and_clean import Reader
from dedup_job.text.fields import TextFields
from scripts.bench.index import scattered
from scripts.bench.index_memory import keepers_bytes
from scripts.bench.measure import numbers
from scripts.dev.local_mongod import LocalMongod

A_PLAN = 5_000
FIRST = datetime(2020, 1, 1, tzinfo=UTC)


def stored(number: int, matching: Matching) -> StoredPlan:
    """Return a made-up plan: one record per second, all unique."""
    rows = np.arange(number * A_PLAN, (number + 1) * A_PLAN, dtype=np.uint64)
    start = int(FIRST.timestamp())
    ids = [encode({"_id": ObjectId((start + row).to_bytes(4, "big") + bytes(8))}) for row in rows.tolist()]
    digests, near = scattered(rows + np.uint64(1 << 40), 2), np.ones(A_PLAN, np.bool_)
    keys = scattered(rows + np.uint64(1 << 41), matching.bands).astype(np.uint32)
    plan = Plan(ids, [UNIQUE] * A_PLAN, scattered(rows, 1), near, keys, digests, digests)
    previous = PlanId(number - 1, 1) if number else None
    return StoredPlan(PlanId(number, 1), previous, "made-up", BACKFILL, FIRST, plan)


def written(collection: Collection[dict[str, object]], plans: range, matching: Matching) -> None:
    """Write these plans."""
    packed = (pack(stored(number, matching)) for number in plans)
    while some := list(islice(packed, 16)):
        collection.insert_many(some)


def head(plans: int) -> Head:
    """Return the head of a ledger with this many plans."""
    last, counts = PlanId(plans - 1, 1), Counts(unique=plans * A_PLAN)
    return Head("made-up", {}, "", 1, None, None, FIRST, None, last, plans, counts)


def phases(reader: LedgerReader, plans: int, recipe: Recipe) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield the name of each step before a batch can be decided, with its seconds and CPU seconds."""
    marks = [(time.perf_counter(), time.process_time())]

    def passed() -> tuple[float, float]:
        marks.append((time.perf_counter(), time.process_time()))
        return marks[-1][0] - marks[-2][0], marks[-1][1] - marks[-2][1]

    keepers = Keepers(recipe, 0)
    window = since(FIRST + timedelta(seconds=plans * A_PLAN), timedelta(hours=48), only_object_ids=True)
    window = window.without(load_keepers(reader, head(plans), keepers, []))
    yield "the ledger is taken in", passed()
    texts = stored(plans, recipe.matching).plan.texts
    keepers.candidates(keepers.add_texts(texts.ids, texts).texts, texts.keys)
    nbytes = sum(keepers_bytes(keepers).values())
    yield f"a first batch is looked up ({nbytes / keepers.texts:.1f} bytes a record)", passed()
    Window().without(reader.plan_columns(head(plans)))
    yield "all its ids are left out, where they hold no time", passed()


def main() -> None:
    """Write the ledgers and time each; the smaller ledgers are prefixes of the larger."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", type=numbers, default=[1_000_000], help="records in the ledger")
    options = parser.parse_args()
    recipe = Recipe(Reader(TextFields(("data",))), 64, Matching())
    measure_and_limit_memory.work_in_batches(LARGE)
    print("| records | until | seconds | CPU seconds | CPU us a record | 50 M, extrapolated: CPU seconds |")
    print("|---|---|---|---|---|---|")
    with LocalMongod() as server, MongoClient[dict[str, object]](server.uri, tz_aware=True) as client:
        there = 0
        for count in sorted(options.counts):
            plans = count // A_PLAN
            written(client["ledger"]["unique.dedup.plans"], range(there, plans), recipe.matching)
            there = plans
            reader = LedgerReader(client["ledger"], "unique")
            for what, (seconds, cpu) in phases(reader, plans, recipe):
                each = f"{cpu / count * 1e6:.2f} | {cpu / count * 5e7:.0f}"
                print(f"| {count:,} | {what} | {seconds:.2f} | {cpu:.2f} | {each} |", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\npeak memory {peak:,.0f} MB")


if __name__ == "__main__":
    main()
