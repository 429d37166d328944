"""Known texts: what came of those that were fingerprinted lately, for when one comes again.

A job that removes duplicates meets many texts twice, most of them long after.  To segment and weigh a text
takes three quarters of a worker's time; to know it again takes its digest, which is needed anyway.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]

PLACES = 1 << 19  # 16 MB with fingerprints of 64 bits


class KnownTexts:
    """Simhashes and numbers of terms by the digest of the text.

    The lowest bits of a digest say at which place it is looked for.  A text takes its place from the one that
    had it, so that the latest are known and memory is bounded.
    """

    def __init__(self, words: int) -> None:
        """Know none; their fingerprints will have so many words of 64 bits."""
        self._rows = np.zeros((PLACES, 2 + words + 1), np.uint64)  # digest, fingerprint, number of terms

    def find(self, digests: Bits) -> tuple[npt.NDArray[np.bool_], Bits, Counts]:
        """Return which of n texts are known, bool (n,), their fingerprints and how many terms each has.

        digests  uint64 (n, 2)

        Rows of texts that are not known hold anything.
        """
        rows = self._rows[_places(digests)]
        return (rows[:, :2] == digests).all(axis=1), rows[:, 2:-1], rows[:, -1].astype(np.int64)

    def put(self, digests: Bits, bits: Bits, counts: Counts) -> None:
        """Know these texts from now on."""
        self._rows[_places(digests)] = np.column_stack([digests, bits, counts.astype(np.uint64)])


def _places(digests: Bits) -> npt.NDArray[np.intp]:
    return (digests[:, 0] & np.uint64(PLACES - 1)).astype(np.intp)
