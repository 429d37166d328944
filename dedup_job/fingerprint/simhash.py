"""Simhash: one fingerprint of a text's weighted terms; similar texts differ in few bits.

Charikar, "Similarity estimation techniques from rounding algorithms", STOC 2002, section 3; Manku, Jain and
Das Sarma, "Detecting near-duplicates for web crawling", WWW 2007, section 2.

Each term's stable hash votes bit by bit: its weight for a 1, minus its weight for a 0. A bit of the
fingerprint is 1 if the sum of votes is greater than 0. Weights are integers, so sums are exact and do not
depend on the order of the terms.

Worked example with 4-bit hashes: terms 0b0011 (weight 3), 0b0101 (weight 2), 0b1001 (weight 2):

    bit 0: +3 +2 +2 = 7 -> 1      bit 2: -3 +2 -2 = -3 -> 0
    bit 1: +3 -2 -2 = -1 -> 0     bit 3: -3 -2 +2 = -3 -> 0      fingerprint 0b0001
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dedup_job.native.numba_compile import compiled


@compiled
def compute_simhashes(
    offsets: npt.NDArray[np.int64], weights: npt.NDArray[np.int64], hashes: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    """Compute the fingerprints of n texts from their weighted terms.

    Args:
        offsets: int64 (n + 1,): text i has the entries offsets[i] to offsets[i + 1].
        weights: int64, the weight of each entry's term; sums must stay below 2**63.
        hashes: uint64 (m, words), the hash of each entry's term, from `hash_terms`.

    Returns:
        uint64 (n, words); 0 for a text without terms.
    """
    texts, words = len(offsets) - 1, hashes.shape[1]
    fingerprints = np.zeros((texts, words), np.uint64)
    votes = np.empty(64, np.int64)
    for text in range(texts):
        for word in range(words):
            votes[:] = total = 0
            for entry in range(offsets[text], offsets[text + 1]):
                value, weight = hashes[entry, word], weights[entry]
                total += weight
                # Only votes for a 1 are summed up, in a loop that the compiler does for several bits at once.
                for bit in range(64):
                    votes[bit] += weight if value & (np.uint64(1) << np.uint64(bit)) else 0
            for bit in range(64):
                if votes[bit] > total - votes[bit]:
                    fingerprints[text, word] |= np.uint64(1) << np.uint64(bit)
    return fingerprints


def hamming(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Count the bits that differ between fingerprints (Hamming distance), summed over the last axis.

    >>> int(hamming(np.array([0b1011], np.uint64), np.array([0b0001], np.uint64)))
    2
    """
    distances: npt.NDArray[np.int64] = np.bitwise_count(a ^ b).sum(axis=-1, dtype=np.int64)
    return distances
