"""Similarity of two texts, measured on their shingle sets."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dedup_job.compiled import compiled


@compiled()
def jaccard(a: npt.NDArray[np.uint32], b: npt.NDArray[np.uint32]) -> float:
    """Return |a & b| / |a | b| of two sorted arrays of distinct values; 0.0 when both are empty.

    >>> jaccard(np.array([1, 2, 3], np.uint32), np.array([2, 3, 4], np.uint32))
    0.5
    """
    i = j = shared = 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            shared += 1
            i += 1
            j += 1
        elif a[i] < b[j]:
            i += 1
        else:
            j += 1
    union = len(a) + len(b) - shared
    return shared / union if union else 0.0
