"""The tables of `dedup-job tune`, and the settings to take from them, for people and for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dedup_job.lab.rules import segments_searched
from dedup_job.lab.scoring import Setting
from dedup_job.lab.tuning import Level, Row, Sample, best

FEW_PAIRS = 30
LEGEND = (
    "  > present settings   * the best: the cheapest of those whose recall is within 0.002 of the highest;",
    "  the present ones, where others save less than a tenth and find no more than may be chance.  For each",
    "  text: with how many others it is compared, how many of them are no near-duplicates, and bytes in",
    "  memory of its fingerprint and keys.",
)
LEVELS_LEGEND = "  all of them with the present keys; dropped are texts, exact copies not counted"


@dataclass(frozen=True, slots=True)
class Tuning:
    """The tables, and what to make of them.

    at       least similarity of near-duplicates
    present  the settings as they are
    records  size of the whole collection
    pairs    near-duplicates in the sample, as pairs of different texts
    rows     what bands of several shapes find
    levels   what several levels of `min_similarity` drop
    """

    sample: Sample
    at: float
    present: Setting
    records: int
    pairs: int
    rows: Sequence[Row]
    levels: Sequence[Level]

    @property
    def best(self) -> Row | None:
        """The keys to take; None where the sample has no near-duplicates."""
        return best(self.rows, self.records, self._now)

    @property
    def _now(self) -> Setting:
        """The present keys as the rows have them."""
        return replace(self.present, min_similarity=self.at)

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
            "best": asdict(chosen.setting) if chosen else None,
            "rows": [row.as_json() for row in self.rows],
            "levels": [level.as_json() for level in self.levels],
        }

    def as_text(self) -> str:
        """Return the tables for people, and the best settings as lines for the configuration file."""
        sample = self.sample
        return "\n".join(
            [
                f"tune: the first {sample.read:,} records in `_id` order: {len(sample):,} different texts, "
                f"{sample.same_text:,} with an earlier one's text, {sample.unjudged:,} unjudged",
                f"  {self.pairs:,} pairs of these are near-duplicates: similarity {self.at:g} or more",
                "",
                "   bands  rows  band_radius  recall  compared  in vain  bytes",
                *map(self._line, self.rows),
                "",
                *LEGEND,
                f"  {self._beside}",
                "",
                "   min_similarity  recall  precision  dropped",
                *map(self._level_line, self.levels),
                "",
                LEVELS_LEGEND,
                "",
                self._advice,
            ]
        )

    @property
    def _beside(self) -> str:
        radius = self.present.radius
        segments = segments_searched(self.sample.width, radius)
        by = f"{segments} segments" if segments else "comparing all"
        return f"Beside the bands, {by} find all fingerprints within radius {radius}."

    def _line(self, row: Row) -> str:
        setting, chosen = row.setting, self.best
        mark = (">" if setting == self._now else " ") + ("*" if row == chosen else " ")
        limit = "any" if setting.band_radius >= row.bits else setting.band_radius
        shape = f"{setting.rows:>4}  {limit:>11}" if setting.bands else f"{'-':>4}  {'-':>11}"
        return (
            f"{mark} {setting.bands:>5}  {shape}  {_share(row.recall.value)}  {row.compared:>8,.2f}  "
            f"{row.in_vain:>7,.2f}  {row.nbytes:>5}"
        )

    def _level_line(self, level: Level) -> str:
        mark = ">" if level.min_similarity == self.present.min_similarity else " "
        shares = f"{_share(level.score.recall.value)}  {_share(level.score.precision.value):>9}"
        return f"{mark}  {level.min_similarity or 'none':>14}  {shares}  {level.dropped:>7,}"

    @property
    def _advice(self) -> str:
        chosen = self.best
        if chosen is None:
            return "the sample has no near-duplicates to find; raise --sample"
        lines = [f"with its 95 % interval: recall {chosen.recall}, for", "", chosen.setting.as_toml()]
        if self.pairs < FEW_PAIRS:
            lines.append(f"\nfrom {self.pairs} pairs alone: raise --sample before you rely on it")
        if chosen.setting != self.present:
            lines.append("\na target made with other settings must be made anew")
        return "\n".join(lines)


def _share(value: float | None) -> str:
    return f"{'-':>6}" if value is None else f"{value:.4f}"
