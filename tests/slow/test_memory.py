"""Memory does not grow with the size of records: a command holds some of them at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.support.job import Job

pytestmark = pytest.mark.long

MEGABYTE = 1 << 20
MOST = 512 * MEGABYTE  # more than for tiny records
HAN = [chr(code) for code in range(0x4E00, 0x5E00)]


class Kind(NamedTuple):
    """So many records of so many bytes, with texts of so many characters; each has a small near-duplicate."""

    records: int
    nbytes: int
    characters: int


TINY = [Kind(20, 1_000, 100)]
LARGE = [
    Kind(40, 4 * MEGABYTE, 400),
    Kind(10, 16 * MEGABYTE - 1_000, 400),
    Kind(12, 4 * MEGABYTE, 990_000),
]


def texts_of(kinds: Sequence[Kind]) -> Iterator[tuple[str, int]]:
    """Yield the text of each record, and how many bytes the record has."""
    random = Random(1)
    for kind in kinds:
        for _ in range(kind.records):
            yield "".join(random.choices(HAN, k=kind.characters)), kind.nbytes


def held(job: Job, *arguments: str) -> int:
    """Run a command, which must end well, and return the most bytes that it held."""
    done = job.command(*arguments, "--json", program=("-m", "tests.support.measure_memory"))
    assert done.returncode == 0, done.stderr
    return int(done.stderr.splitlines()[-1])


def held_by_all(job: Job, kinds: Sequence[Kind]) -> dict[str, int]:
    """Decide records, then their near-duplicates by a run that has no text at hand; audit; undo both."""
    texts = list(texts_of(kinds))
    for number, (text, nbytes) in enumerate(texts):
        job.source.insert_one({"_id": number, "text": text, "rest": "x" * (nbytes - len(text.encode()))})
    most = {"backfill": held(job, "backfill")}
    for number, (text, _) in enumerate(texts, len(texts)):
        job.source.insert_one({"_id": number, "text": text[: -(len(text) // 30)]})
    most["run"] = held(job, "run")
    assert job.target.count_documents({}) == len(texts)
    assert job.ledger("dropped").count_documents({"reason": "near"}) == len(texts)
    most["verify"], most["changes"] = held(job, "verify"), held(job, "changes", "--content")
    for name in ("run", "backfill"):
        row = job.ledger("runs").find_one({"mode": name})
        assert row is not None
        most[f"undo of {name}"] = held(job, "undo", row["_id"], "--yes")
    assert job.target.count_documents({}) == 0
    return most


@pytest.mark.longest
@pytest.mark.skipif(not Path("/proc").exists(), reason="only Linux says how much memory a process has held")
def test_the_size_of_records_adds_less_than_512_mb(job: Job) -> None:
    job.set("limits", batch_records=2_000)
    tiny = held_by_all(job, TINY)
    for name in job.database.list_collection_names():
        job.database.drop_collection(name)
    large = held_by_all(job, LARGE)
    more = {name: (large[name] - tiny[name]) // MEGABYTE for name in tiny}
    assert max(more.values()) < MOST // MEGABYTE, more
