"""The table of `dedup-job tune`, and the settings to take from it, for people and for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dedup_job.match.minhash import PERMUTATIONS
from dedup_job.report.scoring import Setting
from dedup_job.report.tuning import Row, Sample, best

FEW_PAIRS = 30


@dataclass(frozen=True, slots=True)
class Tuning:
    """The table, and what to make of it.

    records  size of the whole collection
    note     why a row is missing; "" where none is
    """

    sample: Sample
    at: float
    present: Setting
    records: int
    rows: Sequence[Row]
    note: str = ""

    @property
    def best(self) -> Setting | None:
        """The settings to take; None where the sample has no near-duplicates."""
        return best(self.rows, self.records, len(self.sample), self.present)

    @property
    def pairs(self) -> int:
        """Near-duplicates in the sample, as pairs of distinct texts."""
        return self.rows[0].score.hits + self.rows[0].score.misses

    def as_json(self) -> dict[str, Any]:
        """Return it as one JSON object."""
        sample, chosen = self.sample, self.best
        return {
            "read": sample.read,
            "texts": len(sample),
            "same_text": sample.same_text,
            "unjudged": sample.unjudged,
            "at": self.at,
            "pairs": self.pairs,
            "records": self.records,
            "present": asdict(self.present),
            "best": asdict(chosen) if chosen else None,
            "rows": [row.as_json() for row in self.rows],
            "note": self.note,
        }

    def as_text(self) -> str:
        """Return the table for people, and the best settings as lines for the configuration file."""
        sample = self.sample
        lines = [
            f"tune: the first {sample.read:,} records in `_id` order: {len(sample):,} distinct texts, "
            f"{sample.same_text:,} with an earlier one's text, {sample.unjudged:,} unjudged",
            f"  {self.pairs:,} pairs of distinct texts are near-duplicates: Jaccard {self.at} or more",
            "",
            "      bits  radius  min_similarity  recall  precision      F1  probes  candidates    near  dropped",
            *(self._line(row) for row in self.rows),
            "",
            "  > present settings  * cheapest of those with the best F1, within 0.01  # MinHash, a yardstick",
            "  for a document: buckets probed, fingerprints met in them, and those of them within the radius",
        ]
        return "\n".join([*lines, *filter(None, [self.note and f"  {self.note}"]), "", self._advice()])

    def _line(self, row: Row) -> str:
        setting = row.setting
        marks = (">" if setting == self.present else " ") + ("*" if setting and setting == self.best else " ")
        bits, radius = (setting.bits, setting.radius) if setting else (PERMUTATIONS, "-")
        shares = (row.score.recall.value, row.score.precision.value, row.score.f1.value)
        recall, precision, f1 = ("-" if share is None else f"{share:.4f}" for share in shares)
        return (
            f"{marks if setting else '# '}  {bits:>6}  {radius:>6}  {row.min_similarity or 'none':>11}  "
            f"{recall:>6}  {precision:>9}  {f1:>6}  "
            f"{row.probes:>6,}  {row.candidates:>10,.2f}  {row.near:>6,.2f}  {row.dropped:>7,}"
        )

    def _advice(self) -> str:
        chosen = self.best
        if chosen is None:
            return "the sample has no near-duplicates to find; raise --sample"
        row = next(row for row in self.rows if row.setting == chosen)
        lines = [
            f"with 95 % intervals: recall {row.score.recall}, precision {row.score.precision}, for",
            "",
            chosen.as_toml(),
        ]
        if self.pairs < FEW_PAIRS:
            lines.append(f"\nfrom {self.pairs} pairs alone: raise --sample before you rely on it")
        if chosen != self.present:
            lines.append("\na target made with other settings must be made anew")
        return "\n".join(lines)
