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
import importlib.util
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
from functools import cached_property, partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

from pymongo import MongoClient

from dedup_job.document import Passed
from dedup_job.fingerprint.clean import Cleaner
from dedup_job.fingerprint.profile import PROFILES, Calibration, default
from dedup_job.fingerprint.shingles import normalised
from dedup_job.wiring import CALIBRATION_RECORDS
from scripts.local_mongod import open_server
from scripts.measure import DATABASE, SETTINGS, documents, fill, watched
from scripts.peers import PEERS

AT = 0.8
SETS = ["leetcode", "medical_qa", "reuters21578"]
SET_HEADER = """\
| set | records | median letters | near pairs |
|---|---|---|---|"""
HEADER = """
| set | who | recall | precision | F1 | near recall | wiped out | documents/s |
|---|---|---|---|---|---|---|---|"""


@dataclass(frozen=True, slots=True)
class TextSet:
    """The records of a set in `_id` order, and their cleaned texts ("" where there is nothing to judge)."""

    name: str
    file: Path
    ids: Sequence[str]
    raw: Sequence[str]
    texts: Sequence[str]

    @classmethod
    def read(cls, data: Path, name: str) -> TextSet:
        """Read a set and clean its texts."""
        file = data / name / "docs.jsonl.gz"
        records = sorted(documents(file), key=lambda record: record["_id"].encode())
        raw = [record["data"] for record in records]
        return cls(name, file, [record["_id"] for record in records], raw, list(map(cleaned, raw)))

    @property
    def calibration(self) -> Calibration:
        """What our profiles choose their settings by."""
        first = self.texts[:CALIBRATION_RECORDS]
        return Calibration(len(self.ids), int(median(len(normalised(text)) for text in first if text)))


@dataclass(frozen=True, slots=True)
class Kept:
    """What somebody kept of a set, and the seconds that it took."""

    ids: Sequence[str]
    seconds: float


@dataclass(frozen=True, slots=True)
class Score:
    """How good a set of kept records is.

    recall     share of the pairs at or above 0.8 of which at most one side was kept, identical texts included
    near       the same, of pairs of distinct texts alone: each text counts once
    precision  share of the dropped records that a kept one still stands for
    wiped      dropped records that nothing kept resembles
    """

    recall: float
    precision: float
    f1: float
    wiped: int
    near: float


class Judge:
    """The reference pairs of one set, and the scorer from the folder of tools."""

    def __init__(self, tools: Path, data: Path, name: str) -> None:
        self._scorer = _module(tools / "score_kept.py")
        self._texts = self._scorer.read_texts([str(data / name / "docs.jsonl.gz")])
        pairs = [str(data / name / "gt_jaccard.tsv.gz")]
        self._groups, self._close, self._root = self._scorer.read_pairs(pairs, self._texts)

    def score(self, kept: Sequence[str]) -> Score:
        """Score a set of kept ids."""
        found = self._scorer.score(self._texts, kept, self._groups, self._close, self._root, AT)
        return Score(found["recall"], found["precision"], found["f1"], found["wiped"], self._near(kept))

    @cached_property
    def near_pairs(self) -> list[tuple[str, str]]:
        """The pairs of distinct texts at or above 0.8, each by a record of its group of identical texts."""
        return [
            (group, other)
            for group, others in self._close.items()
            for other, similarity in others.items()
            if group < other and similarity >= AT
        ]

    def _near(self, kept: Sequence[str]) -> float:
        survivors = {self._root(one) for one in kept}
        missed = sum(group in survivors and other in survivors for group, other in self.near_pairs)
        return 1 - missed / len(self.near_pairs) if self.near_pairs else 1.0


def cleaned(text: str) -> str:
    """Return the visible text, or "" where our cleaner finds nothing to judge."""
    try:
        return Cleaner().clean(text)
    except Passed:
        return ""


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


def _module(path: Path) -> Any:
    """Import a script from where it is."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise SystemExit(f"bench_accuracy: {path} is not there; give its folder with --tools")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def chosen(*known: str) -> Callable[[str], list[str]]:
    """Return a reader of lists with commas that takes only known names, or any where none are given."""

    def read(names: str) -> list[str]:
        found = [name.strip() for name in names.split(",") if name.strip()]
        if unknown := [name for name in found if known and name not in known]:
            raise argparse.ArgumentTypeError(f"no {unknown[0]!r} here; known: {', '.join(known)}")
        return found

    return read


def contestants(args: argparse.Namespace, uri: str) -> Iterator[tuple[str, Callable[[TextSet], Kept]]]:
    """Yield who takes part, by name, and how each is run on a set."""
    for profile in args.profiles:
        yield f"**dedup-job, {profile}**", partial(our_job, uri, profile, args.workers)
    for name in args.peers:
        script = args.tools / "seed_baseline.py"
        yield name, partial(usual_job, script, USUAL[name]) if name in USUAL else partial(peer, name)


def main() -> None:
    """Run everyone on every set and print the table, a line as soon as it is known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tools", type=Path, required=True)
    parser.add_argument("--sets", type=chosen(), default=SETS)
    parser.add_argument("--profiles", type=chosen(*PROFILES), default=list(PROFILES))
    parser.add_argument("--peers", type=chosen(*USUAL, *PEERS), default=[*USUAL, *PEERS])
    parser.add_argument("--workers", default="1")
    args = parser.parse_args()
    sets = [(TextSet.read(args.data, name), Judge(args.tools, args.data, name)) for name in args.sets]
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
