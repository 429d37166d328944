"""MinHash: the yardstick beside which the fingerprints are measured; needs the optional package datasketch.

Broder, "On the resemblance and containment of documents", 1997: the share of equal values in the sketches of
two sets estimates their Jaccard similarity.  The values are banded; two sets are candidates where they share
a whole band, and datasketch chooses the bands for a threshold.
"""

from __future__ import annotations

import numpy as np

from dedup_job.match.allpairs import Pairs, similarities
from dedup_job.ragged import Ragged

PERMUTATIONS, THRESHOLD = 128, 0.8
SHINGLES_AT_ONCE = 10_000  # bounds the memory of a sketch while it is made


def banded_pairs(sets: Ragged) -> tuple[Pairs, int]:
    """Return the pairs of rows that share a band, and how many bands there are.

    ImportError where datasketch is not installed.
    """
    from datasketch import MinHash, MinHashLSH  # optional

    lsh = MinHashLSH(threshold=THRESHOLD, num_perm=PERMUTATIONS)
    left: list[int] = []
    right: list[int] = []
    for row, values in enumerate(sets):
        sketch = MinHash(num_perm=PERMUTATIONS, hashfunc=int)  # shingles are hashes already
        for first in range(0, len(values), SHINGLES_AT_ONCE):
            sketch.update_batch(values[first : first + SHINGLES_AT_ONCE].tolist())
        if len(values):
            earlier = sorted(lsh.query(sketch))
            left += earlier
            right += [row] * len(earlier)
            lsh.insert(row, sketch)
    ones, others = np.array(left, np.int64), np.array(right, np.int64)
    return Pairs(ones, others, similarities(sets.offsets, sets.values, ones, others)), lsh.b
