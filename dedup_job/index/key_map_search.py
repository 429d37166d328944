"""Search a key map for texts that share a key and are near enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.index.key_map_buckets import (
    FREE,
    TAGS_PER_WORD,
    Entries,
    Keys,
    bucket_of,
    bucket_width,
    clear_first_mark,
    first_mark,
    match_tags,
    middle_of,
    repeat_tag,
    tag_of,
    text_mask,
)
from dedup_job.native.arrays import Flags, Numbers
from dedup_job.native.numba_compile import compiled, compiled_inline, popcount, prefetch

Fingerprints = npt.NDArray[np.uint64]  # (n, words)

# The distance noted when one of the two texts has no fingerprint.
NO_DISTANCE = 255


class Hits(NamedTuple):
    """A buffer of hits; each hit is one integer that sorts by query, then distance, then text.

    Attributes:
        numbers: uint64, shape (capacity,); query in the upper 24 bits, distance in 8, text in the lower 32.
        total: int64, shape (1,), hits counted, which may be more than fit.
    """

    numbers: npt.NDArray[np.uint64]
    total: Numbers


def collect_hits(search: Callable[[Hits], None], capacity: int) -> npt.NDArray[np.uint64]:
    """Run a search and return its packed hits, in the order of recording.

    A search with more than `capacity` hits is run a second time, with room for all of them.
    """
    hits = Hits(np.empty(capacity, np.uint64), np.zeros(1, np.int64))
    search(hits)
    total = int(hits.total[0])
    return hits.numbers[:total] if total <= capacity else collect_hits(search, total)


def unpack_hits(
    numbers: npt.NDArray[np.uint64],
) -> tuple[Numbers, Numbers, Numbers]:
    """Unpack hits into queries, distances and texts.

    >>> [column.tolist() for column in unpack_hits(np.array([7 << 40 | 3 << 32 | 11], np.uint64))]
    [[7], [3], [11]]
    """
    queries, distances = numbers >> np.uint64(40), numbers >> np.uint64(32) & np.uint64(0xFF)
    texts = numbers & np.uint64(0xFFFF_FFFF)
    return queries.astype(np.int64), distances.astype(np.int64), texts.astype(np.int64)


@compiled_inline
def record_hit(query: int, distance: int, text: int, hits: Hits) -> None:
    """Count a hit, and store it if it fits."""
    if hits.total[0] < len(hits.numbers):
        upper = np.uint64(query) << np.uint64(8) | np.uint64(distance)
        hits.numbers[hits.total[0]] = upper << np.uint64(32) | np.uint64(text)
    hits.total[0] += 1


@compiled_inline
def differing_bits(left: Fingerprints, left_row: int, right: Fingerprints, right_row: int) -> np.int64:
    """Return the Hamming distance of two fingerprints, given by array and row."""
    distance = np.int64(0)
    for word in range(left.shape[1]):
        distance += np.int64(popcount(left[left_row, word] ^ right[right_row, word]))
    return distance


SEGMENT_BITS = 16
# A segment key: upper bits of the scattered segment, all bits of the next segment, the segment's lower bits.
KEY_UPPER_BITS, KEY_LOWER_BITS = 14, 2
# The first pass prefetches the buckets of the query this many places later, and their directory twice as far.
QUERIES_AHEAD = 4
# The last pass prefetches the fingerprint of the pair this many places later.
PAIRS_AHEAD = 16
# Pairs that a pass goes over: they fit into the processor's first-level cache.
PAIRS_AT_ONCE = 1 << 10


class Simhashes(NamedTuple):
    """The fingerprints of some texts.

    Attributes:
        bits: uint64, shape (n, words).
        has_fingerprint: bool, shape (n,), whether the text has a fingerprint.
    """

    bits: Fingerprints
    has_fingerprint: Flags


class KeyRule(NamedTuple):
    """How a key map stores keys and what a search in it returns.

    Attributes:
        distance: Greatest Hamming distance of two fingerprints that count as near.
        max_texts: Texts stored for one key, the first ones.
        max_hits: Near texts returned for one query, the first ones.
        load: Average number of entries in a bucket above which there are more buckets.
        segment: Index of the fingerprint segment that the keys are made of, together with the segment after
            it; a search then also returns texts whose second segment differs in one bit.  -1 for keys that
            must be equal.
    """

    distance: int
    max_texts: int
    max_hits: int
    load: int
    segment: int = -1


class SeenPairs(NamedTuple):
    """Work space of a search: pairs of a query and a text; the pairs of one query are contiguous.

    Attributes:
        queries: int64, shape (capacity,).
        others: int64, shape (capacity,); after the first pass slots of entries, then text numbers.
        near: uint64, shape (capacity,), near texts of one query, packed so that they sort by text.
    """

    queries: Numbers
    others: Numbers
    near: npt.NDArray[np.uint64]


class Queries(NamedTuple):
    """The n texts to search for.

    Attributes:
        texts: int64, shape (n,), their own numbers, which are never hits; -1 for a query to skip.
        prints: Their fingerprints.
    """

    texts: Numbers
    prints: Simhashes


@compiled
def search(
    keys: Keys, queries: Queries, rule: KeyRule, prints: Simhashes, entries: Entries, hits: Hits
) -> None:
    """Record the near texts that have each query's key, without the query itself.

    Args:
        keys: uint32, shape (n,), one for each query.
        queries: The texts to search for.
        rule: What counts as near, and how many hits to record.
        prints: Fingerprints of all texts, by number.
        entries: The entries of the map.
        hits: Receives the hits.
    """
    pairs, query, texts = _allocate_pairs(PAIRS_AT_ONCE), 0, queries.texts
    while query < len(keys):
        next_query, count = _collect_slots(keys, texts, query, rule.segment, entries, pairs)
        if next_query == query:  # the work space is too small for a single query
            pairs = _allocate_pairs(2 * len(pairs.queries))
        flips = 0 if rule.segment < 0 else 1
        query, count = next_query, _resolve_texts(keys, texts, flips, entries, pairs, count)
        _record_near(queries.prints, rule, prints, pairs, count, hits)


@compiled
def _allocate_pairs(capacity: int) -> SeenPairs:
    return SeenPairs(
        np.empty(capacity, np.int64), np.empty(capacity, np.int64), np.empty(capacity, np.uint64)
    )


@compiled
def _collect_slots(
    keys: Keys, texts: Numbers, query: int, segment: int, entries: Entries, pairs: SeenPairs
) -> tuple[int, int]:
    """Collect the slots whose tag matches a query's key, from one query on, until the work space is full.

    Returns:
        The query to continue with, and the number of slots collected for the queries before it.
    """
    directory, words = entries.directory, entries.tags.view(np.uint64)
    width, count = bucket_width(directory), 0
    buckets, fixed = _searched_buckets(segment, width)
    while query < len(keys):
        _prefetch_buckets(query, keys, buckets, entries)
        count_before, tags = count, repeat_tag(tag_of(keys[query]))
        for flip in range(buckets if texts[query] >= 0 else 0):
            bucket = _flipped_bucket(keys[query], flip, width)
            begin, end = np.int64(directory[bucket]), np.int64(directory[bucket + 1])
            for word in range(begin // TAGS_PER_WORD, (end + TAGS_PER_WORD - 1) // TAGS_PER_WORD):
                # With one bit of the bucket flipped already, the tag must be equal.
                marks = match_tags(words[word], tags, repeat_tag(fixed if flip == 0 else 0xFF))
                while marks:
                    slot = word * TAGS_PER_WORD + first_mark(marks)
                    marks = clear_first_mark(marks)
                    # The first and last word may hold tags of neighbouring buckets.
                    if begin <= slot < end:
                        if count == len(pairs.others):
                            return query, count_before
                        pairs.queries[count], pairs.others[count] = query, slot
                        prefetch(entries.numbers, slot)
                        count += 1
        query += 1
    return query, count


@compiled_inline
def _searched_buckets(segment: int, width: int) -> tuple[int, int]:
    """Return how many buckets to search for a key, and which bits of the tag must be equal in the first.

    Those bits of the second segment that choose the bucket are flipped one by one, each in a bucket of its
    own; of the bits in the tag, one may differ.
    """
    if segment < 0:
        return 1, 0xFF
    return 1 + max(0, width - KEY_UPPER_BITS), (1 << KEY_LOWER_BITS) - 1


@compiled_inline
def _flipped_bucket(key: int, flip: int, width: int) -> np.int64:
    """Return the bucket of a key for flip 0, and with bit `flip - 1` flipped for others."""
    return np.int64(bucket_of(key, width) ^ (1 << flip >> 1))


@compiled_inline
def _prefetch_buckets(query: int, keys: Keys, buckets: int, entries: Entries) -> None:
    """Prefetch what later queries need: first where their buckets lie, then the buckets' tags."""
    width = bucket_width(entries.directory)
    for flip in range(buckets if query + 2 * QUERIES_AHEAD < len(keys) else 0):
        prefetch(entries.directory, _flipped_bucket(keys[query + 2 * QUERIES_AHEAD], flip, width))
    for flip in range(buckets if query + QUERIES_AHEAD < len(keys) else 0):
        bucket = _flipped_bucket(keys[query + QUERIES_AHEAD], flip, width)
        prefetch(entries.tags, np.int64(entries.directory[bucket]))
        # The end of the bucket may lie in another cache line.
        prefetch(entries.tags, np.int64(entries.directory[bucket + 1]) - 1)


