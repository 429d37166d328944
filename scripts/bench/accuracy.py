"""Score the job, the usual job and other libraries by the records they keep of real texts; prints one table.

    python -m scripts.bench.accuracy --data DIR --tools DIR [--sets leetcode,medical_qa,reuters21578]
        [--profiles default,thorough,classic] [--peers "the usual job,rensa RMinHash"] [--workers 1]
        [--together] [--seeds 1,2,3] [--prefer longest]

DIR/SET/docs.jsonl.gz has the records of a set (`_id`, `data`), DIR/SET/gt_places.tsv.gz the similarity of its
pairs, DIR/SET/gt_jaccard.tsv.gz their similarity by letters and digits alone. The tools are `score_kept.py`,
which scores every result, `similarity_pairs.py`, which defines similarity, and `seed_baseline.py`, the usual
job.

All candidates keep the first of similar records, in `_id` order. The job runs end to end, from a MongoDB
collection of raw records to a target collection; its time is the time of the whole process, including start
and HTML. The peers and the usual job are timed in memory, from the text to the kept rows: without start,
database and HTML, except in rows marked raw. If a peer takes shingles, making them is part of its time.

With `--prefer longest` the job also runs with `[match] prefer = ["longest"]`. A second table compares both
runs: records dropped for a keeper with a shorter text, records decided again, and time and
processor time of the job and of the server.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from dedup_job.recipe_from_settings import PROFILES
from scripts.bench.measure import DATABASE, fill, mongod_of, numbers, settings_text, table, watched
from scripts.bench.measure import row as print_row
from scripts.bench.peers import PEERS
from scripts.bench.reference import Judge, Mixed, Score, TextSet, arguments, chosen, wanted
from scripts.dev.local_mongod import Server, open_server

SETS = ("set", "records", "median letters", "near pairs")
SCORES = (
    "set", "who", "recall", "precision", "F1", "near recall", "wiped out",
    "F1 by letters", "documents/s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kept:
    """The kept ids of one candidate, its seconds, and for this project's job more.

    Attributes:
        recipe: Digest of the job's recipe.
        cpu: Processor seconds of the job and of the server.
        keepers: Keeper of each dropped record.
        again: Number of records that were decided again, with `--prefer`.
    """

    ids: Sequence[Any]
    seconds: float
    recipe: str = ""
    cpu: float = 0.0
    keepers: Mapping[Any, Any] = field(default_factory=dict)
    again: int = 0


@dataclass(frozen=True, slots=True)
class RunRecipe:
    """One run of the job on a collection; `shorter` counts the records dropped for a shorter text."""

    collection: str
    who: str
    kept: Kept
    shorter: int

    @property
    def digest(self) -> str:
        """The digest of the run's recipe."""
        return self.kept.recipe


def our_job(
    server: Server, profile: str, workers: str, texts: TextSet | Mixed, prefer: Sequence[str] = ()
) -> Kept:
    """Run `dedup-job backfill` as a separate process; loading the collection is not timed."""
    uri = server.uri
    with tempfile.TemporaryDirectory() as folder, MongoClient[dict[str, Any]](uri) as client:
        settings = Path(folder) / "bench.toml"
        settings.write_text(settings_text(profile))
        fill(texts.records, client)
        command = [sys.executable, "-m", "dedup_job", "backfill", "-c", str(settings), "--json"]
        command += ["--workers", workers]
        if prefer:
            command += ["--set", f"match.prefer={json.dumps(prefer)}"]
        usage, said = watched(command, {**os.environ, "DEDUP_SOURCE_URI": uri}, mongod_of(server))
        ids = [record["_id"] for record in client[DATABASE].unique.find({}, {"_id": 1})]
        rows = client[DATABASE]["unique.dedup.dropped"].find({}, {"keeper": 1})
        keepers = {row["_id"]: row["keeper"] for row in rows}
        again = said.get("prefer", {}).get("decided_again", 0)
        cpu = usage.cpu + usage.server_cpu
        return Kept(ids, usage.seconds, said["recipe"], cpu, keepers, again)


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


