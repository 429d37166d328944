"""Similarity of two texts, measured on their shingle sets."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dedup_job.native.compiled import compiled

Shingles = npt.NDArray[np.uint32]


@compiled
def similarity_from(a: Shingles, b: Shingles, least: float) -> float:
    """Return the Jaccard similarity |a & b| / |a | b| of two sorted arrays of distinct values, or 0.0.

    It is 0.0 when both are empty, and when less than `least` is all that can come of it: with u values that
    only one of the arrays has, the similarity is (|a| + |b| - u) / (|a| + |b| + u), so the comparison ends as
    soon as u is too many.

    >>> one, other = np.array([1, 2, 3], np.uint32), np.array([2, 3, 4], np.uint32)
    >>> similarity_from(one, other, 0.0), similarity_from(one, other, 0.8)
    (0.5, 0.0)
    """
    total = len(a) + len(b)
    most = total * (1 - least) / (1 + least) + 1  # one more, so that rounding decides nothing
    i = j = apart = 0
    while i < len(a) and j < len(b):
        apart += a[i] != b[j]
        if apart > most:
            return 0.0
        is_less, is_more = a[i] <= b[j], a[i] >= b[j]
        i += is_less
        j += is_more
    apart += len(a) - i + len(b) - j
    return (total - apart) / (total + apart) if total and apart <= most else 0.0


@compiled
def jaccard(a: Shingles, b: Shingles) -> float:
    """Return the Jaccard similarity |a & b| / |a | b| of two sorted arrays; 0.0 when both are empty.

    >>> jaccard(np.array([1, 2, 3], np.uint32), np.array([2, 3, 4], np.uint32))
    0.5
    """
    return similarity_from(a, b, 0.0)
