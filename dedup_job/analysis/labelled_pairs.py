"""Labelled pairs: read them, score how the settings judged them, and advise on a threshold."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from dedup_job.analysis.scores import Score, tuned_json, tuned_toml
from dedup_job.errors import UsageError
from dedup_job.fingerprint.recipe import Matching


@dataclass(frozen=True, slots=True)
class LabelAdvice:
    """The threshold that suits some labelled pairs best.

    Attributes:
        min_similarity: The suggested threshold: the present one if it is as good as any, otherwise the
            middle of the thresholds that are.
        above: Every threshold above this one is equally good,
        up_to: up to and including this one.
        wrong: Pairs that the suggested threshold judges wrong, by their similarity alone.
        wrong_now: Pairs that the present threshold judges wrong.
        pairs: All labelled pairs, without those that cannot be judged.
    """

    min_similarity: float
    above: float
    up_to: float
    wrong: int
    wrong_now: int
    pairs: int

    def as_text(self) -> str:
        """Return the advice as text."""
        return (
            f"min_similarity = {self.min_similarity:g} fits these labels best: "
            f"{self.wrong:,} of {self.pairs:,} pairs judged wrong, now {self.wrong_now:,}\n"
            f"(by similarity alone; any value above {self.above:.3f} up to {self.up_to:.3f} is as good)"
        )


def advise_threshold(labels: Sequence[tuple[float, bool]], present: float) -> LabelAdvice | None:
    """Return the threshold that judges the fewest labelled pairs wrong.

    Among equally good thresholds the highest ones win: dropping a record wrongly is worse than keeping a
    copy.

    >>> pairs = [(0.81, False), (0.84, False), (0.88, True), (0.86, True), (0.97, True)]
    >>> advice = advise_threshold(pairs, 0.8)
    >>> print(advice.as_text())
    min_similarity = 0.85 fits these labels best: 0 of 5 pairs judged wrong, now 2
    (by similarity alone; any value above 0.840 up to 0.860 is as good)

    Args:
        labels: The similarity of each pair, and whether its texts are the same.
        present: The present threshold.

    Returns:
        The advice, or None without labels.
    """
    if not labels:
        return None
    edges = [0.0, *sorted({similarity for similarity, _ in labels}), 1.0]
    # All thresholds of an interval (low, high] judge every pair alike.
    intervals = [(_count_wrong(labels, high), low, high) for low, high in pairwise(edges) if low < high]
    wrong, low, high = min(intervals, key=lambda interval: (interval[0], -interval[2]))
    return LabelAdvice(
        min_similarity=present if low < present <= high else _round_between(low, high),
        above=low,
        up_to=high,
        wrong=wrong,
        wrong_now=_count_wrong(labels, present),
        pairs=len(labels),
    )


def _count_wrong(labels: Sequence[tuple[float, bool]], threshold: float) -> int:
    return sum((similarity >= threshold) != is_same for similarity, is_same in labels)


def _round_between(low: float, high: float) -> float:
    """Return the middle of the interval (low, high] with two or three decimals, or `high` if neither fits."""
    middle = (low + high) / 2
    return next((rounded for digits in (2, 3) if low < (rounded := round(middle, digits)) <= high), high)


LABEL_WORDS = {
    "same": True, "true": True, "yes": True, "duplicate": True,
    "different": False, "false": False, "no": False, "unique": False,
}  # fmt: skip
# The label of a pair that a person could not judge; it is skipped.
UNSURE = "unsure"
# Names of the third column that mark a header line.
HEADERS = {"label", "similarity", "jaccard", "score", "match", "is_duplicate", "is_same"}


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """A labelled pair as read from a file.

    Attributes:
        line: Number of its line.
        first: Id as text; JSON if it is not a plain string.
        second: Id as text; JSON if it is not a plain string.
        same: The label.
    """

    line: int
    first: str
    second: str
    same: bool


class _Malformed(ValueError):
    """A line that is not a labelled pair; the message says why."""


def read_pairs(lines: Sequence[str], at: float) -> list[LabelledPair]:
    """Return the pairs of a file.

    A label is 1 or 0, same or different, true or false, or a similarity.

    Args:
        lines: The lines of the file.
        at: Similarity from which a label counts as the same.

    Raises:
        UsageError: If a line is not a pair, or there are no pairs.
    """
    filled = {number: line for number, line in enumerate(lines, 1) if line.strip()}
    first = next(iter(filled), 0)
    # The first line decides the file's format.
    split = _choose_format(filled.get(first, ""))
    pairs = []
    for number, line in filled.items():
        try:
            id1, id2, label = split(line)
            word = str(label).strip().lower()
            if word != UNSURE and not (number == first and word in HEADERS):
                pairs.append(_parse_pair(number, id1, id2, word, at))
        except _Malformed as error:
            raise UsageError(f"line {number}: {error}") from None
        except (ValueError, csv.Error):
            raise UsageError(f"line {number}: cannot be read like the first line") from None
    if not pairs:
        raise UsageError("no pairs; give lines of two ids and a label, with tabs or commas, or as JSON")
    return pairs


def _choose_format(line: str) -> Callable[[str], Sequence[Any]]:
    """Return the function that returns the two ids and the label of a line like this one."""
    try:
        if isinstance(_parse_json(line), dict):
            return _json_fields
    except ValueError:
        pass
    return _tab_fields if "\t" in line else _comma_fields


def _parse_json(line: str) -> Any:
    """Parse JSON; raise ValueError also where it is nested too deep for Python."""
    try:
        return json.loads(line)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _json_fields(line: str) -> Sequence[Any]:
    pair = _parse_json(line)
    if not isinstance(pair, dict) or not {"id1", "id2", "label"} <= pair.keys():
        raise _Malformed('expected an object with "id1", "id2" and "label"')
    ids = (pair["id1"], pair["id2"])
    return [*(value if isinstance(value, str) else json.dumps(value) for value in ids), pair["label"]]


def _tab_fields(line: str) -> Sequence[Any]:
    return _first_three(line.rstrip("\r\n").split("\t"))


def _comma_fields(line: str) -> Sequence[Any]:
    return _first_three(next(csv.reader([line], strict=True)))


def _first_three(fields: Sequence[str]) -> Sequence[str]:
    if len(fields) < 3:
        raise _Malformed(f"expected two ids and a label, with tabs or commas, not {len(fields)} fields")
    return fields[:3]


def _parse_pair(number: int, id1: str, id2: str, label: str, at: float) -> LabelledPair:
    first, second = id1.strip(), id2.strip()
    if not first or not second:
        raise _Malformed("an id is empty")
    if first == second:
        raise _Malformed("names the same record twice")
    return LabelledPair(number, first, second, _parse_label(label, at))


def _parse_label(word: str, at: float) -> bool:
    if word in LABEL_WORDS:
        return LABEL_WORDS[word]
    try:
        similarity = float(word)
    except ValueError:
        # Out of range, so that there is one error for all labels.
        similarity = -1.0
    if not 0 <= similarity <= 1:
        raise _Malformed("expected a label: 1 or 0, same or different, true or false, or a similarity")
    return similarity >= at


# Wrongly judged pairs of each kind that are shown.
MOST_ERRORS = 10
NO_ADVICE = "no threshold can be advised: label some pairs as the same and some as different"


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """A labelled pair, and how the settings judge it.

    Attributes:
        pair: The labelled pair.
        found: Whether the second record would be dropped because of the first.
        distance: Hamming distance of the fingerprints; None if a text has too few terms for one.
        similarity: Jaccard similarity of the shingle sets.
        unchecked: Why a text cannot be judged; "" if both can.
    """

    pair: LabelledPair
    found: bool
    distance: int | None
    similarity: float
    unchecked: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the pair as JSON values."""
        return {
            "line": self.pair.line,
            "id1": self.pair.first,
            "id2": self.pair.second,
            "distance": self.distance,
            "similarity": round(self.similarity, 4),
            "unchecked": self.unchecked,
        }


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How the present settings judge labelled pairs."""

    setting: Matching
    recipe: str
    judged: Sequence[JudgedPair]

    @property
    def score(self) -> Score:
        """The score of all pairs."""
        counts = Counter((judged.pair.same, judged.found) for judged in self.judged)
        return Score(counts[True, True], counts[False, True], counts[True, False], counts[False, False])

    @property
    def false_alarms(self) -> list[JudgedPair]:
        """Pairs that are different and were found, the least similar first."""
        wrong = [judged for judged in self.judged if judged.found and not judged.pair.same]
        return sorted(wrong, key=lambda judged: judged.similarity)[:MOST_ERRORS]

    @property
    def misses(self) -> list[JudgedPair]:
        """Pairs that are the same and were missed, the most similar first."""
        wrong = [judged for judged in self.judged if judged.pair.same and not judged.found]
        return sorted(wrong, key=lambda judged: -judged.similarity)[:MOST_ERRORS]

    @property
    def advice(self) -> LabelAdvice | None:
        """The threshold that fits the labels best; None without judged pairs of both labels.

        With pairs of one label only, the lowest or the highest threshold would fit best.
        """
        labels = [(judged.similarity, judged.pair.same) for judged in self.judged if not judged.unchecked]
        if len({is_same for _, is_same in labels}) < 2:
            return None
        return advise_threshold(labels, self.setting.min_similarity)

    def as_json(self) -> dict[str, Any]:
        """Return the evaluation as one JSON object."""
        score, advice = self.score, self.advice
        return {
            "pairs": score.pairs,
            **score.as_json(),
            "worst_false_alarms": [judged.as_json() for judged in self.false_alarms],
            "worst_misses": [judged.as_json() for judged in self.misses],
            "advice": asdict(advice) if advice else None,
            "settings": tuned_json(self.setting),
            "recipe": self.recipe,
        }

    def as_text(self) -> str:
        """Return the evaluation as text."""
        score, advice = self.score, self.advice
        same = score.hits + score.misses
        lines = [
            f"evaluate: {score.pairs:,} pairs, {same:,} of them the same; recipe {self.recipe[:12]}",
            f"  the same     {score.hits:>9,} found  {score.misses:>9,} not found",
            f"  different    {score.false_alarms:>9,} found  {score.rejections:>9,} not found",
            "",
            "               share   (95 % interval)",
            f"  precision    {score.precision}",
            f"  recall       {score.recall}",
            f"  F1           {score.f1}",
        ]
        lines += _list_errors("found but labelled different, the least similar first", self.false_alarms)
        lines += _list_errors("not found but labelled the same, the most similar first", self.misses)
        advised = advice.as_text() if advice else NO_ADVICE
        return "\n".join([*lines, "", advised, "", "the present settings:", "", tuned_toml(self.setting)])


def _list_errors(title: str, wrong: Sequence[JudgedPair]) -> list[str]:
    """Return lines about wrongly judged pairs, with a title."""
    return ["", title, *map(_error_line, wrong)] if wrong else []


def _error_line(judged: JudgedPair) -> str:
    pair = judged.pair
    if judged.unchecked:
        reason = f"cannot be judged ({judged.unchecked})"
    else:
        distance = "too few terms" if judged.distance is None else f"distance {judged.distance}"
        reason = f"{distance}, similarity {judged.similarity:.3f}"
    return f"  line {pair.line}: {pair.first}  {pair.second}: {reason}"
