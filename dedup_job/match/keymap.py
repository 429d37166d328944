"""A key map: the texts that have a key, in the order in which they came.

A key has 32 bits.  Its upper bits choose a bucket, its lower 16 are kept there as a tag beside the number of
the text.  With 16 bits for the bucket, a text with the key 0x1234_5678 stands in bucket
0x1234 with the tag 0x5678; a map that has grown to 18 bits has it in bucket 0x048D1
(0b00_0100_1000_1101_0001), same tag.

Most texts are settled: their entries lie in one array, in the order of buckets and within a bucket of
numbers.  The latest are fresh: a chain in each bucket, the earliest first.  From time to time all become
settled, so 6 bytes for each text do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.compiled import compiled, inlined
from dedup_job.instructions import popcount, prefetch
from dedup_job.match._column import make_room
from dedup_job.match._found import NO_DISTANCE, Found, differing_bits, note

Keys = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Sorted = tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint32]]  # tags, numbers

TAG_BITS, KEY_BITS = 16, 32
SEGMENT_BITS = 16
PROBED = 1 + SEGMENT_BITS  # keys that a segment and the next one are looked for by
UPPER, LOWER = 13, 3  # bits of the scattered segment above the next one in a key, and below it
START, HEAD = 0, 1  # columns of a directory
AHEAD = 4  # queries by which a search looks ahead of itself, in two steps
GROWTH = 0.25  # fresh texts for each settled one: then all are settled
LEAST_FRESH = 1 << 12
HOP_COST, SETTLE_COST = 4.0, 10.0  # nanoseconds: passing a fresh entry, settling one


@dataclass(frozen=True, slots=True)
class Rule:
    """What keys find: the first `found` of the near enough texts, a key being remembered with `listed` texts.

    distance  bits by which the fingerprints may differ
    load      entries of a bucket at most, on the average
    segment   which segment of the fingerprints the keys are made of, with the next one: then a key finds
              those too that differ in one bit of the next one; None for keys that find only their own
    """

    distance: int
    listed: int
    found: int
    load: int
    segment: int | None = None


class Prints(NamedTuple):
    """The fingerprints of all texts, by number: uint64 (n, words), and whether there is one."""

    bits: npt.NDArray[np.uint64]
    is_there: Flags


class Limits(NamedTuple):
    """Of a Rule, what a search goes by; `segment` is -1 for none."""

    distance: int
    found: int
    segment: int


class Entries(NamedTuple):
    """The entries of a map.

    directory  uint32 (buckets + 1, 2): the settled entries of bucket k are those from directory[k, START] to
               directory[k + 1, START], its fresh ones a chain from directory[k, HEAD] on, 0 for none
    tags       uint16, of settled entries
    numbers    uint32, of the texts that they belong to
    first      number of the first fresh text
    nodes      uint64, for each fresh text: the next one in its chain, counted from 1, and 16 bits of tag
    """

    directory: npt.NDArray[np.uint32]
    tags: npt.NDArray[np.uint16]
    numbers: npt.NDArray[np.uint32]
    first: int
    nodes: npt.NDArray[np.uint64]


class KeyMap:
    """Finds texts by one of their keys, and forgets none."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._count = 0
        self._walked = 0  # fresh entries that searches met
        directory = np.zeros(((1 << TAG_BITS) + 1, 2), np.uint32)
        self._entries = _settled(directory, np.empty(0, np.uint16), np.empty(0, np.uint32), 0)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        entries = self._entries
        columns = entries.directory, entries.tags, entries.numbers, entries.nodes
        return sum(column.nbytes for column in columns)

    @property
    def buckets(self) -> int:
        """Buckets that keys are shared out to."""
        return len(self._entries.directory) - 1

    def add(self, keys: Keys, has_key: Flags) -> None:
        """Enter n texts by their keys, uint32 (n,), at the next numbers; one without a key takes one too."""
        fresh = self._count + len(keys) - self._entries.first
        if self._settling_pays(fresh):
            self._settle(keys, has_key)
        else:
            make_room(self._entries.nodes, fresh)
            _enter(keys, has_key, self._count, self._rule.listed, self._entries)
            self._count += len(keys)

    def search(self, keys: Keys, texts: Numbers, prints: Prints, found: Found) -> None:
        """Note for each query what its key finds among the other texts.

        keys   uint32 (n,), those of the queries
        texts  int64 (n,), their own numbers; -1 for one that has no key
        """
        rule = self._rule
        segment = -1 if rule.segment is None else rule.segment
        limits = Limits(rule.distance, rule.found, segment)
        room = np.empty((1 if segment < 0 else PROBED) * rule.listed, np.uint64)
        self._walked += _search(keys, texts, limits, prints, self._entries, room, found)

    def _settling_pays(self, fresh: int) -> bool:
        """Return whether there are many fresh texts, or passing them has cost what settling all does."""
        settled = len(self._entries.tags)
        return fresh > LEAST_FRESH + GROWTH * settled or (
            self._walked * HOP_COST > (settled + fresh) * SETTLE_COST
        )

    def _settle(self, keys: Keys, has_key: Flags) -> None:
        """Settle all, and these texts too, in more buckets where they would be crowded."""
        buckets, count = self.buckets, self._count + len(keys)
        while count > self._rule.load * buckets and buckets < 1 << KEY_BITS - 1:
            buckets *= 2
        new = keys[has_key], (self._count + np.flatnonzero(has_key)).astype(np.uint32)
        self._entries = _settled(*_settled_anew(buckets, self._entries, *new, self._rule.listed), count)
        self._count, self._walked = count, 0


