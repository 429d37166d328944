"""Score the job, the usual job and other libraries by the records they keep of real texts; prints one table.

    python -m scripts.bench.accuracy --data DIR --tools DIR [--sets leetcode,medical_qa,reuters21578]
        [--profiles default,thorough,classic] [--peers "the usual job,rensa RMinHash"] [--workers 1]
        [--together] [--seeds 1,2,3]

DIR/SET/docs.jsonl.gz has the records of a set (`_id`, `data`), DIR/SET/gt_places.tsv.gz the similarity of its
pairs, DIR/SET/gt_jaccard.tsv.gz their similarity by letters and digits alone. The tools are `score_kept.py`,
which scores every result, `similarity_pairs.py`, which defines similarity, and `seed_baseline.py`, the usual
job.

All candidates keep the first of similar records, in `_id` order. The job runs end to end, from a MongoDB
collection of raw records to a target collection; its time is the time of the whole process, including start
and HTML. The peers and the usual job are timed in memory, from the text to the kept rows: without start,
database and HTML, except in rows marked raw. If a peer takes shingles, making them is part of its time.

With `--together` the job also decides all sets in one collection. Each seed assigns new `_id`s, so that the
sets are mixed; each set is scored separately. The last lines are the recipes of all runs of the job.
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
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from dedup_job.fingerprint.recipe import PROFILES
from scripts.bench.measure import DATABASE, SETTINGS, fill, numbers, table, watched
from scripts.bench.measure import row as print_row
from scripts.bench.peers import PEERS
from scripts.bench.reference import Judge, Mixed, Score, TextSet, arguments, chosen, wanted
from scripts.dev.local_mongod import open_server

SETS = ("set", "records", "median letters", "near pairs")
SCORES = (
    "set", "who", "recall", "precision", "F1", "near recall", "wiped out",
    "F1 by letters", "documents/s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kept:
    """The kept ids of one candidate, its seconds, and for this project's job the digest of its recipe."""

    ids: Sequence[Any]
    seconds: float
    recipe: str = ""


@dataclass(frozen=True, slots=True)
class RunRecipe:
    """The digest of the recipe of one run of the job."""

    collection: str
    who: str
    digest: str


def our_job(uri: str, profile: str, workers: str, texts: TextSet | Mixed) -> Kept:
    """Run `dedup-job backfill` as a separate process; loading the collection is not timed."""
    with tempfile.TemporaryDirectory() as folder, MongoClient[dict[str, Any]](uri) as client:
        settings = Path(folder) / "bench.toml"
        settings.write_text(SETTINGS.format(profile=profile))
        fill(texts.records, client)
        command = [sys.executable, "-m", "dedup_job", "backfill", "-c", str(settings), "--json"]
        usage, said = watched([*command, "--workers", workers], {**os.environ, "DEDUP_SOURCE_URI": uri})
        ids = [record["_id"] for record in client[DATABASE].unique.find({}, {"_id": 1})]
        return Kept(ids, usage.seconds, said["recipe"])


