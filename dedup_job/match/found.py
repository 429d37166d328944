"""What the compiled loops of the index find: texts that are near, written down as they are met."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.native.compiled import compiled, inlined
from dedup_job.native.instructions import popcount

Fingerprints = npt.NDArray[np.uint64]  # (n, words)


NO_DISTANCE = 255  # where one of the texts has no fingerprint


class Found(NamedTuple):
    """Neighbours, as numbers that sort by query, distance, position: 24, 8 and 32 bits."""

    numbers: npt.NDArray[np.uint64]  # those that there is room for
    total: npt.NDArray[np.int64]  # (1,), how many there are


def gathered(search: Callable[[Found], None], room: int) -> npt.NDArray[np.uint64]:
    """Return what a search notes, in the order in which it does; it is done again where there is more."""
    found = Found(np.empty(room, np.uint64), np.zeros(1, np.int64))
    search(found)
    total = int(found.total[0])
    return found.numbers[:total] if total <= room else gathered(search, total)


def told_apart(
    numbers: npt.NDArray[np.uint64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the queries, distances and positions that such numbers hold.

    >>> [column.tolist() for column in told_apart(np.array([7 << 40 | 3 << 32 | 11], np.uint64))]
    [[7], [3], [11]]
    """
    queries, nearness = numbers >> np.uint64(40), numbers >> np.uint64(32) & np.uint64(0xFF)
    positions = numbers & np.uint64(0xFFFF_FFFF)
    return queries.astype(np.int64), nearness.astype(np.int64), positions.astype(np.int64)


@inlined
def note(query: int, distance: int, position: int, found: Found) -> None:
    """Count one neighbour, and write it down if there is room."""
    if found.total[0] < len(found.numbers):
        nearness = np.uint64(query) << np.uint64(8) | np.uint64(distance)
        found.numbers[found.total[0]] = nearness << np.uint64(32) | np.uint64(position)
    found.total[0] += 1


@inlined
def differing_bits(ones: Fingerprints, one: int, others: Fingerprints, other: int) -> np.int64:
    """The Hamming distance of two rows."""
    distance = np.int64(0)
    for word in range(ones.shape[1]):
        distance += np.int64(popcount(ones[one, word] ^ others[other, word]))
    return distance


@compiled
def offsets(numbers: npt.NDArray[np.uint64], queries: int) -> npt.NDArray[np.int64]:
    """Where the neighbours of each query begin in sorted numbers, and where the last end: (queries + 1,)."""
    ends = np.zeros(queries + 1, np.int64)
    for number in numbers:
        ends[(number >> np.uint64(40)) + np.uint64(1)] += 1
    for q in range(queries):
        ends[q + 1] += ends[q]
    return ends
