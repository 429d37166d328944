"""The evidence of a report: sampled pairs, the largest groups, and a table of all pairs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from random import Random
from typing import Any, Generic, TypeVar

from dedup_job.mongo.ids import extended
from dedup_job.records import KeeperMatch, Plan, chunked
from dedup_job.report.decision_lines import MAX_SHOWN, cut_before_difference
from dedup_job.report.table_file import Row
from dedup_job.report.terminal_text import format_id

T = TypeVar("T")
# Keepers that are counted at the same time.
LARGEST_COUNT = 1_000_000
# Duplicates remembered of a large group.
MEMBERS = 12
# Pairs whose texts are read together.
PAIRS_AT_ONCE = 100


class LargestGroups(Generic[T]):
    """Counts the duplicates of each keeper, and remembers some duplicates of the leading keepers.

    Memory is bounded, so with more keepers than are counted at once the sizes are lower bounds.
    """

    def __init__(self, most: int) -> None:
        """Report at most `most` groups."""
        self._most = most
        self._sizes: Counter[bytes] = Counter()
        self._members: defaultdict[bytes, list[T]] = defaultdict(list)
        # Smaller groups are not among the largest.
        self._min_size = 1

    def add(self, keeper: bytes, duplicate: T) -> None:
        """Count a duplicate."""
        self._sizes[keeper] += 1
        if len(self._sizes) > LARGEST_COUNT:
            # Halving keeps this rare: the sort takes long.
            self._sizes = Counter(dict(self._sizes.most_common(LARGEST_COUNT // 2)))
        if self._most and self._sizes[keeper] >= self._min_size and len(self._members[keeper]) < MEMBERS:
            self._members[keeper].append(duplicate)
            # Four times as many as needed, so that a group that grows late still has members.
            if len(self._members) > 4 * self._most:
                self._drop_small_groups()

    def sizes(self) -> list[tuple[bytes, int]]:
        """Return the largest groups: each keeper, and its number of duplicates."""
        return self._sizes.most_common(self._most)

    def members(self, keeper: bytes) -> list[T]:
        """Return some duplicates of one of the largest groups."""
        return self._members.get(keeper, [])

    def _drop_small_groups(self) -> None:
        """Forget the members of groups that are no longer among the largest."""
        leading = dict(self.sizes())
        self._min_size = min(leading.values())
        for keeper in self._members.keys() - leading.keys():
            del self._members[keeper]


class Reservoir(Generic[T]):
    """A uniform sample of items (Vitter's algorithm R); the same items give the same sample.

    Attributes:
        seen: Number of items so far.
        drawn: The sample, in no particular order.
    """

    def __init__(self, most: int) -> None:
        """Draw at most `most` items."""
        self._most = most
        self._random = Random(0)
        self.drawn: list[T] = []
        self.seen = 0

    def add(self, item: T) -> None:
        """Add an item to those that the sample is drawn from."""
        self.seen += 1
        if len(self.drawn) < self._most:
            self.drawn.append(item)
        elif (place := self._random.randrange(self.seen)) < self._most:
            self.drawn[place] = item


@dataclass(frozen=True, slots=True)
class DuplicatePair:
    """A duplicate and its keeper."""

    duplicate: bytes
    reason: str
    match: KeeperMatch


def duplicate_pairs(plan: Plan) -> Iterator[DuplicatePair]:
    """Yield the duplicates of a plan with their keepers."""
    for raw_id, verdict in zip(plan.ids, plan.verdicts, strict=True):
        if verdict.match is not None:
            yield DuplicatePair(raw_id, verdict.reason, verdict.match)


class Evidence:
    """Collects a fair sample of pairs, and the keepers of the most duplicates, in bounded memory."""

    def __init__(self, samples: int, groups: int, counted: int = 0) -> None:
        """Collect the evidence for a report.

        Args:
            samples: Size of the sample of pairs.
            groups: Number of groups to report.
            counted: Number of groups that another reader of `largest` needs.
        """
        self._groups = groups
        self.largest: LargestGroups[DuplicatePair] = LargestGroups(max(groups, counted))
        self._near: Reservoir[tuple[int, DuplicatePair]] = Reservoir(samples)

    def observe(self, plan: Plan) -> None:
        """Count and sample the duplicates of one batch."""
        for pair in duplicate_pairs(plan):
            self.largest.add(pair.match.keeper, pair)
            # Exact duplicates need no check by a person.
            if pair.reason == "near":
                self._near.add((self._near.seen, pair))

    def pairs(self) -> list[DuplicatePair]:
        """Return the sample, in the order of decision."""
        return [pair for _, pair in sorted(self._near.drawn, key=itemgetter(0))]

    def groups(self) -> list[tuple[bytes, int]]:
        """Return the keepers of the most duplicates, each with its number of duplicates."""
        return self.largest.sizes()[: self._groups]


Beginnings = Callable[[Iterable[bytes]], Mapping[bytes, str]]
"""Given raw ids, returns the beginnings of these records' texts."""


def evidence_json(evidence: Evidence, beginnings: Beginnings) -> dict[str, Any]:
    """Return the evidence as JSON values, with the beginnings of the texts."""
    groups = evidence.groups()
    texts = beginnings([keeper for keeper, _ in groups])
    return {
        "pairs": list(_pairs_json(evidence.pairs(), beginnings)),
        "groups": [
            {"keeper": extended(keeper), "duplicates": size, "text": texts.get(keeper, "")[:MAX_SHOWN]}
            for keeper, size in groups
        ],
    }


def _pairs_json(pairs: Sequence[DuplicatePair], beginnings: Beginnings) -> Iterator[dict[str, Any]]:
    """Yield the pairs as JSON values, with the texts from a little before their first difference."""
    for portion in chunked(pairs, PAIRS_AT_ONCE):
        texts = beginnings(raw_id for pair in portion for raw_id in (pair.duplicate, pair.match.keeper))
        for pair in portion:
            shown = (texts.get(pair.duplicate, ""), texts.get(pair.match.keeper, ""))
            duplicate_text, keeper_text = cut_before_difference(*shown)
            yield pair_json(pair, duplicate_text, keeper_text)


def pair_json(pair: DuplicatePair, duplicate_text: str, keeper_text: str) -> dict[str, Any]:
    """Return a pair as JSON values."""
    return {
        "duplicate": extended(pair.duplicate),
        "keeper": extended(pair.match.keeper),
        "reason": pair.reason,
        "distance": pair.match.distance,
        "similarity": pair.match.similarity and round(pair.match.similarity, 4),
        "duplicate_text": duplicate_text,
        "keeper_text": keeper_text,
    }


def evidence_text(shown: Mapping[str, Any]) -> str:
    """Return the evidence as text.

    Args:
        shown: The values that `evidence_json` returns.
    """
    lines = list[str]()
    if shown["pairs"]:
        lines.append("\nsome near duplicates")
    for pair in shown["pairs"]:
        lines += pair_lines(pair)
    if shown["groups"]:
        lines.append("\nlargest groups")
    for group in shown["groups"]:
        keeper, duplicates = format_id(group["keeper"]), group["duplicates"]
        lines.append(f"  {keeper} is the keeper of {duplicates:,} more: {group['text']}")
    return "\n".join(lines)


def pair_lines(pair: Mapping[str, Any]) -> list[str]:
    """Return a pair as lines of text.

    Args:
        pair: The values that `pair_json` returns.
    """
    distance = "" if pair["distance"] is None else f"distance {pair['distance']}"
    similarity = "" if pair["similarity"] is None else f"similarity {pair['similarity']:.2f}"
    measured = ", ".join(filter(None, (distance, similarity)))
    return [
        f"  {format_id(pair['duplicate'])} for {format_id(pair['keeper'])}: {measured}",
        f"    - {pair['duplicate_text']}",
        f"    + {pair['keeper_text']}",
    ]


# `evaluate` reads the first three.
PAIR_COLUMNS = {"keeper": str, "duplicate": str, "similarity": float, "distance": int, "reason": str}


def pair_rows(plan: Plan, show: Callable[[bytes], Any]) -> list[Row]:
    """Return a row for each duplicate of a plan, with the values of PAIR_COLUMNS.

    Args:
        plan: The plan.
        show: Returns a raw id as the table has it.
    """
    return [
        (
            show(pair.match.keeper),
            show(pair.duplicate),
            None if pair.match.similarity is None else round(pair.match.similarity, 4),
            pair.match.distance,
            pair.reason,
        )
        for pair in duplicate_pairs(plan)
    ]
