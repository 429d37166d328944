"""Labelled pairs: two ids and whether their texts are the same, and how the settings judge them.

A file has a pair a line: `id1 <tab> id2 <tab> label` (further columns are left alone, a header line may come
first), the same with commas, or JSON objects `{"id1": ..., "id2": ..., "label": ...}`.  The page of a report
saves such a file.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dedup_job.errors import UsageError
from dedup_job.lab.asked import LabelAdvice, asked
from dedup_job.lab.scoring import Score, Setting

WORDS = {
    "same": True, "true": True, "yes": True, "duplicate": True,
    "different": False, "false": False, "no": False, "unique": False,
}  # fmt: skip
UNSURE = "unsure"  # a person could not say: the pair is left out
HEADERS = {"label", "similarity", "jaccard", "score", "match", "is_duplicate", "is_same"}


@dataclass(frozen=True, slots=True)
class Labelled:
    """A pair as its line has it: ids as text (JSON where they are no plain strings), and the label."""

    line: int
    first: str
    second: str
    same: bool


class _Malformed(ValueError):
    """What is wrong with a line."""


def read(lines: Sequence[str], at: float) -> list[Labelled]:
    """Return the pairs of a file; raises UsageError that names the first line which is none.

    A label is 1 or 0, same or different, true or false, or a similarity: from `at` on it counts as same.
    """
    filled = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    pairs = []
    for place, (number, fields) in enumerate(_fields(filled)):
        if place == 0 and isinstance(fields[-1], str) and fields[-1].strip().lower() in HEADERS:
            continue
        if str(fields[-1]).strip().lower() == UNSURE:
            continue
        try:
            pairs.append(_pair(number, fields, at))
        except _Malformed as error:
            raise UsageError(f"line {number}: {error}") from None
    if not pairs:
        raise UsageError("no pairs; give lines of two ids and a label, with tabs or commas, or as JSON")
    return pairs


def _fields(lines: Sequence[tuple[int, str]]) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yield the first three fields of each line; the first line tells which kind of file this is."""
    first = lines[0][1] if lines else ""
    parse = _json_fields if _is_json(first) else _tab_fields if "\t" in first else _comma_fields
    for number, line in lines:
        try:
            yield number, parse(line)
        except (_Malformed, ValueError, csv.Error) as error:
            wrong = error if isinstance(error, _Malformed) else "cannot be read as the first line was"
            raise UsageError(f"line {number}: {wrong}") from None


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _json_fields(line: str) -> Sequence[Any]:
    pair = json.loads(line)
    if not isinstance(pair, dict) or not {"id1", "id2", "label"} <= pair.keys():
        raise _Malformed('expected an object with "id1", "id2" and "label"')
    ids = (pair["id1"], pair["id2"])
    return [*(one if isinstance(one, str) else json.dumps(one) for one in ids), pair["label"]]


def _tab_fields(line: str) -> Sequence[Any]:
    return _three(line.rstrip("\r\n").split("\t"))


def _comma_fields(line: str) -> Sequence[Any]:
    return _three(next(csv.reader([line], strict=True)))


def _three(fields: Sequence[str]) -> Sequence[str]:
    if len(fields) < 3:
        raise _Malformed(f"expected two ids and a label, with tabs or commas, not {len(fields)} fields")
    return fields[:3]


def _pair(number: int, fields: Sequence[Any], at: float) -> Labelled:
    first, second = (field.strip() for field in fields[:2])
    if not first or not second:
        raise _Malformed("an id is empty")
    if first == second:
        raise _Malformed("names the same record twice")
    return Labelled(number, first, second, _label(fields[2], at))


def _label(value: Any, at: float) -> bool:
    word = str(value).strip().lower()
    if word in WORDS:
        return WORDS[word]
    try:
        similarity = float(word)
    except ValueError:
        similarity = -1.0
    if not 0 <= similarity <= 1:
        raise _Malformed("expected a label: 1 or 0, same or different, true or false, or a similarity")
    return similarity >= at


MOST_ERRORS = 10  # of each kind are shown


@dataclass(frozen=True, slots=True)
class Judged:
    """What the settings make of a labelled pair.

    found       whether the second would be dropped for the first
    distance    bits in which the fingerprints differ; None where a text has too few terms to have one
    similarity  of the shingle sets
    unjudged    why a text cannot be judged; "" where both can
    """

    pair: Labelled
    found: bool
    distance: int | None
    similarity: float
    unjudged: str = ""

    @property
    def score(self) -> Score:
        """Count this pair."""
        return Score.of(self.pair.same, self.found)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "line": self.pair.line,
            "id1": self.pair.first,
            "id2": self.pair.second,
            "distance": self.distance,
            "similarity": round(self.similarity, 4),
            "unjudged": self.unjudged,
        }


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How the present settings judge labelled pairs."""

    setting: Setting
    recipe: str
    judged: Sequence[Judged]

    @property
    def score(self) -> Score:
        """All pairs counted."""
        return sum((one.score for one in self.judged), Score())

    @property
    def false_alarms(self) -> list[Judged]:
        """Different, and found: those that are least alike first."""
        wrong = [one for one in self.judged if one.found and not one.pair.same]
        return sorted(wrong, key=lambda one: one.similarity)[:MOST_ERRORS]

    @property
    def misses(self) -> list[Judged]:
        """The same, and not found: those that are most alike first."""
        wrong = [one for one in self.judged if one.pair.same and not one.found]
        return sorted(wrong, key=lambda one: -one.similarity)[:MOST_ERRORS]

    @property
    def asked(self) -> LabelAdvice | None:
        """The threshold that the labels ask for."""
        labels = [(one.similarity, one.pair.same) for one in self.judged if not one.unjudged]
        return asked(labels, self.setting.min_similarity)

    def as_json(self) -> dict[str, Any]:
        """Return the evaluation as one JSON object."""
        score = self.score
        return {
            "pairs": score.pairs,
            **score.as_json(),
            "worst_false_alarms": [one.as_json() for one in self.false_alarms],
            "worst_misses": [one.as_json() for one in self.misses],
            "asked": self.asked.as_json() if self.asked else None,
            "settings": asdict(self.setting),
            "recipe": self.recipe,
        }

    def as_text(self) -> str:
        """Return the evaluation for people."""
        score = self.score
        same = score.hits + score.misses
        lines = [
            f"evaluate: {score.pairs:,} pairs, {same:,} of them the same; recipe {self.recipe[:12]}",
            f"  the same     {score.hits:>9,} found  {score.misses:>9,} missed",
            f"  different    {score.false_alarms:>9,} found  {score.rejections:>9,} told apart",
            "",
            "               share   (95 % interval)",
            f"  precision    {score.precision}",
            f"  recall       {score.recall}",
            f"  F1           {score.f1}",
        ]
        lines += _listed("found, though labelled different (the least alike first)", self.false_alarms)
        lines += _listed("missed, though labelled the same (the most alike first)", self.misses)
        if self.asked:
            lines += ["", self.asked.as_text()]
        return "\n".join([*lines, "", "these are the settings", "", self.setting.as_toml()])


def _listed(title: str, wrong: Sequence[Judged]) -> list[str]:
    if not wrong:
        return []
    return [
        "",
        title,
        *(f"  line {one.pair.line}: {one.pair.first}  {one.pair.second}: {_why(one)}" for one in wrong),
    ]


def _why(one: Judged) -> str:
    if one.unjudged:
        return f"cannot be judged ({one.unjudged})"
    distance = "too few terms" if one.distance is None else f"distance {one.distance}"
    return f"{distance}, similarity {one.similarity:.3f}"
