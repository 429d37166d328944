"""A worker without memory: it says so, and no record gets a verdict for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dedup_job.errors import exit_code_of, is_shortage

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limit is read from /proc")

# Works on the same records in one child for each limit, and prints what came of each.
UNDER_LIMITS = """
import json, os, resource, sys
from pathlib import Path
from bson import encode
from dedup_job.pipeline import worker_tasks as worker
from dedup_job.mongo.ids import document
from dedup_job.mongo.ids import elements
from tests.support.recipes import recipe_of

def record(number):
    words = " ".join(f"第{number * 7 + n}句 word{number * n % 97}" for n in range(3_000))
    markup = f"<table><tr><td><b>{words}</b></table><svg><desc>{words}</svg>"
    fields = elements(encode({"_id": number, "text": markup}))
    return document(fields, elements(encode({"text": "again"})) if number % 5 == 0 else b"")

def outcome(room):
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + room, hard))
    try:
        prints = worker.work(raws)
    except MemoryError:
        return "short"
    return [prints.reasons, prints.bits.tolist(), prints.keys.tolist(), prints.shingles.values.tolist()]

raws = [record(number) for number in range(12)]
worker.begin(recipe_of("text"))
_, hard = resource.getrlimit(resource.RLIMIT_AS)
right = None
for room in (1 << 30, *range(0, 240 << 20, 12 << 20)):
    reading, writing = os.pipe()
    if os.fork() == 0:
        got = outcome(room)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        os.write(writing, (got if got == "short" else str(hash(json.dumps(got)))).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as answer:
        said = answer.read() or "died"
    os.wait()
    right = right or said
    print("right" if said == right and said not in ("short", "died") else said)
"""


def printed(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.long
def test_a_worker_under_any_limit_of_memory_gives_the_right_answer_or_none() -> None:
    outcomes = printed(UNDER_LIMITS)
    assert len(outcomes) == 21
    assert outcomes[0] == "right"
    assert set(outcomes) == {"right", "short"}


# bson turns the MemoryError into an InvalidBSON without a message; the record is sound.
HIDDEN = """
import os, resource, sys
from pathlib import Path
from bson import encode
from dedup_job.text.fields import TextFields
from dedup_job.mongo.ids import document
from dedup_job.mongo.ids import elements

once = elements(encode({"text": "x" * (64 << 20)}))
raw = document(once, elements(encode({"text": ""}))) if sys.argv[1:] else document(once)
size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
resource.setrlimit(resource.RLIMIT_AS, (size + (16 << 20),) * 2)
try:
    print(TextFields(("text",)).texts_of([raw])[0].reason)
except MemoryError:
    print("short")
"""


@pytest.mark.parametrize("arguments", [[], ["with the field twice"]])
def test_a_shortage_that_bson_hides_is_no_property_of_the_record(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN, *arguments], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == "short\n"


def test_each_way_in_which_memory_is_short_ends_with_74() -> None:
    from bson.errors import InvalidBSON

    shortages = [
        MemoryError(),
        InvalidBSON(""),
        RuntimeError("can't start new thread"),
        OSError(12, "Cannot allocate memory"),
        BlockingIOError(11, "Resource temporarily unavailable"),
        ImportError("libx.so: failed to map segment from shared object"),
    ]
    assert [exit_code_of(error) for error in shortages] == [74] * len(shortages)
    assert not any(map(is_shortage, [InvalidBSON("bad"), RuntimeError("x"), OSError(2, "no"), ImportError()]))