def contestants(
    args: argparse.Namespace, server: Server | None
) -> Iterator[tuple[str, Callable[[TextSet], Kept]]]:
    """Yield the name of each candidate, and a function that runs it on a set."""
    for profile in args.profiles:
        assert server is not None
        for prefer in preferences(args):
            yield ours(profile, prefer), partial(our_job, server, profile, args.workers, prefer=prefer)
    for name in args.peers:
        script = args.tools / "seed_baseline.py"
        yield name, partial(usual_job, script, USUAL[name]) if name in USUAL else partial(peer, name)


def preferences(args: argparse.Namespace) -> list[Sequence[str]]:
    """Return the values of `[match] prefer` to run the job with: none, and those that were asked for."""
    return [[], args.prefer] if args.prefer else [[]]


def ours(profile: str, prefer: Sequence[str] = ()) -> str:
    """Return the name of the job in the table."""
    return f"**dedup-job, {profile}**" + "".join(f", {rule}" for rule in prefer)


def alone(
    sets: Sequence[tuple[TextSet, Judge]], args: argparse.Namespace, server: Server | None
) -> Iterator[RunRecipe]:
    """Run every candidate on each set, print the scores, and yield the recipes of the job."""
    for texts, judge in sets:
        for who, run in contestants(args, server):
            try:
                kept = run(texts)
            except ImportError as error:
                print_row(texts.name, who, f"{error.name} is not installed")
                continue
            print_score(texts.name, who, judge.score(kept.ids), len(texts.ids) / kept.seconds)
            if kept.recipe:
                shorter = count_shorter(dict(zip(texts.ids, texts.texts, strict=True)), kept)
                yield RunRecipe(texts.name, who, kept, shorter)


def count_shorter(texts: Mapping[Any, str], kept: Kept) -> int:
    """Return how many records were dropped for a keeper with a shorter cleaned text."""
    pairs = kept.keepers.items()
    return sum(len(texts[keeper]) < len(texts[dropped]) for dropped, keeper in pairs)


def together(
    sets: Sequence[tuple[TextSet, Judge]], args: argparse.Namespace, server: Server
) -> Iterator[RunRecipe]:
    """Run the job on all sets in one collection, once per seed; print each score and yield the recipes."""
    for profile, seed in product(args.profiles, args.seeds):
        mixed = Mixed.dealt([texts for texts, _ in sets], seed)
        cleaned = {place: sets[one][0].texts[row] for place, (one, row) in enumerate(mixed.origins)}
        for prefer in preferences(args):
            found = our_job(server, profile, args.workers, mixed, prefer)
            rate, who = len(mixed.origins) / found.seconds, ours(profile, prefer)
            for (texts, judge), kept in zip(sets, mixed.kept(found.ids), strict=True):
                print_score(f"{texts.name}, together, seed {seed}", who, judge.score(kept), rate)
            yield RunRecipe(f"together, seed {seed}", who, found, count_shorter(cleaned, found))


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


def print_costs(runs: Sequence[RunRecipe]) -> None:
    """Print for each run how many records were dropped for a shorter text, and what the run cost."""
    print()
    names = ("dropped", "for a shorter text", "decided again", "seconds", "processor seconds")
    table("collection", "who", *names)
    for run in runs:
        kept = run.kept
        figures = (len(kept.keepers), run.shorter, kept.again, round(kept.seconds, 1), round(kept.cpu, 1))
        print_row(run.collection, run.who, *figures)


def main() -> None:
    """Run every candidate on every set, and print each row as soon as it is known."""
    parser = arguments(__doc__)
    parser.add_argument("--profiles", type=chosen(*PROFILES), default=list(PROFILES))
    parser.add_argument("--peers", type=chosen(*USUAL, *PEERS), default=[*USUAL, *PEERS])
    parser.add_argument("--workers", default="1")
    parser.add_argument("--prefer", type=chosen("longest"), default=[], help="also run with [match] prefer")
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
        server = stack.enter_context(open_server()) if args.profiles else None
        recipes = list(alone(sets, args, server))
        if args.together and server is not None:
            recipes += together(sets, args, server)
    if args.prefer:
        print_costs(recipes)
    if recipes:
        print_recipes(recipes)


if __name__ == "__main__":
    main()