@compiled
def _resolve_texts(
    keys: Keys, texts: Numbers, flips: int, entries: Entries, pairs: SeenPairs, count: int
) -> int:
    """Replace slots by text numbers, without free slots, other keys and the queries' own texts.

    Args:
        keys: uint32, shape (n,), one for each query.
        texts: int64, shape (n,), the queries' own numbers.
        flips: Number of bits that may differ between two keys.
        entries: The entries of the map.
        pairs: Changed in place.
        count: Pairs to resolve.

    Returns:
        How many pairs remain.
    """
    remaining, width = 0, bucket_width(entries.directory)
    mask = text_mask(width)
    for pair in range(count):
        query, slot = pairs.queries[pair], pairs.others[pair]
        number = entries.numbers[slot]
        other = np.int64(number & mask)
        if number == np.uint32(FREE) or other == texts[query]:
            continue
        middle = (number ^ middle_of(keys[query], width)) & ~mask
        tag = entries.tags[slot] ^ tag_of(keys[query])
        if popcount(np.uint64(middle)) + popcount(np.uint64(tag)) <= np.uint64(flips):
            pairs.queries[remaining], pairs.others[remaining] = query, other
            remaining += 1
    return remaining


@compiled
def _record_near(
    own: Simhashes, rule: KeyRule, prints: Simhashes, pairs: SeenPairs, count: int, hits: Hits
) -> None:
    """Record for each query the first texts that are near, or that cannot be measured by fingerprint.

    Args:
        own: Fingerprints of the queries.
        rule: What counts as near, and how many hits to record.
        prints: Fingerprints of all texts.
        pairs: Pairs of a query and a text.
        count: Pairs to compare.
        hits: Receives the hits.
    """
    pair = 0
    while pair < count:
        query, near = pairs.queries[pair], 0
        while pair < count and pairs.queries[pair] == query:
            if pair + PAIRS_AHEAD < count:
                prefetch(prints.bits, pairs.others[pair + PAIRS_AHEAD] * prints.bits.shape[1])
                if rule.segment < 0:
                    prefetch(prints.has_fingerprint, pairs.others[pair + PAIRS_AHEAD])
            other = pairs.others[pair]
            distance = _distance(own, query, prints, other, rule.segment)
            if distance <= rule.distance or distance == NO_DISTANCE:
                pairs.near[near] = np.uint64(other) << np.uint64(8) | np.uint64(distance)
                near += 1
            pair += 1
        # Entries of a bucket have no order; only where there are too many does it matter which come first.
        if near > rule.max_hits:
            pairs.near[:near].sort()
        for packed in pairs.near[: min(near, rule.max_hits)]:
            record_hit(query, np.int64(packed & np.uint64(0xFF)), np.int64(packed >> np.uint64(8)), hits)


