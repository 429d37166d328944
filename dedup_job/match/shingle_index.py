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
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from math import ceil

import numpy as np
import numpy.typing as npt

from dedup_job.document import Ragged
from dedup_job.match.index import SegmentIndex

SHARED = 3
MOST_KEEPERS = 64
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd, so that distinct hashes stay distinct keys
ROUNDING = 1e-9


def least_overlap(count: int, min_jaccard: float) -> int:
    """Return how many shingles a set of `count` shingles shares at least with one that is similar enough."""
    return ceil(min_jaccard * count - ROUNDING)


def prefix_length(count: int, min_jaccard: float) -> int:
    """Return how many of its smallest hashes a set of `count` shingles is found by.

    >>> prefix_length(48, 0.8)
    12
    """
    overlap = least_overlap(count, min_jaccard)
    return count - overlap + min(SHARED, overlap)


def least_shared(count: int, min_jaccard: float) -> int:
    """Return how many hashes the prefixes share at least, if the sets are similar enough.

    Three, unless the smaller of them may have fewer in common with the other.
    """
    return min(SHARED, least_overlap(least_overlap(count, min_jaccard), min_jaccard))


def prefixes(shingles: Ragged, rows: npt.NDArray[np.bool_], min_jaccard: float) -> Ragged:
    """Return the prefixes of the shingle sets of these rows, and empty rows for the others."""
    counts = np.where(rows, np.diff(shingles.offsets), 0)
    lengths = np.array([prefix_length(int(count), min_jaccard) for count in counts], np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    starts = np.repeat(shingles.offsets[:-1] - offsets[:-1], lengths)
    return Ragged(offsets, shingles.values[starts + np.arange(offsets[-1])])


class ShingleIndex:
    """Finds the owners of prefixes by each shingle in them."""

    def __init__(self) -> None:
        self._keys = SegmentIndex(64, 0)
        self._owners = array("I")

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._keys.nbytes + self._owners.itemsize * len(self._owners)

    def add(self, owners: Sequence[int], prefixes: Ragged) -> None:
        """Add a prefix for each owner, in the order of decision."""
        found = np.diff(self._keys.within(_keys(prefixes)).offsets).tolist()
        seen: Counter[int] = Counter()
        kept = []
        owner_of = np.repeat(np.array(owners, np.int64), np.diff(prefixes.offsets)).tolist()
        for place, (owner, shingle) in enumerate(zip(owner_of, prefixes.values.tolist(), strict=True)):
            if found[place] + seen[shingle] < MOST_KEEPERS:
                seen[shingle] += 1
                kept.append(place)
                self._owners.append(owner)
        self._keys.add(_keys(prefixes)[kept])

    def owners(self, prefixes: Ragged) -> list[list[int]]:
        """Return for each shingle of all prefixes, end to end, its owners in ascending order."""
        found = self._keys.within(_keys(prefixes))
        owners = np.frombuffer(self._owners, np.uint32)[found.positions].tolist()
        return [owners[a:b] for a, b in pairwise(found.offsets.tolist())]


class BatchOwners:
    """The same for the kept records of one batch, behind the owners that are landed already."""

    def __init__(self, prefixes: Ragged, landed: Sequence[Sequence[int]]) -> None:
        """Take the prefixes of the batch, and for each shingle of them, end to end, its landed owners."""
        self._prefixes, self._landed = prefixes, landed
        self._rows: defaultdict[int, list[int]] = defaultdict(list)

    def keep(self, row: int) -> None:
        """Make the prefix of a row findable by the rows behind it."""
        first = int(self._prefixes.offsets[row])
        for place, shingle in enumerate(self._prefixes[row].tolist(), first):
            if len(self._landed[place]) + len(self._rows[shingle]) < MOST_KEEPERS:
                self._rows[shingle].append(row)

    def sharing(self, row: int, least: int) -> tuple[list[int], list[int]]:
        """Return the owners and the kept rows that share so much of the row's prefix, in ascending order."""
        first = int(self._prefixes.offsets[row])
        prefix = self._prefixes[row].tolist()
        landed = Counter(
            owner for place in range(first, first + len(prefix)) for owner in self._landed[place]
        )
        inside = Counter(other for shingle in prefix for other in self._rows.get(shingle, ()))
        return (
            sorted(owner for owner, shared in landed.items() if shared >= least),
            sorted(other for other, shared in inside.items() if shared >= least),
        )


def _keys(prefixes: Ragged) -> npt.NDArray[np.uint64]:
    return (prefixes.values.astype(np.uint64) * SPREAD).reshape(-1, 1)
