"""Compile everything that a run needs, once: decide some made-up records in memory. `make install` runs it.

    python -m scripts.dev.compile

The compiled code is cached (`dedup_job/native/compiled.py`), so the first run is as fast as later runs.
"""

from __future__ import annotations

from bson import encode

from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.recipe import Matching, Reader, Recipe
from dedup_job.index.keepers import KeeperRefetch, Keepers
from dedup_job.pipeline import job
from dedup_job.records import Batch
from dedup_job.text.fields import TextFields
from scripts.bench.corpus import generate

# Enough records that the maps of the index are rebuilt in between.
RECORDS, A_BATCH = 3_000, 500


def main() -> None:
    """Decide the records in batches, with keepers whose texts are fetched again."""
    recipe = Recipe(Reader(TextFields(("data",))), 64, Matching())
    fingerprint = Fingerprinter(recipe)
    raws = {encode({"_id": record["_id"]}): encode(record) for record in generate(RECORDS)}
    keepers = Keepers(recipe, 0, KeeperRefetch(lambda ids: [{one: raws[one] for one in ids}], fingerprint))
    for number in range(0, RECORDS, A_BATCH):
        ids = list(raws)[number : number + A_BATCH]
        batch = Batch(ids, [raws[raw_id] for raw_id in ids])
        job.decide_in_memory(batch, fingerprint(batch.raws), recipe.matching, keepers)


if __name__ == "__main__":
    main()
