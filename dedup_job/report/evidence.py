"""Evidence: which records would be dropped for which, to look at before anything is dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from dedup_job.document import Batch, Match, Verdict
from dedup_job.mongo.shown_ids import extended
from dedup_job.plan import Plan
from dedup_job.report.largest import LargestGroups
from dedup_job.report.terminal import id_text

BEGINNING = 60


@dataclass(frozen=True, slots=True)
class Pair:
    """A duplicate and the keeper that stands for it."""

    duplicate: bytes
    reason: str
    match: Match


class Evidence:
    """Collects a fair sample of pairs, and the keepers that stand for the most records, in bounded memory."""

    def __init__(self, samples: int, groups: int, counted: int = 0) -> None:
        """Keep `samples` pairs and name the `groups` largest groups; more of them may be counted."""
        self._samples, self._groups = samples, groups
        self.largest: LargestGroups[Pair] = LargestGroups(max(groups, counted))
        self._random = Random(0)
        self._pairs: list[tuple[int, Pair]] = []
        self._seen = 0

    def observe(self, _: Batch, plan: Plan) -> None:
        """Take in the verdicts of one batch."""
        for raw_id, verdict in zip(plan.ids, plan.verdicts, strict=True):
            if verdict.match is not None:
                self._take(raw_id, verdict, verdict.match)

    def pairs(self) -> list[Pair]:
        """Return the sample, in the order of decision."""
        return [pair for _, pair in sorted(self._pairs, key=lambda numbered: numbered[0])]

    def groups(self) -> list[tuple[bytes, int]]:
        """Return the keepers that stand for the most duplicates, with their number."""
        return self.largest.sizes()[: self._groups]

    def _take(self, raw_id: bytes, verdict: Verdict, match: Match) -> None:
        """Count a duplicate, and sample it: near ones first, as those are the ones to look at."""
        pair = Pair(raw_id, verdict.reason, match)
        self.largest.add(match.keeper, pair)
        if verdict.reason != "near":
            return
        self._seen += 1
        sampled = (self._seen, pair)
        if len(self._pairs) < self._samples:
            self._pairs.append(sampled)
        elif (place := self._random.randrange(self._seen)) < self._samples:
            self._pairs[place] = sampled


Beginnings = Callable[[Iterable[bytes]], Mapping[bytes, str]]


def as_json(evidence: Evidence, beginnings: Beginnings) -> dict[str, Any]:
    """Return the evidence as JSON values; `beginnings` gives the texts of records."""
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
    """Return the evidence for people."""
    lines = []
    if shown["pairs"]:
        lines.append("\nsome near duplicates")
    for pair in shown["pairs"]:
        distance = "" if pair["distance"] is None else f"distance {pair['distance']}"
        similarity = "" if pair["similarity"] is None else f"similarity {pair['similarity']:.2f}"
        how = ", ".join(filter(None, (distance, similarity)))
        lines.append(f"  {id_text(pair['duplicate'])} for {id_text(pair['keeper'])}: {how}")
        lines += [f"    - {pair['duplicate_text']}", f"    + {pair['keeper_text']}"]
    if shown["groups"]:
        lines.append("\nlargest groups")
    for group in shown["groups"]:
        keeper, more = id_text(group["keeper"]), group["duplicates"]
        lines.append(f"  {keeper} stands for {more:,} more: {group['text']}")
    return "\n".join(lines)
