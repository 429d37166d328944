"""Sets of texts whose similar pairs are known: how they are read, and the judge of what was kept of one.

`--data DIR` has a folder for each set: `docs.jsonl.gz` holds its records (`_id`, `data`), `gt_jaccard.tsv.gz`
the similarity of its pairs.  `--tools DIR` has `score_kept.py`, which judges everyone.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from dedup_job.document import Unjudged
from dedup_job.fingerprint.clean import Cleaner
from dedup_job.fingerprint.profile import Calibration, Choice
from dedup_job.fingerprint.recipe import Matching, Reader, Recipe
from dedup_job.fingerprint.shingles import normalised
from dedup_job.fingerprint.terms import TermRule
from dedup_job.parts import CALIBRATION_RECORDS
from scripts.measure import documents

AT = 0.8
SETS = ["leetcode", "medical_qa", "reuters21578"]


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
    except Unjudged:
        return ""


def recipe(choice: Choice, reader: Reader) -> Recipe:
    """Return the recipe that a profile's choice makes."""
    return Recipe(
        reader=reader,
        bits=choice.bits,
        matching=Matching(
            choice.radius, choice.min_terms, choice.short_text, choice.min_similarity, choice.shingle
        ),
        terms=TermRule(choice.features, choice.min_length, choice.tf, choice.idf, choice.top),
    )


def chosen(*known: str) -> Callable[[str], list[str]]:
    """Return a reader of lists with commas that takes only known names, or any where none are given."""

    def read(names: str) -> list[str]:
        found = [name.strip() for name in names.split(",") if name.strip()]
        if unknown := [name for name in found if known and name not in known]:
            raise argparse.ArgumentTypeError(f"no {unknown[0]!r} here; known: {', '.join(known)}")
        return found

    return read


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser that knows where the sets are and which are wanted."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tools", type=Path, required=True)
    parser.add_argument("--sets", type=chosen(), default=SETS)
    return parser


def wanted(args: argparse.Namespace) -> Iterator[tuple[TextSet, Judge]]:
    """Yield the sets that are wanted, each with its judge."""
    return ((TextSet.read(args.data, name), Judge(args.tools, args.data, name)) for name in args.sets)


def _module(path: Path) -> Any:
    """Import a script from where it is."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise SystemExit(f"{path} is not there; give its folder with --tools")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
