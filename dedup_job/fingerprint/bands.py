"""Bands: the keys by which texts with similar sets of shingles are found, MinHash in one pass.

The hashes of a set are cut into bins of equal range, and the least of each bin is a MinHash value: two sets
agree in a bin about as often as their Jaccard similarity says (Li, Owen and Zhang, "One permutation hashing",
NIPS 2012).  A bin without a hash takes the value of another one, drawn by the bin's number alone, so that two
sets draw alike (Shrivastava, "Optimal densification for fast and accurate minwise hashing", ICML 2017,
section 4).  Some values in a row make a band, and its key is a hash of them: two sets of similarity s share a
band of r values with a chance of about s^r, and one of b bands with about 1 - (1 - s^r)^b.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dedup_job.native.compiled import compiled
from dedup_job.native.ragged import Ragged

Keys = npt.NDArray[np.uint32]


def band_keys(sets: Ragged, bands: int, rows: int) -> Keys:
    """Return the keys of each set's bands, uint32 (n, bands); zeros for an empty set.

    sets   sorted distinct 32-bit hashes in each row
    bands  keys of each set
    rows   MinHash values of each band

    Equal sets have equal keys, and sets with nothing in common hardly ever a common one:

    >>> sets = Ragged(np.array([0, 2, 4, 4]), np.array([7, 1 << 31, 7, 1 << 31], np.uint32))
    >>> keys = band_keys(sets, 2, 3)
    >>> (keys[0] == keys[1]).all(), keys[2].tolist()
    (np.True_, [0, 0])
    """
    keys: Keys = _band_keys(sets.offsets, sets.values, bands, rows)
    return keys


@compiled
def _band_keys(offsets: npt.NDArray[np.int64], values: Keys, bands: int, rows: int) -> Keys:
    keys = np.zeros((len(offsets) - 1, bands), np.uint32)
    bins = bands * rows
    least = np.empty(bins, np.uint32)
    is_full = np.empty(bins, np.bool_)
    for text in range(len(keys)):
        if not bins or offsets[text] == offsets[text + 1]:
            continue
        is_full[:] = False
        for value in values[offsets[text] : offsets[text + 1]][::-1]:  # the least of a bin comes last
            bin_ = np.uint64(value) * np.uint64(bins) >> np.uint64(32)
            least[bin_] = value
            is_full[bin_] = True
        for band in range(bands):
            state = np.uint64(band)
            for place in range(band * rows, (band + 1) * rows):
                state = _mixed(state ^ np.uint64(least[_full_bin(place, is_full)]))
            keys[text, band] = np.uint32(state >> np.uint64(32))
    return keys


@compiled
def _full_bin(place: int, is_full: npt.NDArray[np.bool_]) -> np.uint64:
    """The bin itself where it has a value, else the first with one of those that it draws."""
    found, tried = np.uint64(place), np.uint64(0)
    while not is_full[found]:
        tried += np.uint64(1)
        drawn = _mixed(np.uint64(place) << np.uint64(32) | tried)
        found = (drawn >> np.uint64(32)) * np.uint64(len(is_full)) >> np.uint64(32)
    return found


@compiled
def _mixed(state: np.uint64) -> np.uint64:
    """Scatter the bits of a number (the finaliser of splitmix64; Steele, Lea and Flood, OOPSLA 2014)."""
    state = (state ^ state >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ state >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return state ^ state >> np.uint64(31)
