"""How many near duplicates differ from their kept record in a number, in a sample of pairs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dedup_job.commands.record_lookup import BEGINNING, fetch_duplicates, fetch_keepers
from dedup_job.errors import DedupError
from dedup_job.fingerprint.shingles import NUMBER_PATTERN, comparable_text
from dedup_job.pipeline.command_context import Context
from dedup_job.records import Counts, Plan, chunked, digest
from dedup_job.report.decision_lines import cut_before_difference
from dedup_job.report.sampled_pairs_and_groups import (
    PAIRS_AT_ONCE,
    DuplicatePair,
    Reservoir,
    duplicate_pairs,
    pair_json,
    pair_lines,
)
from dedup_job.report.terminal_text import wrap_text

# Pairs that are compared: with 500, the share is known to about 4 % of all (95 % of the time).
COMPARED = 500
SETTING = '[match] numbers = "distinguish"'
# Samples that a report shows.
SHOWN = 3
# Characters after which reading of pairs stops: with very long texts, fewer are enough.
MOST_CHARACTERS = 50_000_000

log = logging.getLogger("dedup_job")


class NearPairs(Reservoir[DuplicatePair]):
    """A uniform sample of the near duplicates of a run; call `observe` with each plan."""

    def __init__(self, most: int = COMPARED) -> None:
        super().__init__(most)

    def observe(self, plan: Plan) -> None:
        """Draw from the near duplicates of one batch."""
        for pair in duplicate_pairs(plan):
            if pair.reason == "near":
                self.add(pair)


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


@dataclass(frozen=True, slots=True)
class TextSummary:
    """The part of a text that stays in memory while its pair is compared.

    Attributes:
        beginning: The first 10,000 characters.
        length: Number of characters.
        numbers: Digest of its numbers.
        rest: Digest of the comparable text with all numbers replaced by 0.
    """

    beginning: str
    length: int
    numbers: bytes = b""
    rest: bytes = b""


def summarize_texts(texts: Iterable[tuple[bytes, str]], with_numbers: bool) -> dict[bytes, TextSummary]:
    """Return a summary of each text, by id; whole texts are not kept in memory.

    Args:
        texts: Raw ids and cleaned texts.
        with_numbers: Whether the digests are needed.
    """
    summaries = {}
    for raw_id, text in texts:
        digests = []
        if with_numbers:
            numbers = " ".join(NUMBER_PATTERN.findall(text))
            rest = comparable_text(NUMBER_PATTERN.sub("0", text))
            digests = [digest(numbers.encode()), digest(rest.encode())]
        summaries[raw_id] = TextSummary(text[:BEGINNING], len(text), *digests)
    return summaries


def differ_in_numbers_only(first: TextSummary | None, second: TextSummary | None) -> bool:
    """Return whether both texts exist, and differ in numbers and in nothing else."""
    if first is None or second is None:
        return False
    return first.rest == second.rest and first.numbers != second.numbers


def compare_numbers(
    context: Context, near: NearPairs, counts: Counts, shown: int = SHOWN
) -> NumberDifferences | None:
    """Count the near duplicates that differ from their kept record in a number; re-reads their records.

    Args:
        context: The open connections.
        near: The near duplicates of a run.
        counts: The verdicts of the run.
        shown: Most samples to return; their texts must not get into a log, or into the report of a run.

    Returns:
        The counts; None if texts with different numbers never match, if there are no near duplicates, or if
        the records cannot be read.
    """
    if context.recipe.matching.numbers == "distinguish":
        return None
    compared = differing = alone = 0
    samples = list[tuple[DuplicatePair, str, str]]()
    try:
        for pair, duplicate, keeper in _read_summaries(context, near):
            compared += 1
            differing += duplicate.numbers != keeper.numbers
            if differ_in_numbers_only(duplicate, keeper):
                alone += 1
                if len(samples) < shown:
                    texts = cut_before_difference(duplicate.beginning, keeper.beginning)
                    samples.append((pair, *texts))
    except DedupError as error:
        # The decisions are made, and must not end in a failure because of this count.
        log.warning("near duplicates were not searched for other numbers: %s", error)
        return None
    # With `prefer`, a run decides some records again at its end, and their pairs were not seen.
    total = counts.near if context.recipe.matching.prefer else near.seen
    return NumberDifferences(total, compared, differing, alone, samples) if compared and total else None


def _read_summaries(
    context: Context, near: NearPairs
) -> Iterator[tuple[DuplicatePair, TextSummary, TextSummary]]:
    """Yield each pair with the summaries of its texts; pairs with a deleted record are left out."""
    characters = 0
    for pairs in chunked(near.drawn, PAIRS_AT_ONCE):
        duplicates = summarize_texts(fetch_duplicates(context, [pair.duplicate for pair in pairs]), True)
        keepers = summarize_texts(fetch_keepers(context, [pair.match.keeper for pair in pairs]), True)
        for pair in pairs:
            duplicate, keeper = duplicates.get(pair.duplicate), keepers.get(pair.match.keeper)
            if duplicate is not None and keeper is not None:
                yield pair, duplicate, keeper
        characters += sum(summary.length for summary in (*duplicates.values(), *keepers.values()))
        if characters > MOST_CHARACTERS:
            return
