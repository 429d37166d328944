"""The tables of `tune`, and the settings they suggest, as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dedup_job.analysis.match_conditions import segments_searched
from dedup_job.analysis.scores import TunedSettings
from dedup_job.analysis.settings_trials import BandResult, TextSample, ThresholdResult, choose_bands

# With fewer pairs than this the text says that the result is uncertain.
FEW_PAIRS = 30
LEGEND = (
    "  > present settings   * suggested settings: the cheapest whose recall is within 0.002 of the highest,",
    "  or the present ones if others save less than a tenth and find no more than chance explains.  For each",
    "  text: comparisons with other texts; those in vain, with no near-duplicate; bytes in memory of its",
    "  fingerprint and keys.",
)
LEVELS_LEGEND = "  with the present keys; dropped texts, without exact copies"


@dataclass(frozen=True, slots=True)
class TuneTables:
    """The tables of `tune`.

    Attributes:
        sample: The sample.
        at: Least similarity of near-duplicates.
        present: The present settings.
        records: Size of the whole collection.
        pairs: Near-duplicates in the sample, as pairs of distinct texts.
        rows: Results of several shapes of bands.
        levels: Results of several values of `min_similarity`.
    """

    sample: TextSample
    at: float
    present: TunedSettings
    records: int
    pairs: int
    rows: Sequence[BandResult]
    levels: Sequence[ThresholdResult]

    @property
    def best(self) -> BandResult | None:
        """The suggested keys; None if the sample has no near-duplicates."""
        return choose_bands(self.rows, self.records, self._now)

    @property
    def _now(self) -> TunedSettings:
        """The present settings with the `min_similarity` of the rows, for comparison with them."""
        return replace(self.present, min_similarity=self.at)

    def as_json(self) -> dict[str, Any]:
        """Return the tables as one JSON object."""
        sample, chosen = self.sample, self.best
        return {
            "read": sample.read,
            "texts": len(sample),
            "same_text": sample.same_text,
            "unchecked": sample.unchecked,
            "at": self.at,
            "pairs": self.pairs,
            "records": self.records,
            "present": asdict(self.present),
            "best": asdict(chosen.setting) if chosen else None,
            "rows": [row.as_json() for row in self.rows],
            "levels": [level.as_json() for level in self.levels],
        }

    def as_text(self) -> str:
        """Return the tables and the suggested settings as text."""
        sample = self.sample
        return "\n".join(
            [
                f"tune: the first {sample.read:,} records in `_id` order: {len(sample):,} distinct texts, "
                f"{sample.same_text:,} exact copies of these, {sample.unchecked:,} unchecked",
                f"  {self.pairs:,} pairs of texts are near-duplicates: similarity {self.at:g} or more",
                "",
                "   bands  rows  band_radius  recall  compared  in vain  bytes",
                *map(self._row_line, self.rows),
                "",
                *LEGEND,
                f"  {self._segments_line}",
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
    def _segments_line(self) -> str:
        radius = self.present.radius
        segments = segments_searched(self.sample.width, radius)
        found_by = f"{segments} segments find" if segments else "a comparison with every text finds"
        return f"In addition to the bands, {found_by} all fingerprints within radius {radius}."

    def _row_line(self, row: BandResult) -> str:
        setting, chosen = row.setting, self.best
        mark = (">" if setting == self._now else " ") + ("*" if row == chosen else " ")
        limit = "any" if setting.band_radius >= row.bits else setting.band_radius
        shape = f"{setting.rows:>4}  {limit:>11}" if setting.bands else f"{'-':>4}  {'-':>11}"
        return (
            f"{mark} {setting.bands:>5}  {shape}  {_share(row.recall.value)}  {row.compared:>8,.2f}  "
            f"{row.in_vain:>7,.2f}  {row.nbytes:>5}"
        )

    def _level_line(self, level: ThresholdResult) -> str:
        mark = ">" if level.min_similarity == self.present.min_similarity else " "
        shares = f"{_share(level.score.recall.value)}  {_share(level.score.precision.value):>9}"
        return f"{mark}  {level.min_similarity or 'none':>14}  {shares}  {level.dropped:>7,}"

    @property
    def _advice(self) -> str:
        chosen = self.best
        if chosen is None:
            return "the sample has no near-duplicates; try a larger --sample"
        lines = [
            f"suggested settings, with a recall of {chosen.recall} (95 % interval):",
            "",
            chosen.setting.as_toml(),
        ]
        if self.pairs < FEW_PAIRS:
            lines.append(f"\nonly {self.pairs} pairs: try a larger --sample before you rely on this")
        if chosen.setting != self.present:
            lines.append("\na target made with other settings must be rebuilt with these")
        return "\n".join(lines)


def _share(value: float | None) -> str:
    return f"{'-':>6}" if value is None else f"{value:.4f}"