def usual_job(script: Path, given: Callable[[TextSet], Iterable[str]], texts: TextSet) -> Kept:
    """Run the usual job as a separate process on one form of the texts; it measures its own time."""
    with tempfile.TemporaryDirectory() as folder:
        file, kept = Path(folder) / "docs.jsonl.gz", Path(folder) / "kept.txt"
        with gzip.open(file, "wt", encoding="utf-8", compresslevel=1) as lines:
            for key, text in zip(texts.ids, given(texts), strict=True):
                lines.write(json.dumps({"_id": key, "data": text}) + "\n")
        command = [sys.executable, str(script), str(file), "--kept", str(kept)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return Kept(kept.read_text("utf-8").splitlines(), json.loads(done.stdout)["seconds"])


def without_angles(texts: TextSet) -> Iterator[str]:
    """Yield the cleaned texts without `<` and `>`, which the usual job would treat as tags."""
    return (text.replace("<", " ").replace(">", " ") for text in texts.texts)


USUAL: dict[str, Callable[[TextSet], Iterable[str]]] = {
    "the usual job on raw records": lambda texts: texts.raw,
    "the usual job": without_angles,
}


def peer(name: str, texts: TextSet) -> Kept:
    """Run a peer in a fresh process; texts that are empty after cleaning are kept without it."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        rows, seconds = pool.submit(_timed_rows, name, texts.asked).result()
    return Kept(texts.kept(rows), seconds)


def _timed_rows(name: str, texts: Sequence[str]) -> tuple[list[int], float]:
    """Return the rows that a peer keeps, and its seconds."""
    # Imports and dictionaries are loaded before the clock starts.
    PEERS[name](texts[:10])
    started = time.perf_counter()
    rows = PEERS[name](texts)
    return rows, time.perf_counter() - started


def print_score(name: str, who: str, score: Score, rate: float) -> None:
    """Print a row of the table; `rate` is in documents per second."""
    shares = (score.recall, score.precision, score.f1, score.near)
    print_row(name, who, *(f"{share:.4f}" for share in shares), score.wiped, f"{score.letters_f1:.4f}", rate)


def contestants(args: argparse.Namespace, uri: str) -> Iterator[tuple[str, Callable[[TextSet], Kept]]]:
    """Yield the name of each candidate, and a function that runs it on a set."""
    for profile in args.profiles:
        yield ours(profile), partial(our_job, uri, profile, args.workers)
    for name in args.peers:
        script = args.tools / "seed_baseline.py"
        yield name, partial(usual_job, script, USUAL[name]) if name in USUAL else partial(peer, name)


def ours(profile: str) -> str:
    """Return the name of the job in the table."""
    return f"**dedup-job, {profile}**"


def alone(sets: Sequence[tuple[TextSet, Judge]], args: argparse.Namespace, uri: str) -> Iterator[RunRecipe]:
    """Run every candidate on each set, print the scores, and yield the recipes of the job."""
    for texts, judge in sets:
        for who, run in contestants(args, uri):
            try:
                kept = run(texts)
            except ImportError as error:
                print_row(texts.name, who, f"{error.name} is not installed")
                continue
            print_score(texts.name, who, judge.score(kept.ids), len(texts.ids) / kept.seconds)
            if kept.recipe:
                yield RunRecipe(texts.name, who, kept.recipe)


def together(
    sets: Sequence[tuple[TextSet, Judge]], args: argparse.Namespace, uri: str
) -> Iterator[RunRecipe]:
    """Run the job on all sets in one collection, once per seed; print each score and yield the recipes."""
    for profile, seed in product(args.profiles, args.seeds):
        mixed = Mixed.dealt([texts for texts, _ in sets], seed)
        found = our_job(uri, profile, args.workers, mixed)
        rate = len(mixed.origins) / found.seconds
        for (texts, judge), kept in zip(sets, mixed.kept(found.ids), strict=True):
            print_score(f"{texts.name}, together, seed {seed}", ours(profile), judge.score(kept), rate)
        yield RunRecipe(f"together, seed {seed}", ours(profile), found.recipe)


def print_recipes(recipes: Sequence[RunRecipe]) -> None:
    """Print the recipe of each run, and whether all runs of a profile have the same recipe."""
    print()
    table("collection", "who", "recipe")
    for one in recipes:
        print_row(one.collection, one.who, one.digest)
    for who in dict.fromkeys(one.who for one in recipes):
        digests = [one.digest for one in recipes if one.who == who]
        different = len(set(digests))
        said = "all equal" if different == 1 else f"NOT EQUAL, {different} different ones"
        print(f"\n{who}, recipes of {len(digests)} runs: {said}")


def main() -> None:
    """Run every candidate on every set, and print each row as soon as it is known."""
    parser = arguments(__doc__)
    parser.add_argument("--profiles", type=chosen(*PROFILES), default=list(PROFILES))
    parser.add_argument("--peers", type=chosen(*USUAL, *PEERS), default=[*USUAL, *PEERS])
    parser.add_argument("--workers", default="1")
    parser.add_argument("--together", action="store_true", help="the sets in one collection too")
    parser.add_argument("--seeds", type=numbers, default=[1, 2, 3], help="of the orders of that collection")
    args = parser.parse_args()
    sets = list(wanted(args))
    table(*SETS)
    for texts, judge in sets:
        print_row(texts.name, len(texts.ids), texts.median_letters, judge.near_pairs)
    print()
    table(*SCORES)
    with ExitStack() as stack:
        uri = stack.enter_context(open_server()).uri if args.profiles else ""
        recipes = list(alone(sets, args, uri))
        if args.together:
            recipes += together(sets, args, uri)
    if recipes:
        print_recipes(recipes)


if __name__ == "__main__":
    main()
