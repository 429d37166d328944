"""Summaries of texts, so that many pairs can be compared without keeping whole texts in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dedup_job.fingerprint.shingles import NUMBER_PATTERN, comparable_text
from dedup_job.records import digest

# Characters of a text that are searched for differences.
SUMMARY_CHARACTERS = 10_000


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
        summaries[raw_id] = TextSummary(text[:SUMMARY_CHARACTERS], len(text), *digests)
    return summaries


def differ_in_numbers_only(first: TextSummary | None, second: TextSummary | None) -> bool:
    """Return whether both texts exist, and differ in numbers and in nothing else."""
    if first is None or second is None:
        return False
    return first.rest == second.rest and first.numbers != second.numbers
