"""How many near duplicates differ from their kept record in a number: a sample of pairs, and the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dedup_job.records import Batch, Plan
from dedup_job.report.sampled_pairs_and_groups import DuplicatePair, Reservoir, pair_json, pair_lines
from dedup_job.report.terminal_text import wrap_text

# Pairs that are compared: with 500, the share is known to about 4 % of all (95 % of the time).
COMPARED = 500
SETTING = '[match] numbers = "distinguish"'


class NearPairs(Reservoir[DuplicatePair]):
    """A uniform sample of the near duplicates of a run; call `observe` with each batch and its plan."""

    def __init__(self, most: int = COMPARED) -> None:
        super().__init__(most)

    def observe(self, _: Batch, plan: Plan) -> None:
        """Draw from the near duplicates of one batch."""
        for raw_id, verdict in zip(plan.ids, plan.verdicts, strict=True):
            if verdict.match is not None and verdict.reason == "near":
                self.add(DuplicatePair(raw_id, verdict.reason, verdict.match))


@dataclass(frozen=True, slots=True)
class NumberDifferences:
    """How many near duplicates differ from their kept record in a number.

    Attributes:
        near: Number of near duplicates.
        compared: Number of these whose texts were compared.
        differing: Number of compared pairs whose texts differ in a number.
        alone: Number of compared pairs whose texts differ in numbers and in nothing else.
        samples: Some of the latter, each with the texts of duplicate and kept record.
    """

    near: int
    compared: int
    differing: int
    alone: int
    samples: Sequence[tuple[DuplicatePair, str, str]] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the numbers and the samples as JSON values."""
        return {
            "near_duplicates": self.near,
            "compared": self.compared,
            "differ_in_a_number": self.differing,
            "differ_in_numbers_alone": self.alone,
            **({"pairs": [pair_json(*sample) for sample in self.samples]} if self.samples else {}),
        }

    def as_text(self) -> str:
        """Return the numbers, the setting that keeps such texts apart, and the samples; "" if none differ."""
        if not self.differing:
            return ""
        is_exact = self.compared == self.near
        about = "" if is_exact else "about "
        basis = "" if is_exact else f" (estimated from {self.compared:,})"
        differing, alone = (f"{about}{self._scale(count):,}" for count in (self.differing, self.alone))
        sentence = (
            f"{differing} of {self.near:,} near duplicates differ from their kept record in a number{basis}, "
            f"{alone} of them in numbers alone"
        )
        lines = [*wrap_text(sentence, "  "), f"  to keep such records: {SETTING}"]
        if self.samples:
            lines.append("\nsome that differ in numbers alone")
        for sample in self.samples:
            lines += pair_lines(pair_json(*sample))
        return "\n".join(lines)

    def _scale(self, count: int) -> int:
        """Return the estimate for all near duplicates."""
        return round(count * self.near / self.compared)
