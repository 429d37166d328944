"""Groups: keep texts of different groups apart, so that no search finds and no comparison matches them.

The group of a record is a digest of the values of the fields in `[match] within`.  It changes everything by
which texts are found, and costs no further column:

- The digest of the text becomes a digest of text and group.
- The simhash and the band keys are combined with the group by exclusive or.  Distances and shared keys within
  a group stay the same.  Two groups share keys as rarely as unrelated texts do, so that a crowded key of one
  group does not hide texts of another.
- The group stands before the shingles.  Texts of different groups are never similar, also if their keys
  happen to collide: this takes two groups with the same 128-bit BLAKE2b digest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dedup_job.native.arrays import Ragged
from dedup_job.records import Fingerprints, digests

# 32-bit words of a group before the shingles of a text.
GROUP_WORDS = 4
Words = npt.NDArray[np.uint64]


def separate_groups(prints: Fingerprints, groups: Sequence[bytes]) -> Fingerprints:
    """Return the fingerprints of n records with their groups worked in.

    Args:
        prints: Fingerprints that depend on the texts alone.
        groups: The digest of each record's group, 16 bytes; anything for a record without a text.
    """
    words = np.frombuffer(b"".join(group or bytes(16) for group in groups), np.uint64).reshape(-1, 2)
    return replace(
        _mask(prints, words),
        digests=digests_in_groups(prints.digests, words),
        shingles=_prepend(words.view(np.uint32), prints.shingles),
    )


def without_groups(prints: Fingerprints, header: int) -> Fingerprints:
    """Return fingerprints that depend on the texts alone, to measure how alike texts of any groups are.

    The digests still depend on the groups.

    Args:
        prints: Fingerprints of texts.
        header: Words of the group before the shingles; with 0 the fingerprints are returned unchanged.
    """
    if not header:
        return prints
    words = np.zeros((len(prints), GROUP_WORDS), np.uint32)
    # A record that could not be processed has no group.
    has_group = np.diff(prints.shingles.offsets) >= GROUP_WORDS
    places = prints.shingles.offsets[:-1][has_group, None] + np.arange(GROUP_WORDS)
    words[has_group] = prints.shingles.values[places]
    rest = np.ones(len(prints.shingles.values), np.bool_)
    rest[places] = False
    return replace(_mask(prints, words.view(np.uint64)), shingles=prints.shingles.where(rest))


def have_same_group(prints: Fingerprints, header: int) -> bool:
    """Return whether two texts are of the same group."""
    first, second = (row[:header].tolist() for row in prints.shingles)
    return bool(first == second)


def mix_groups(sets: Ragged, header: int) -> Ragged:
    """Return sets without the words of the group, which keep texts of different groups apart.

    Sets of one group are as similar as before.  For measurements that take plain sets: single hashes of two
    groups may still collide.
    """
    if not header:
        return sets
    rows = [np.sort(row[header:] ^ row[0]) if len(row) else row for row in sets]
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return Ragged(offsets, np.concatenate([*rows, np.empty(0, np.uint32)]))


def digests_in_groups(text_digests: Words, groups: Words) -> Words:
    """Return a digest of each text and its group, uint64 (n, 2); zeros where there is no text."""
    # Slices of one copy of all bytes: much faster than a numpy row for each text.
    content = np.column_stack([text_digests, groups]).tobytes()
    mixed = digests(content[at : at + 32] for at in range(0, len(content), 32)).copy()
    mixed[(text_digests == 0).all(axis=1)] = 0
    return mixed


def _mask(prints: Fingerprints, groups: Words) -> Fingerprints:
    """Combine simhashes and band keys with the groups; doing so again undoes it."""
    has_keys = prints.keys.any(axis=1, keepdims=True)
    masks = groups.view(np.uint32)[:, :1]
    return replace(
        prints,
        # Zeros, which say that there is no fingerprint or no key, remain.
        bits=np.where(prints.has_fingerprint[:, None], prints.bits ^ groups[:, : prints.bits.shape[1]], 0),
        keys=np.where(has_keys, prints.keys ^ masks, 0),
    )


def _prepend(words: npt.NDArray[np.uint32], sets: Ragged) -> Ragged:
    """Return the rows of `sets`, each behind its row of `words`."""
    offsets = sets.offsets + GROUP_WORDS * np.arange(len(sets) + 1)
    values = np.empty(offsets[-1], np.uint32)
    is_word = np.zeros(len(values), np.bool_)
    places = offsets[:-1, None] + np.arange(GROUP_WORDS)
    is_word[places] = True
    values[places], values[~is_word] = words, sets.values
    return Ragged(offsets, values)
