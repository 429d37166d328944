"""Hits of the index's compiled loops: near texts, packed into one integer each."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.native.compiled import compiled, inlined
from dedup_job.native.instructions import popcount

Fingerprints = npt.NDArray[np.uint64]  # (n, words)

# The distance noted when one of the two texts has no fingerprint.
NO_DISTANCE = 255


class Found(NamedTuple):
    """A buffer of hits; each hit is one integer that sorts by query, then distance, then text.

    Attributes:
        numbers: uint64, shape (capacity,); query in the upper 24 bits, distance in 8, text in the lower 32.
        total: int64, shape (1,), hits counted, which may be more than fit.
    """

    numbers: npt.NDArray[np.uint64]
    total: npt.NDArray[np.int64]


def gathered(search: Callable[[Found], None], capacity: int) -> npt.NDArray[np.uint64]:
    """Run a search and return its packed hits, in the order of recording.

    A search with more than `capacity` hits is run a second time, with room for all of them.
    """
    hits = Found(np.empty(capacity, np.uint64), np.zeros(1, np.int64))
    search(hits)
    total = int(hits.total[0])
    return hits.numbers[:total] if total <= capacity else gathered(search, total)


def told_apart(
    numbers: npt.NDArray[np.uint64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Unpack hits into queries, distances and texts.

    >>> [column.tolist() for column in told_apart(np.array([7 << 40 | 3 << 32 | 11], np.uint64))]
    [[7], [3], [11]]
    """
    queries, distances = numbers >> np.uint64(40), numbers >> np.uint64(32) & np.uint64(0xFF)
    texts = numbers & np.uint64(0xFFFF_FFFF)
    return queries.astype(np.int64), distances.astype(np.int64), texts.astype(np.int64)


@inlined
def note(query: int, distance: int, text: int, hits: Found) -> None:
    """Count a hit, and store it if it fits."""
    if hits.total[0] < len(hits.numbers):
        upper = np.uint64(query) << np.uint64(8) | np.uint64(distance)
        hits.numbers[hits.total[0]] = upper << np.uint64(32) | np.uint64(text)
    hits.total[0] += 1


@inlined
def differing_bits(left: Fingerprints, left_row: int, right: Fingerprints, right_row: int) -> np.int64:
    """Return the Hamming distance of two fingerprints, given by array and row."""
    distance = np.int64(0)
    for word in range(left.shape[1]):
        distance += np.int64(popcount(left[left_row, word] ^ right[right_row, word]))
    return distance


@compiled
def offsets(numbers: npt.NDArray[np.uint64], queries: int) -> npt.NDArray[np.int64]:
    """Return where each query's hits begin in sorted hits, and where they end: int64 (queries + 1,)."""
    ends = np.zeros(queries + 1, np.int64)
    for number in numbers:
        ends[(number >> np.uint64(40)) + np.uint64(1)] += 1
    for query in range(queries):
        ends[query + 1] += ends[query]
    return ends
