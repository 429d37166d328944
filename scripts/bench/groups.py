"""Check on real sets that `[match] within` decides as one job for each group does, and time it.

    python -m scripts.bench.groups --data DIR [--sets leetcode,medical_qa,reuters21578] [--batch 2000]
        [--quick]

`DIR/SET/docs.jsonl.gz` has the records of a set (`_id`, `data`). All sets are put into one collection in
random order, with the name of the set as the group, and decided in memory: once with `within = ["set"]`, and
once each set alone without the setting. The table counts records with another verdict, keeper, distance or
similarity. A second table has the processor seconds of all records together, with and without the setting,
from the raw record to the verdict, at best of three.

A third table checks references: half A of a set and then half B are decided, and B alone with the unique
records of A as its reference. It counts the records of B that are decided differently.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bson import encode

from dedup_job.config import check_settings
from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.index.keepers import Keepers
from dedup_job.pipeline.job import decide_in_memory, make_plan
from dedup_job.recipe_from_settings import make_recipe
from dedup_job.records import UNIQUE, Batch, Verdict, chunked
from scripts.bench.measure import row, table

SETS = "leetcode,medical_qa,reuters21578"
# Records of each set with --quick.
FEW = 3_000

Records = Sequence[tuple[bytes, bytes]]


def recipe_of(**match: Any) -> Recipe:
    """Return the recipe of the sets' records, with these settings in `[match]`."""
    source = {"database": "d", "collection": "c", "fields": ["data"]}
    return make_recipe(
        check_settings(
            {"source": source, "target": {"database": "d", "collection": "u"}, "match": match}, "bench"
        )
    )


def read_set(folder: Path, name: str, most: int | None) -> list[tuple[bytes, bytes]]:
    """Return the raw ids and raw records of a set."""
    with gzip.open(folder / name / "docs.jsonl.gz", "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line, _ in zip(lines, range(most or 1 << 60), strict=False)]
    return [
        (encode({"_id": f"{name} {number}"}), encode({"data": document["data"], "set": name}))
        for number, document in enumerate(documents)
    ]


def decide(recipe: Recipe, records: Records, batch: int) -> tuple[dict[bytes, Verdict], float]:
    """Decide records in order; return the verdicts by raw id, and the processor seconds."""
    fingerprint = Fingerprinter(recipe)
    keepers = Keepers(recipe, 1 << 40)
    verdicts: dict[bytes, Verdict] = {}
    started = time.process_time()
    for first in range(0, len(records), batch):
        ids, raws = zip(*records[first : first + batch], strict=True)
        plan = decide_in_memory(Batch(ids, raws), fingerprint(raws), recipe.matching, keepers)
        verdicts |= zip(ids, plan.verdicts, strict=True)
    return verdicts, time.process_time() - started


def decide_against(recipe: Recipe, reference: Records, records: Records, batch: int) -> dict[bytes, Verdict]:
    """Decide records in order, with all records of a reference kept before."""
    fingerprint = Fingerprinter(recipe)
    keepers = Keepers(recipe, 1 << 40)
    for some in chunked(reference, batch):
        ids, raws = zip(*some, strict=True)
        read, prints = Batch(ids, raws), fingerprint(raws)
        plan = make_plan(read, prints, [UNIQUE] * len(read))
        keepers.load_plan(plan.texts)
        judged = np.flatnonzero(prints.digests.any(axis=1))
        keepers.cache_shingles(
            keepers.find_texts(prints.digests[judged]), prints.shingles.take(judged.tolist())
        )
    verdicts: dict[bytes, Verdict] = {}
    for some in chunked(records, batch):
        ids, raws = zip(*some, strict=True)
        plan = decide_in_memory(Batch(ids, raws), fingerprint(raws), recipe.matching, keepers)
        verdicts |= zip(ids, plan.verdicts, strict=True)
    return verdicts


def compare_reference(name: str, records: Records, batch: int) -> None:
    """Decide half of a set against the other half, and print a row."""
    plain, middle = recipe_of(), len(records) // 2
    first, second = records[:middle], records[middle:]
    in_turn, _ = decide(plain, records, batch)
    kept = [record for record in first if in_turn[record[0]].match is None]
    found = decide_against(plain, kept, second, batch)
    dropped = sum(verdict.match is not None for verdict in found.values())
    row(name, len(kept), len(second), dropped, sum(found[raw_id] != in_turn[raw_id] for raw_id, _ in second))


def main() -> None:
    """Decide the sets together and alone, and print three tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--batch", type=int, default=2_000)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    names = options.sets.split(",")
    sets = {name: read_set(options.data, name, FEW if options.quick else None) for name in names}
    together = [record for records in sets.values() for record in records]
    random.Random(1).shuffle(together)
    plain, within = recipe_of(), recipe_of(within=["set"])
    decide(within, together[:100], 50)
    found, _ = decide(within, together, options.batch)
    table("set", "records", "dropped", "decided differently")
    for name, records in sets.items():
        ids = {raw_id for raw_id, _ in records}
        alone, _ = decide(plain, [record for record in together if record[0] in ids], options.batch)
        dropped = sum(verdict.match is not None for verdict in alone.values())
        different = sum(found[raw_id] != verdict for raw_id, verdict in alone.items())
        row(name, len(records), dropped, different)
    print()
    table("records", "CPU without within, s", "CPU with within, s")
    # In turn, as the machine may be faster at one time than at another.
    seconds = [[decide(recipe, together, options.batch)[1] for recipe in (plain, within)] for _ in range(3)]
    row(len(together), *map(min, zip(*seconds, strict=True)))
    print()
    table("set", "in the reference", "records", "dropped", "decided differently")
    for name, records in sets.items():
        random.Random(2).shuffle(records)
        compare_reference(name, records, options.batch)


if __name__ == "__main__":
    main()
