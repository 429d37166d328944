"""The text that is judged: extracted from the fields of raw records, and cleaned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dedup_job.records import digest
from dedup_job.text.clean import Cleaner
from dedup_job.text.fields import ExtractedText, TextFields


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the text of records: extracts the fields and cleans them."""

    fields: TextFields
    cleaner: Cleaner = Cleaner()

    def texts(self, raws: Sequence[bytes]) -> list[str]:
        """Return the cleaned text of each record; "" where it has none."""
        return [each.text for each in self.extract(raws)]

    def reasons(self, raws: Sequence[bytes]) -> list[str]:
        """Return the reason why a record has no text; "" where it has one."""
        return [each.reason for each in self.extract(raws)]

    def text_digests(self, raws: Sequence[bytes]) -> list[bytes]:
        """Return the digest that stands in the ledger for the text of each record, in its group."""
        extracted_texts = self.extract(raws)
        text_digests = [digest(each.text.encode("utf-8", "surrogatepass")) for each in extracted_texts]
        return [
            digest(text_digest + each.group) if each.group else text_digest
            for text_digest, each in zip(text_digests, extracted_texts, strict=True)
        ]

    def extract(self, raws: Sequence[bytes]) -> list[ExtractedText]:
        """Return the cleaned text of each record, or the reason why it has none."""
        extracted_texts = self.fields.texts_of(raws)
        # A repeated text is cleaned once.
        texts = list({each.text: None for each in extracted_texts if not each.reason})
        cleaned = dict(zip(texts, self.cleaner.clean_all(texts), strict=True))
        return [each if each.reason else _replace_text(each, *cleaned[each.text]) for each in extracted_texts]


def _replace_text(extracted: ExtractedText, text: str, reason: str) -> ExtractedText:
    if reason:
        return ExtractedText("", reason)
    # `_replace` of a named tuple takes three times as long.
    return ExtractedText(text, "", extracted.is_partial, extracted.group)
