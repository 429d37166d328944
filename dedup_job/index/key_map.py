"""A key map: from a key to the texts that have it, in the order of arrival."""

from __future__ import annotations

from dedup_job.index.key_map_buckets import (
    LEAST_WIDTH,
    MOST_WIDTH,
    Keys,
    build_empty,
    insert_entries,
    partition_keys,
    rebuild,
)
from dedup_job.index.key_map_search import Hits, KeyRule, Queries, Simhashes, search
from dedup_job.native.arrays import Flags

# Rebuild a map when this share of its slots is used.
FULL = 0.95


class KeyMap:
    """A map from a 32-bit key to the first texts that have it; texts are never removed."""

    def __init__(self, rule: KeyRule) -> None:
        self._rule = rule
        self._texts = 0
        self._used_slots = 0
        self._entries = build_empty(LEAST_WIDTH)

    def add(self, keys: Keys, has_key: Flags) -> None:
        """Add n texts, which get the next n numbers; a text without a key gets a number, too.

        Args:
            keys: uint32, shape (n,).
            has_key: bool, shape (n,).
        """
        keys, texts = partition_keys(keys, has_key, self._texts)
        self._texts += len(has_key)
        inserted = 0
        if not self._needs_rebuild(len(keys)):
            inserted, added = insert_entries(keys, texts, self._rule.max_texts, self._entries)
            self._used_slots += added
        if inserted < len(keys):
            self._entries, self._used_slots = rebuild(
                self._entries, self._width, keys[inserted:], texts[inserted:], self._rule.max_texts
            )

    def _needs_rebuild(self, new: int) -> bool:
        """Return whether `new` more entries would leave few free slots, or call for many more buckets."""
        # The directory has an offset for each bucket, and the end of the last.
        # True from four times the present buckets on, so that a growing map is rebuilt rarely.
        has_few_buckets = self._width > (len(self._entries.directory) - 1).bit_length()
        return has_few_buckets or self._used_slots + new > FULL * len(self._entries.tags)

    @property
    def _width(self) -> int:
        """Bits that should choose a bucket, for the present number of texts."""
        buckets = self._texts // self._rule.load
        return min(max(buckets.bit_length(), LEAST_WIDTH), MOST_WIDTH)

    def search(self, keys: Keys, queries: Queries, prints: Simhashes, hits: Hits) -> None:
        """Record for each query the near texts that have its key, without the query itself.

        Args:
            keys: uint32, shape (n,), one for each query.
            queries: The n texts to search for.
            prints: Fingerprints of all texts, by number.
            hits: Receives the hits.
        """
        search(keys, queries, self._rule, prints, self._entries, hits)
