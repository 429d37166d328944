"""Preference keys: bytes by which Spark sorts records best first, as `[match] prefer` says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.preference_ranks import BEST, Ranks, tie_key

# Bytes of a rank by one rule.
RANK_BYTES = 8


def preference_keys(ids: Sequence[bytes], ranks: Ranks | None, first: int) -> list[bytes]:
    """Return bytes for each record that sort best first; empty bytes without `[match] prefer`.

    Reference records come before all others, in the order in which they are read.

    Args:
        ids: Raw ids of n records.
        ranks: uint64, shape (n, rules).
        first: `order` of the first record; the others count up from it.
    """
    if ranks is None:
        return [b""] * len(ids)
    # Inverted, as the greater rank is better, and big-endian, as bytes are compared from the first on.
    inverted = (~ranks).astype(">u8")
    is_reference = (ranks == BEST).all(axis=1).tolist()
    return [
        inverted[row].tobytes() + ((first + row).to_bytes(8) if is_reference[row] else tie_key(raw_id))
        for row, raw_id in enumerate(ids)
    ]


def ranks_in(keys: Sequence[bytes], rules: int) -> npt.NDArray[np.uint64]:
    """Return the ranks in preference keys: uint64, shape (n, rules)."""
    # Records that could not be fingerprinted have no rank: they get zeros, inverted.
    size, none = RANK_BYTES * rules, b"\xff" * RANK_BYTES * rules
    joined = b"".join(key[:size] or none for key in keys)
    return ~np.frombuffer(joined, ">u8").astype(np.uint64).reshape(-1, rules)
