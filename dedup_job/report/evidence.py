"""Evidence for a report: a fair sample of pairs, and the largest groups, for a person to check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from dedup_job.document import Batch, Match
from dedup_job.mongo.shown_ids import extended
from dedup_job.plan import Plan
from dedup_job.report.largest import LargestGroups
from dedup_job.report.terminal import id_text


@dataclass(frozen=True, slots=True)
class Pair:
    """A duplicate and its keeper."""

    duplicate: bytes
    reason: str
    match: Match


class Evidence:
    """Collects a fair sample of pairs, and the keepers of the most duplicates, in bounded memory."""

    def __init__(self, samples: int, groups: int, counted: int = 0) -> None:
        """Collect the evidence for a report.

        Args:
            samples: Size of the sample of pairs.
            groups: Number of groups to report.
            counted: Number of groups that another reader of `largest` needs.
        """
        self._samples, self._groups = samples, groups
        self.largest: LargestGroups[Pair] = LargestGroups(max(groups, counted))
        self._random = Random(0)  # seeded, so that two reports of one source show the same pairs
        self._pairs: list[tuple[int, Pair]] = []
        self._seen = 0

    def observe(self, _: Batch, plan: Plan) -> None:
        """Count and sample the duplicates of one batch."""
        for raw_id, verdict in zip(plan.ids, plan.verdicts, strict=True):
            if verdict.match is not None:
                self._add(Pair(raw_id, verdict.reason, verdict.match))

    def pairs(self) -> list[Pair]:
        """Return the sample, in the order of decision."""
        return [pair for _, pair in sorted(self._pairs, key=lambda numbered: numbered[0])]

    def groups(self) -> list[tuple[bytes, int]]:
        """Return the keepers of the most duplicates, each with its number of duplicates."""
        return self.largest.sizes()[: self._groups]

    def _add(self, pair: Pair) -> None:
        self.largest.add(pair.match.keeper, pair)
        # Exact duplicates need no check by a person.
        if pair.reason != "near":
            return
        # Vitter's algorithm R: every pair is as likely to be in the sample as any other.
        self._seen += 1
        numbered = (self._seen, pair)
        if len(self._pairs) < self._samples:
            self._pairs.append(numbered)
        elif (place := self._random.randrange(self._seen)) < self._samples:
            self._pairs[place] = numbered


Beginnings = Callable[[Iterable[bytes]], Mapping[bytes, str]]
"""Given raw ids, returns the beginnings of these records' texts."""


def as_json(evidence: Evidence, beginnings: Beginnings) -> dict[str, Any]:
    """Return the evidence as JSON values, with the beginnings of the texts."""
    pairs, groups = evidence.pairs(), evidence.groups()
    ids = [raw_id for pair in pairs for raw_id in (pair.duplicate, pair.match.keeper)]
    texts = beginnings([*ids, *(keeper for keeper, _ in groups)])
    return {
        "pairs": [
            {
                "duplicate": extended(pair.duplicate),
                "keeper": extended(pair.match.keeper),
                "reason": pair.reason,
                "distance": pair.match.distance,
                "similarity": pair.match.similarity and round(pair.match.similarity, 4),
                "duplicate_text": texts.get(pair.duplicate, ""),
                "keeper_text": texts.get(pair.match.keeper, ""),
            }
            for pair in pairs
        ],
        "groups": [
            {"keeper": extended(keeper), "duplicates": size, "text": texts.get(keeper, "")}
            for keeper, size in groups
        ],
    }


def as_text(shown: Mapping[str, Any]) -> str:
    """Return the evidence as text.

    Args:
        shown: The values that `as_json` returns.
    """
    lines = []
    if shown["pairs"]:
        lines.append("\nsome near duplicates")
    for pair in shown["pairs"]:
        distance = "" if pair["distance"] is None else f"distance {pair['distance']}"
        similarity = "" if pair["similarity"] is None else f"similarity {pair['similarity']:.2f}"
        measured = ", ".join(filter(None, (distance, similarity)))
        lines.append(f"  {id_text(pair['duplicate'])} for {id_text(pair['keeper'])}: {measured}")
        lines += [f"    - {pair['duplicate_text']}", f"    + {pair['keeper_text']}"]
    if shown["groups"]:
        lines.append("\nlargest groups")
    for group in shown["groups"]:
        keeper, duplicates = id_text(group["keeper"]), group["duplicates"]
        lines.append(f"  {keeper} is the keeper of {duplicates:,} more: {group['text']}")
    return "\n".join(lines)