@compiled_inline
def _distance(own: Simhashes, query: int, prints: Simhashes, other: int, segment: int) -> np.int64:
    """Return the Hamming distance of two fingerprints.

    NO_DISTANCE where one of the texts has no fingerprint; a distance above every limit where the segments do
    not match.
    """
    # Every text in the map of a segment has a fingerprint.
    if segment < 0 and not (own.has_fingerprint[query] and prints.has_fingerprint[other]):
        return np.int64(NO_DISTANCE)
    # The passes before allow one differing bit per stored key: it may be a bit of the first segment, or a
    # second bit of the next one beside the flipped bit of the bucket.
    if segment >= 0 and not _segments_match(own.bits, query, prints.bits, other, segment):
        return np.int64(NO_DISTANCE - 1)
    return np.int64(differing_bits(own.bits, query, prints.bits, other))


@compiled_inline
def _segments_match(
    left: Fingerprints, left_row: int, right: Fingerprints, right_row: int, segment: int
) -> bool:
    """Return whether two fingerprints agree in a segment and differ in at most one bit of the next one."""
    following = (segment + 1) % (left.shape[1] * 4)
    return bool(
        _segment_difference(left, left_row, right, right_row, segment) == np.uint64(0)
        and popcount(_segment_difference(left, left_row, right, right_row, following)) <= np.uint64(1)
    )


@compiled_inline
def _segment_difference(
    left: Fingerprints, left_row: int, right: Fingerprints, right_row: int, segment: int
) -> np.uint64:
    """Return the differing bits of two fingerprints in one segment."""
    difference: np.uint64 = segment_of(left, left_row, segment) ^ segment_of(right, right_row, segment)
    return difference


@compiled_inline
def segment_of(bits: Fingerprints, row: int, place: int) -> np.uint64:
    """Return a segment of a fingerprint, a 16-bit number; segment 0 has the lowest bits of the first word."""
    shift = np.uint64(SEGMENT_BITS * (place % 4))
    segment: np.uint64 = bits[row, place // 4] >> shift & np.uint64(0xFFFF)
    return segment