def _settled(
    directory: npt.NDArray[np.uint32],
    tags: npt.NDArray[np.uint16],
    numbers: npt.NDArray[np.uint32],
    count: int,
) -> Entries:
    return Entries(directory, tags, numbers, count, np.empty(0, np.uint64))


@inlined
def _bucket(key: int, directory: npt.NDArray[np.uint32]) -> np.int64:
    """The bucket of a key: as many of its upper bits as there are buckets."""
    return np.int64(np.uint64(key) * np.uint64(len(directory) - 1) >> np.uint64(KEY_BITS))


@inlined
def _tag(key: int) -> np.uint16:
    """The lower half of a key; of a node, too."""
    return np.uint16(np.uint64(key) & np.uint64(0xFFFF))


@inlined
def _next(node: int) -> np.int64:
    """The fresh entry behind this one in its chain, 0 for none."""
    return np.int64(np.uint64(node) >> np.uint64(TAG_BITS))


@compiled()
def _enter(keys: Keys, has_key: Flags, first: int, listed: int, entries: Entries) -> None:
    directory, nodes = entries.directory, entries.nodes
    for row in range(len(keys)):
        if row + AHEAD < len(keys):
            prefetch(directory, 2 * _bucket(keys[row + AHEAD], directory))
        if not has_key[row]:
            continue
        bucket, tag = _bucket(keys[row], directory), _tag(keys[row])
        there, last = _counted(bucket, tag, listed, entries)
        if there >= listed:
            continue
        entry = first + row - entries.first + 1
        nodes[entry - 1] = tag
        if last:
            nodes[last - 1] |= np.uint64(entry) << np.uint64(TAG_BITS)
        else:
            directory[bucket, HEAD] = entry


@compiled()
def _counted(bucket: int, tag: np.uint16, listed: int, entries: Entries) -> tuple[int, np.int64]:
    """How many texts have a key, or something below `listed` where they are fewer; and the last fresh one."""
    there = 0
    entry, last = np.int64(entries.directory[bucket, HEAD]), np.int64(0)
    while entry:
        node = entries.nodes[entry - 1]
        there += _tag(node) == tag
        entry, last = _next(node), entry
    begin, end = entries.directory[bucket, START], entries.directory[bucket + 1, START]
    if there + end - begin >= listed:
        there += _tags_in(entries.tags[begin:end], tag)
    return there, last


@compiled()
def _search(
    keys: Keys,
    texts: Numbers,
    limits: Limits,
    prints: Prints,
    entries: Entries,
    room: npt.NDArray[np.uint64],
    found: Found,
) -> int:
    """Returns how many fresh entries were met."""
    walked = 0
    directory, tags, numbers, nodes = entries.directory, entries.tags, entries.numbers, entries.nodes
    buckets, fixed = _looked_through(limits.segment, directory)
    for query in range(len(keys)):
        _ask_ahead(query, keys, buckets, entries)
        if texts[query] < 0:
            continue
        own, tag, noted = _bucket(keys[query], directory), _tag(keys[query]), 0
        for flip in range(buckets):  # its own, then those that differ in one bit
            bucket = own ^ (1 << flip >> 1)
            for place in range(directory[bucket, START], directory[bucket + 1, START]):
                if _may_be(tags[place], tag, fixed):
                    other = np.int64(numbers[place])
                    noted = _confirm(texts[query], other, limits, prints, room, noted)
            entry = np.int64(directory[bucket, HEAD])
            while entry:
                walked += 1
                node = nodes[entry - 1]
                if _may_be(_tag(node), tag, fixed):
                    noted = _confirm(texts[query], entries.first + entry - 1, limits, prints, room, noted)
                entry = _next(node)
        if noted > limits.found:
            room[:noted].sort()
        for place in range(min(noted, limits.found)):
            note(query, np.int64(room[place] & np.uint64(0xFF)), np.int64(room[place] >> np.uint64(8)), found)
    return walked


