"""The shingle index: which short texts may be similar to these ones, found by the shingles they share.

A fingerprint of a few terms says little, so short texts are looked up by shingles as well.  Two sets of which
the greater has n shingles can only have Jaccard similarity t when they share at least three of the
n - ceil(t n) + 3 smallest hashes of each: the prefix filter, with the hash as the order (Chaudhuri, Ganti and
Kaushik, "A primitive operator for similarity joins", ICDE 2006; Wang, Li and Feng, "Can we beat the prefix
filtering?", SIGMOD 2012, section 3).

A shingle of a template would find every text made from it.  So a shingle finds only the first 64 keepers that
have it in their prefix: that bounds the work for a text, and depends on the order of decision alone.
"""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from dedup_job.match.index import SegmentIndex
from dedup_job.ragged import Ragged

SHARED = 3
MOST_KEEPERS = 64
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd, so that distinct hashes stay distinct keys
ROUNDING = 1e-9

Counts = npt.NDArray[np.int64]


def least_overlap(counts: Counts, min_similarity: float) -> Counts:
    """Return how many shingles sets of these sizes share at least with one that is similar enough."""
    overlap: Counts = np.ceil(min_similarity * counts - ROUNDING).astype(np.int64)
    return overlap


def prefix_length(counts: Counts, min_similarity: float) -> Counts:
    """Return how many of their smallest hashes sets of these sizes are found by.

    >>> prefix_length(np.array([48]), 0.8).tolist()
    [12]
    """
    overlap = least_overlap(counts, min_similarity)
    return counts - overlap + np.minimum(SHARED, overlap)


def least_shared(counts: Counts, min_similarity: float) -> Counts:
    """Return how many hashes the prefixes share at least, if the sets are similar enough.

    Three, unless the smaller of them may have fewer in common with the other.
    """
    return np.minimum(SHARED, least_overlap(least_overlap(counts, min_similarity), min_similarity))


def prefixes(shingles: Ragged, rows: npt.NDArray[np.bool_], min_similarity: float) -> Ragged:
    """Return the prefixes of the shingle sets of these rows, and empty rows for the others."""
    lengths = prefix_length(np.where(rows, np.diff(shingles.offsets), 0), min_similarity)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    starts = np.repeat(shingles.offsets[:-1] - offsets[:-1], lengths)
    return Ragged(offsets, shingles.values[starts + np.arange(offsets[-1])])


def sharing(prefixes: Ragged, owners: Ragged, least: Counts) -> tuple[Counts, Counts, Counts]:
    """Return the pairs of a row and an owner who has at least least[row] of the shingles in the row's prefix.

    owners   for each shingle of all prefixes, end to end, those who have it
    returns  rows and owners, in ascending order, and how many shingles they share

    If 5 and 9 own the first shingle of a row, and 9 the second, then the row shares two shingles with 9.
    """
    rows = np.repeat(np.arange(len(prefixes)), np.diff(prefixes.offsets))
    named = np.repeat(rows, np.diff(owners.offsets)) << 32 | owners.values
    pairs, shared = np.unique(named, return_counts=True)
    enough = shared >= least[pairs >> 32]
    return pairs[enough] >> 32, pairs[enough] & 0xFFFF_FFFF, shared[enough]


class ShingleIndex:
    """Finds the owners of prefixes by each shingle in them."""

    def __init__(self) -> None:
        self._keys = SegmentIndex(64, 0)
        self._owners = array("I")

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._keys.nbytes + self._owners.itemsize * len(self._owners)

    def add(self, owners: npt.NDArray[np.int64], prefixes: Ragged) -> None:
        """Add a prefix for each owner, in the order of decision."""
        if not len(prefixes.values):
            return
        keys = _keys(prefixes.values)
        found = np.diff(self._keys.within(keys).offsets) + _earlier(prefixes.values)
        kept = found < MOST_KEEPERS
        self._keys.add(keys[kept])
        self._owners.extend(np.repeat(owners, np.diff(prefixes.offsets))[kept].tolist())

    def owners(self, shingles: npt.NDArray[np.uint32]) -> Ragged:
        """Return the owners of each of n shingles, in ascending order."""
        found = self._keys.within(_keys(shingles))
        return Ragged(found.offsets, np.frombuffer(self._owners, np.uint32)[found.positions])


def _earlier(values: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Return for each value how many equal ones come before it."""
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    places = np.arange(len(values))
    is_first = np.concatenate([np.ones(1, np.bool_), ranked[1:] != ranked[:-1]])
    earlier = np.empty(len(values), np.int64)
    earlier[order] = places - np.maximum.accumulate(np.where(is_first, places, 0))
    return earlier


def _keys(shingles: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    return (shingles.astype(np.uint64) * SPREAD).reshape(-1, 1)
