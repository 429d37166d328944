"""How much memory an index takes, read from the private columns of its parts."""

from __future__ import annotations

import numpy as np

from dedup_job.index.candidate_index import CandidateIndex
from dedup_job.index.keepers import Keepers


def column_bytes(holder: object) -> int:
    """Return the bytes of the arrays that an object holds, alone or in tuples."""
    nbytes = 0
    for value in vars(holder).values():
        for column in value if isinstance(value, tuple) else (value,):
            if isinstance(column, np.ndarray):
                nbytes += column.nbytes
            elif isinstance(column, bytearray):
                nbytes += len(column)
    return nbytes


def candidate_index_bytes(index: CandidateIndex) -> dict[str, int]:
    """Return the bytes of a candidate index by part; inserts waiting texts first."""
    index.fill_maps()
    return {
        "fingerprints": column_bytes(index),
        "segments": sum(map(column_bytes, index._segments)),
        "bands": sum(map(column_bytes, index._bands)),
    }


def keepers_bytes(keepers: Keepers) -> dict[str, int]:
    """Return the bytes of the keepers by part, without the cache of shingles."""
    ranks = keepers._ranks.nbytes + keepers._plan_numbers.nbytes
    return {
        **candidate_index_bytes(keepers._index),
        "texts": column_bytes(keepers._texts),
        "ids": column_bytes(keepers._ids) + keepers._is_kept.nbytes,
        "sizes": keepers._sizes.nbytes,
        **({"ranks": ranks} if keepers.has_ranks else {}),
    }
