"""Scores the job, the usual job and its peers by what they keep of real texts, and prints one table.

    python -m scripts.bench_accuracy --data DIR --tools DIR [--sets leetcode,medical_qa,reuters21578]
        [--profiles default,thorough,classic] [--peers "the usual job,rensa RMinHash"] [--workers 1]

DIR/SET/docs.jsonl.gz holds the records of a set (`_id`, `data`), DIR/SET/gt_jaccard.tsv.gz the similarity of
its pairs; the tools are `score_kept.py`, which judges everyone, and `seed_baseline.py`, the usual job.

All decide keep-first in `_id` order.  The job runs end to end, from a MongoDB collection of raw records to a
target collection, and its whole process is timed, start and HTML included.  The peers and the usual job are
timed in memory, from the text to the rows kept: no start, no database, and no HTML but where it says raw.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from dedup_job.fingerprint.profile import PROFILES, default
from scripts.local_mongod import open_server
from scripts.measure import DATABASE, SETTINGS, documents, fill, watched
from scripts.peers import PEERS
from scripts.reference import Judge, Score, TextSet, arguments, chosen, wanted

SET_HEADER = """\
| set | records | median letters | near pairs |
|---|---|---|---|"""
HEADER = """
| set | who | recall | precision | F1 | near recall | wiped out | documents/s |
|---|---|---|---|---|---|---|---|"""


@dataclass(frozen=True, slots=True)
class Kept:
    """What somebody kept of a set, and the seconds that it took."""

    ids: Sequence[str]
    seconds: float


def our_job(uri: str, profile: str, workers: str, texts: TextSet) -> Kept:
    """Run `dedup-job backfill` as a process of its own; the collection is loaded before the clock starts."""
    with tempfile.TemporaryDirectory() as folder, MongoClient[dict[str, Any]](uri) as client:
        settings = Path(folder) / "bench.toml"
        settings.write_text(SETTINGS.format(profile=profile))
        fill(documents(texts.file), client)
        command = [sys.executable, "-m", "dedup_job", "backfill", "-c", str(settings), "--json"]
        usage, _ = watched([*command, "--workers", workers], {**os.environ, "DEDUP_SOURCE_URI": uri})
        return Kept([record["_id"] for record in client[DATABASE].unique.find({}, {"_id": 1})], usage.seconds)


def usual_job(script: Path, given: Callable[[TextSet], Iterable[str]], texts: TextSet) -> Kept:
    """Run the usual job as a process of its own on some form of the texts; it times itself, in memory."""
    with tempfile.TemporaryDirectory() as folder:
        file, kept = Path(folder) / "docs.jsonl.gz", Path(folder) / "kept.txt"
        with gzip.open(file, "wt", encoding="utf-8", compresslevel=1) as lines:
            for key, text in zip(texts.ids, given(texts), strict=True):
                lines.write(json.dumps({"_id": key, "data": text}) + "\n")
        command = [sys.executable, str(script), str(file), "--kept", str(kept)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return Kept(kept.read_text("utf-8").splitlines(), json.loads(done.stdout)["seconds"])


def without_angles(texts: TextSet) -> Iterator[str]:
    """Yield the cleaned texts without `<` and `>`, which the usual job would take for tags."""
    return (text.replace("<", " ").replace(">", " ") for text in texts.texts)


USUAL: dict[str, Callable[[TextSet], Iterable[str]]] = {
    "the usual job on raw records": lambda texts: texts.raw,
    "the usual job": without_angles,
}


def peer(name: str, texts: TextSet) -> Kept:
    """Run a peer in a fresh process; what has no text is kept without asking it."""
    asked = [row for row, text in enumerate(texts.texts) if text]
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        given = [texts.texts[row] for row in asked]
        rows, seconds = pool.submit(_timed_rows, name, given, default(texts.calibration).shingle).result()
    spared = set(range(len(texts.ids))).difference(asked)
    return Kept([texts.ids[row] for row in sorted(spared.union(asked[row] for row in rows))], seconds)


def _timed_rows(name: str, texts: Sequence[str], length: int) -> tuple[list[int], float]:
    PEERS[name](texts[:10], length)  # imports and dictionaries are loaded before the clock starts
    started = time.perf_counter()
    rows = PEERS[name](texts, length)
    return rows, time.perf_counter() - started


def set_row(texts: TextSet, judge: Judge) -> str:
    """Return a line of the table of sets."""
    letters = texts.calibration.median_length
    return f"| {texts.name} | {len(texts.ids):,} | {letters} | {len(judge.near_pairs):,} |"


def row(name: str, who: str, score: Score, rate: float) -> str:
    """Return a line of the table."""
    return (
        f"| {name} | {who} | {score.recall:.4f} | {score.precision:.4f} | {score.f1:.4f} | {score.near:.4f} "
        f"| {score.wiped:,} | {rate:,.0f} |"
    )


def contestants(args: argparse.Namespace, uri: str) -> Iterator[tuple[str, Callable[[TextSet], Kept]]]:
    """Yield who takes part, by name, and how each is run on a set."""
    for profile in args.profiles:
        yield f"**dedup-job, {profile}**", partial(our_job, uri, profile, args.workers)
    for name in args.peers:
        script = args.tools / "seed_baseline.py"
        yield name, partial(usual_job, script, USUAL[name]) if name in USUAL else partial(peer, name)


def main() -> None:
    """Run everyone on every set and print the table, a line as soon as it is known."""
    parser = arguments(__doc__)
    parser.add_argument("--profiles", type=chosen(*PROFILES), default=list(PROFILES))
    parser.add_argument("--peers", type=chosen(*USUAL, *PEERS), default=[*USUAL, *PEERS])
    parser.add_argument("--workers", default="1")
    args = parser.parse_args()
    sets = list(wanted(args))
    print(SET_HEADER, *(set_row(*one) for one in sets), HEADER, sep="\n", flush=True)
    with ExitStack() as stack:
        uri = stack.enter_context(open_server()).uri if args.profiles else ""
        for texts, judge in sets:
            for who, run in contestants(args, uri):
                try:
                    kept = run(texts)
                except ImportError as error:
                    print(f"| {texts.name} | {who} | {error.name} is not installed |", flush=True)
                else:
                    score = judge.score(kept.ids)
                    print(row(texts.name, who, score, len(texts.ids) / kept.seconds), flush=True)


if __name__ == "__main__":
    main()
