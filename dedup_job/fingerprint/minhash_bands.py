"""Band keys (MinHash in one pass): texts with similar shingle sets are likely to share a key.

The hashes of a set are divided into bins of equal range. The smallest hash of each bin is a MinHash value:
the probability that two sets agree in a bin is about their Jaccard similarity (Li, Owen and Zhang, "One
permutation hashing", NIPS 2012). An empty bin takes the value of another bin, which is drawn by the empty
bin's number alone, so that both sets draw the same bin (Shrivastava, "Optimal densification for fast and
accurate minwise hashing", ICML 2017, section 4).

Several values in a row make a band, and a hash of them is its key. Two sets of similarity s share the key of
a band of r values with a probability of about s^r, and at least one of b keys with about 1 - (1 - s^r)^b.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dedup_job.native.arrays import Ragged
from dedup_job.native.numba_compile import compiled

Keys = npt.NDArray[np.uint32]


def band_keys(sets: Ragged, bands: int, rows: int) -> Keys:
    """Return the band keys of each set, uint32, shape (n, bands); zeros for an empty set.

    Equal sets have equal keys; sets without a common hash hardly ever share a key.

    Args:
        sets: Sorted distinct 32-bit hashes in each row.
        bands: Keys of each set.
        rows: MinHash values of each band.

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
    smallest = np.empty(bins, np.uint32)
    is_full = np.empty(bins, np.bool_)
    for text in range(len(keys)):
        if not bins or offsets[text] == offsets[text + 1]:
            continue
        is_full[:] = False
        # From the largest hash to the smallest, so that a bin's smallest is written last.
        for value in values[offsets[text] : offsets[text + 1]][::-1]:
            # The bin is value * bins / 2**32, without a division.
            bin_ = np.uint64(value) * np.uint64(bins) >> np.uint64(32)
            smallest[bin_] = value
            is_full[bin_] = True
        for band in range(bands):
            state = np.uint64(band)
            for place in range(band * rows, (band + 1) * rows):
                state = _mix_bits(state ^ np.uint64(smallest[_find_full_bin(place, is_full)]))
            keys[text, band] = np.uint32(state >> np.uint64(32))
    return keys


@compiled
def _find_full_bin(place: int, is_full: npt.NDArray[np.bool_]) -> np.uint64:
    """Return this bin if it has a value, otherwise the first full bin among those drawn by its number."""
    # Everything is uint64: numba turns a mixture of signed and unsigned integers into floats.
    candidate, attempt = np.uint64(place), np.uint64(0)
    while not is_full[candidate]:
        attempt += np.uint64(1)
        drawn = _mix_bits(np.uint64(place) << np.uint64(32) | attempt)
        candidate = (drawn >> np.uint64(32)) * np.uint64(len(is_full)) >> np.uint64(32)
    return candidate


@compiled
def _mix_bits(state: np.uint64) -> np.uint64:
    """Scatter the bits of a number (the finaliser of splitmix64: Steele, Lea and Flood, OOPSLA 2014)."""
    state = (state ^ state >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ state >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return state ^ state >> np.uint64(31)