@inlined
def _looked_through(segment: int, directory: npt.NDArray[np.uint32]) -> tuple[np.int64, np.int64]:
    """How many buckets a key is looked for in, and which bits of the tag must be its own.

    Bits of the next segment that choose the bucket are flipped one by one; of the others, one may differ.
    """
    width = _width(len(directory) - 1)
    if segment < 0:
        return np.int64(1), np.int64((1 << TAG_BITS) - 1)
    return 1 + min(width - UPPER, np.int64(SEGMENT_BITS)), np.int64((1 << LOWER) - 1)


@inlined
def _may_be(tag: np.uint16, own: np.uint16, fixed: int) -> bool:
    """Whether tags differ in one bit at most, and not in those that are fixed."""
    apart = np.int64(tag ^ own)
    return bool(apart & (apart - 1 | fixed) == 0)


@inlined
def _ask_ahead(query: int, keys: Keys, buckets: int, entries: Entries) -> None:
    """Ask for the memory that later queries need: first where their buckets lie, then what is in them."""
    directory = entries.directory
    if query + 2 * AHEAD < len(keys):
        coming = _bucket(keys[query + 2 * AHEAD], directory)
        for flip in range(buckets):
            prefetch(directory, 2 * (coming ^ (1 << flip >> 1)))
    if query + AHEAD < len(keys):
        coming = _bucket(keys[query + AHEAD], directory)
        for flip in range(buckets):
            bucket = coming ^ (1 << flip >> 1)
            prefetch(entries.tags, np.int64(directory[bucket, START]))
            if directory[bucket, HEAD]:
                prefetch(entries.nodes, np.int64(directory[bucket, HEAD]) - 1)


@inlined
def _confirm(
    text: int, other: int, limits: Limits, prints: Prints, room: npt.NDArray[np.uint64], noted: int
) -> int:
    """Note another text that is near enough, or has no fingerprint to tell; returns how many are noted."""
    if other == text:
        return noted
    distance = np.int64(NO_DISTANCE)
    if prints.is_there[text] and prints.is_there[other]:
        distance = differing_bits(prints.bits, text, prints.bits, other)
        if distance > limits.distance:
            return noted
        if limits.segment >= 0 and not _share_segments(prints.bits, text, other, limits.segment):
            return noted
    room[noted] = np.uint64(other) << np.uint64(8) | np.uint64(distance)
    return noted + 1


@inlined
def _share_segments(bits: npt.NDArray[np.uint64], text: int, other: int, segment: int) -> bool:
    """Whether two fingerprints agree in a segment, and differ in one bit at most in the next one."""
    following = (segment + 1) % (bits.shape[1] * 4)
    return bool(
        _apart(bits, text, other, segment) == np.uint64(0)
        and popcount(_apart(bits, text, other, following)) <= np.uint64(1)
    )


@inlined
def _apart(bits: npt.NDArray[np.uint64], text: int, other: int, segment: int) -> np.uint64:
    """The bits of a segment in which two fingerprints differ."""
    word, shift = segment // 4, np.uint64(SEGMENT_BITS * (segment % 4))
    apart: np.uint64 = (bits[text, word] ^ bits[other, word]) >> shift & np.uint64(0xFFFF)
    return apart


