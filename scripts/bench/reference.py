"""Text sets whose similar pairs are known: read them, and score the records that a candidate kept.

`--data DIR` has a folder for each set: `docs.jsonl.gz` has its records (`_id`, `data`), `gt_places.tsv.gz`
the similarity of its pairs by the job's shingles, `gt_jaccard.tsv.gz` their similarity by letters and digits
alone, which earlier versions used. `--tools DIR` has `score_kept.py`, which scores every result, and
`similarity_pairs.py`, the definition of similarity.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from dedup_job.fingerprint.recipe import Recipe
from dedup_job.recipe_from_settings import Profile
from dedup_job.records import Unchecked
from dedup_job.text.clean import Cleaner
from dedup_job.text.extract_and_clean import Reader
from scripts.bench.measure import documents

AT = 0.8
SETS = ["leetcode", "medical_qa", "reuters21578"]


@dataclass(frozen=True, slots=True)
class TextSet:
    """The records of a set in `_id` order, and their cleaned texts ("" if there is nothing to judge)."""

    name: str
    ids: Sequence[str]
    raw: Sequence[str]
    texts: Sequence[str]

    @classmethod
    def read(cls, data: Path, name: str) -> TextSet:
        """Read a set and clean its texts."""
        file = data / name / "docs.jsonl.gz"
        records = sorted(documents(file), key=lambda record: record["_id"].encode())
        raw = [record["data"] for record in records]
        return cls(name, [record["_id"] for record in records], raw, list(map(cleaned, raw)))

    @property
    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the records as the job gets them."""
        return ({"_id": key, "data": raw} for key, raw in zip(self.ids, self.raw, strict=True))

    @property
    def median_letters(self) -> int:
        """Median number of letters and digits of a text."""
        return int(median(sum(map(str.isalnum, text)) for text in self.asked))

    @property
    def asked(self) -> list[str]:
        """The texts that a peer gets: the texts with anything to judge."""
        return [text for text in self.texts if text]

    def kept(self, rows: Iterable[int]) -> list[str]:
        """Return the kept ids, from the rows of `asked` that a peer keeps; all other texts are kept."""
        answers = set(rows)
        row = count()
        return [
            key for key, text in zip(self.ids, self.texts, strict=True) if not text or next(row) in answers
        ]


@dataclass(frozen=True, slots=True)
class Mixed:
    """Several sets in one collection; a record's `_id` is its position there.

    Attributes:
        origins: Set and row of the record with each `_id`.
    """

    sets: Sequence[TextSet]
    origins: Sequence[tuple[int, int]]

    @classmethod
    def dealt(cls, sets: Sequence[TextSet], seed: int) -> Mixed:
        """Assign the `_id`s at random, by a seed; all orders are equally likely."""
        origins = [(one, row) for one, texts in enumerate(sets) for row in range(len(texts.ids))]
        random.Random(seed).shuffle(origins)
        return cls(sets, origins)

    @property
    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the records as the job gets them."""
        return (
            {"_id": place, "data": self.sets[one].raw[row]} for place, (one, row) in enumerate(self.origins)
        )

    def kept(self, ids: Iterable[int]) -> list[list[str]]:
        """Return for each set the original ids of its kept records."""
        found: list[list[str]] = [[] for _ in self.sets]
        for one, row in (self.origins[place] for place in ids):
            found[one].append(self.sets[one].ids[row])
        return found


@dataclass(frozen=True, slots=True)
class Score:
    """Scores of a set of kept records; by the job's similarity, except for the last.

    Attributes:
        recall: Share of pairs with a similarity of at least 0.8 of which at most one record was kept,
            including pairs of identical texts.
        precision: Share of dropped records that are similar to a kept record.
        f1: Harmonic mean of the two.
        wiped: Number of dropped records without any similar kept record.
        near: Recall of the pairs of distinct texts alone; each text counts once.
        letters_f1: F1 by letters and digits alone.
    """

    recall: float
    precision: float
    f1: float
    wiped: int
    near: float
    letters_f1: float


class References:
    """The reference pairs of one set by one similarity, and the scorer that reads them."""

    def __init__(self, scorer: Any, docs: Path, pairs: Path, clean: Callable[[str], str]) -> None:
        self._scorer = scorer
        self._texts = scorer.read_texts([str(docs)], clean=clean)
        self._groups, self._close, self._root = scorer.read_pairs([str(pairs)], self._texts)

    def score(self, kept: Sequence[str]) -> dict[str, Any]:
        """Return the result of `score_kept.py` for a set of kept ids."""
        found: dict[str, Any] = self._scorer.score(
            self._texts, kept, self._groups, self._close, self._root, AT
        )
        return found

    @cached_property
    def near_pairs(self) -> list[tuple[str, str]]:
        """The pairs of distinct texts with similarity 0.8 or more, each text as one of its records."""
        return [
            (group, other)
            for group, others in self._close.items()
            for other, similarity in others.items()
            if group < other and similarity >= AT
        ]

    def near(self, kept: Sequence[str]) -> float:
        """Return the share of the near pairs of which at most one text was kept."""
        survivors = {self._root(one) for one in kept}
        missed = sum(group in survivors and other in survivors for group, other in self.near_pairs)
        return 1 - missed / len(self.near_pairs) if self.near_pairs else 1.0


class Judge:
    """Scores the kept records of one set, by the similarity of the job and of earlier versions."""

    def __init__(self, tools: Path, data: Path, name: str) -> None:
        scorer, definition = _module(tools / "score_kept.py"), _module(tools / "similarity_pairs.py")
        docs = data / name / "docs.jsonl.gz"
        self._places = References(scorer, docs, data / name / "gt_places.tsv.gz", definition.compared)
        self._letters = References(scorer, docs, data / name / "gt_jaccard.tsv.gz", scorer.cleaned)

    @property
    def near_pairs(self) -> int:
        """Number of pairs of distinct texts with a similarity of at least 0.8."""
        return len(self._places.near_pairs)

    def score(self, kept: Sequence[str]) -> Score:
        """Score a set of kept ids."""
        found, letters = self._places.score(kept), self._letters.score(kept)
        near = self._places.near(kept)
        return Score(found["recall"], found["precision"], found["f1"], found["wiped"], near, letters["f1"])


def cleaned(text: str) -> str:
    """Return the visible text, or "" if the job's cleaner finds nothing to judge."""
    try:
        return Cleaner().clean(text)
    except Unchecked:
        return ""


def recipe(profile: Profile, reader: Reader) -> Recipe:
    """Return the recipe of a profile."""
    return Recipe(reader=reader, bits=profile.bits, matching=profile.matching, terms=profile.terms)


def chosen(*known: str) -> Callable[[str], list[str]]:
    """Return a parser of comma-separated names that accepts only known names, or any without them."""

    def read(names: str) -> list[str]:
        found = [name.strip() for name in names.split(",") if name.strip()]
        if unknown := [name for name in found if known and name not in known]:
            raise argparse.ArgumentTypeError(f"no {unknown[0]!r} here; known: {', '.join(known)}")
        return found

    return read


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a command-line parser with the options for the sets."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tools", type=Path, required=True)
    parser.add_argument("--sets", type=chosen(), default=SETS)
    return parser


def wanted(args: argparse.Namespace) -> Iterator[tuple[TextSet, Judge]]:
    """Yield the requested sets, each with its judge."""
    return ((TextSet.read(args.data, name), Judge(args.tools, args.data, name)) for name in args.sets)


def _module(path: Path) -> Any:
    """Import a script by its path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise SystemExit(f"{path} is not there; give its folder with --tools")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
