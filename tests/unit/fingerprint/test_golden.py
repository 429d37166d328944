"""Golden decisions: a whole collection of real texts is decided as it always was.

The texts are not part of the project; only the digest of what was decided is.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from bson import encode

from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.index.keepers import Keepers
from dedup_job.pipeline.job import decide_in_memory
from dedup_job.records import Batch, Counts
from tests.support.recipes import recipe_of

LEETCODE = Path(__file__).parents[4] / "shared" / "data" / "leetcode" / "docs.jsonl.gz"
RECORDS = 18_082
DECIDED = "f25e159925bb87939e1222174905a3a87137c61bd95133b7a360b8bafd354097"


def batches(records: int) -> Iterator[Batch]:
    with gzip.open(LEETCODE, "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    for first in range(0, len(documents), records):
        some = documents[first : first + records]
        yield Batch([encode({"_id": document["_id"]}) for document in some], [*map(encode, some)])


@pytest.mark.skipif(not LEETCODE.exists(), reason="needs the reference texts beside the project")
def test_leetcode_is_decided_as_it_always_was() -> None:
    recipe = recipe_of("data")
    fingerprint = Fingerprinter(recipe)
    keepers = Keepers(recipe, 256 << 20)
    decided, counts = hashlib.sha256(), Counts()
    for batch in batches(2_000):
        prints = fingerprint(batch.raws)
        plan = decide_in_memory(batch, prints, recipe.matching, keepers)
        counts += plan.counts
        for raw_id, verdict in zip(batch.ids, plan.verdicts, strict=True):
            match = verdict.match and (verdict.match.keeper, verdict.match.distance, verdict.match.similarity)
            decided.update(repr((raw_id, verdict.action.name, verdict.reason, match)).encode())
    assert (counts.unique, counts.exact, counts.near) == (11_484, 3_060, 3_538)
    assert decided.hexdigest() == DECIDED