@compiled()
def _settled_anew(
    buckets: int, entries: Entries, keys: Keys, numbers: npt.NDArray[np.uint32], listed: int
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16], npt.NDArray[np.uint32]]:
    """Return all entries, and those of later texts, in so many buckets: a counting sort that keeps order."""
    directory = np.zeros((buckets + 2, 2), np.uint32)
    _count_entries(directory, buckets, entries)
    for key in keys:
        directory[_bucket(key, directory[1:]) + 2, START] += np.uint32(1)
    for bucket in range(2, len(directory)):
        directory[bucket, START] += directory[bucket - 1, START]
    sorted_ = np.empty(directory[-1, START], np.uint16), np.empty(directory[-1, START], np.uint32)
    # Now row k + 1 is where bucket k starts; after all entries were placed it is where bucket k ends.
    starts = directory[1:, START].copy()
    _place_entries(directory, buckets, entries, sorted_)
    for row in range(len(keys)):
        if row + AHEAD < len(keys):
            prefetch(directory, 2 * (_bucket(keys[row + AHEAD], directory[1:]) + 1))
        bucket, tag = _bucket(keys[row], directory[1:]), _tag(keys[row])
        if directory[bucket + 1, START] - starts[bucket] < listed or (
            _tags_in(sorted_[0][starts[bucket] : directory[bucket + 1, START]], tag) < listed
        ):
            _place(tag, numbers[row], bucket + 1, directory, sorted_)
    return _closed_up(directory[1:], starts, sorted_)


@compiled()
def _count_entries(directory: npt.NDArray[np.uint32], buckets: int, entries: Entries) -> None:
    """Count the entries of bucket k in row k + 2."""
    old = len(entries.directory) - 1
    mask, shift = (1 << KEY_BITS) // old - 1, KEY_BITS - _width(buckets)
    for bucket in range(old):
        first = np.int64(bucket) * (buckets // old) + 2
        for place in range(entries.directory[bucket, START], entries.directory[bucket + 1, START]):
            directory[first + ((np.int64(entries.tags[place]) & mask) >> shift), START] += np.uint32(1)
        entry = np.int64(entries.directory[bucket, HEAD])
        while entry:
            node = entries.nodes[entry - 1]
            directory[first + ((np.int64(_tag(node)) & mask) >> shift), START] += np.uint32(1)
            entry = _next(node)


@compiled()
def _place_entries(
    directory: npt.NDArray[np.uint32], buckets: int, entries: Entries, sorted_: Sorted
) -> None:
    """Place the entries of bucket k at the end that row k + 1 has."""
    old = len(entries.directory) - 1
    mask, shift = (1 << KEY_BITS) // old - 1, KEY_BITS - _width(buckets)
    for bucket in range(old):
        first = np.int64(bucket) * (buckets // old) + 1
        for place in range(entries.directory[bucket, START], entries.directory[bucket + 1, START]):
            tag = entries.tags[place]
            row = first + ((np.int64(tag) & mask) >> shift)
            _place(tag, entries.numbers[place], row, directory, sorted_)
        entry = np.int64(entries.directory[bucket, HEAD])
        while entry:
            node = entries.nodes[entry - 1]
            row = first + ((np.int64(_tag(node)) & mask) >> shift)
            _place(_tag(node), entries.first + entry - 1, row, directory, sorted_)
            entry = _next(node)


@compiled()
def _closed_up(
    directory: npt.NDArray[np.uint32], starts: npt.NDArray[np.uint32], sorted_: Sorted
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16], npt.NDArray[np.uint32]]:
    """Return buckets without the gaps that crowded keys have left: bucket k ends where directory[k] says."""
    tags, numbers = sorted_
    filled = np.uint32(0)
    for bucket in range(len(directory) - 1):
        begin, end = starts[bucket], directory[bucket, START]
        if begin != filled:
            for place in range(begin, end):
                tags[filled + place - begin], numbers[filled + place - begin] = tags[place], numbers[place]
        directory[bucket, START] = filled
        filled += end - begin
    directory[-1, START] = filled
    if filled < len(tags):
        return directory.copy(), tags[:filled].copy(), numbers[:filled].copy()
    return directory.copy(), tags, numbers


@compiled()
def _tags_in(tags: npt.NDArray[np.uint16], tag: np.uint16) -> int:
    """How many of the tags are this one."""
    count = 0
    for one in tags:
        count += one == tag
    return count


@inlined
def _width(buckets: int) -> np.int64:
    """The bits that choose one of so many buckets."""
    return np.int64(popcount(np.uint64(buckets - 1)))


@inlined
def _place(tag: np.uint16, number: int, row: int, directory: npt.NDArray[np.uint32], sorted_: Sorted) -> None:
    """Put an entry at the end that a row of the directory has, and move that on."""
    place = directory[row, START]
    sorted_[0][place], sorted_[1][place] = tag, number
    directory[row, START] = place + np.uint32(1)
