"""A reference for the index: the candidate rules of docs/explanation/matching.md, one key at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from unittest import mock

import numpy as np

from dedup_job.fingerprint.recipe import Matching
from dedup_job.index import candidate_index
from dedup_job.index.candidate_index import CandidateIndex
from dedup_job.index.key_map_search import NO_DISTANCE

SEGMENT_BITS = 16


@dataclass(frozen=True)
class Sieved:
    """The values of a text that the rules use: its fingerprint or None, and its band keys or none."""

    bits: int | None
    keys: tuple[int, ...]


@dataclass(frozen=True)
class Bounds:
    """The limits: texts stored for one key, and texts that one map returns for one query."""

    listed: int = candidate_index.LISTED
    found: int = candidate_index.FOUND


def candidates(
    texts: Sequence[Sieved], matching: Matching, bits: int, bounds: Bounds
) -> list[list[tuple[int, int]]]:
    """Return for each text the (distance, number) of its candidates, nearest and earliest first."""
    return [sorted(_candidates(texts, number, matching, bits, bounds)) for number in range(len(texts))]


def _candidates(
    texts: Sequence[Sieved], number: int, matching: Matching, bits: int, bounds: Bounds
) -> set[tuple[int, int]]:
    text, found = texts[number], set()
    if text.bits is not None and matching.radius >= bits // SEGMENT_BITS:
        near = [
            other for other in _others(texts, number) if 0 <= _apart(text, texts[other]) <= matching.radius
        ]
        found.update(near[: bounds.found])
    for place in range(bits // SEGMENT_BITS if matching.radius < bits // SEGMENT_BITS else 0):
        if text.bits is not None:
            keys = [None if one.bits is None else _segments(one.bits, place, bits) for one in texts]
            near = [
                other
                for other in _listed(keys, number, bounds)
                if _is_probed(keys[number], keys[other]) and _apart(text, texts[other]) <= matching.radius
            ]
            found.update(near[: bounds.found])
    for place in range(matching.bands):
        if any(text.keys):
            keys = [one.keys[place] if any(one.keys) else None for one in texts]
            near = [
                other
                for other in _listed(keys, number, bounds)
                if keys[other] == keys[number] and _apart(text, texts[other]) <= matching.band_radius
            ]
            found.update(near[: bounds.found])
    return {(NO_DISTANCE if _apart(text, texts[o]) < 0 else _apart(text, texts[o]), o) for o in found}


def _listed(keys: Sequence[object], number: int, bounds: Bounds) -> list[int]:
    """Return the other texts that are stored for their key."""
    return [
        other
        for other in _others(keys, number)
        if keys[other] is not None and list(keys[:other]).count(keys[other]) < bounds.listed
    ]


def _others(texts: Sequence[object], number: int) -> list[int]:
    return [other for other in range(len(texts)) if other != number]


def _segments(bits: int, place: int, length: int) -> tuple[int, int]:
    segments = [bits >> SEGMENT_BITS * one & 0xFFFF for one in range(length // SEGMENT_BITS)]
    return segments[place], segments[(place + 1) % len(segments)]


def _is_probed(own: tuple[int, int], other: tuple[int, int]) -> bool:
    return own[0] == other[0] and (own[1] ^ other[1]).bit_count() <= 1


def _apart(one: Sieved, other: Sieved) -> int:
    """Return the distance in bits; -1 if one of the two has no fingerprint."""
    return -1 if one.bits is None or other.bits is None else (one.bits ^ other.bits).bit_count()


def columns(texts: Sequence[Sieved], bits: int, bands: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return texts as columns for `CandidateIndex.add`."""
    words = [[(text.bits or 0) >> 64 * word & 2**64 - 1 for word in range(bits // 64)] for text in texts]
    return (
        np.array(words, np.uint64).reshape(len(texts), bits // 64),
        np.array([text.bits is not None for text in texts], bool),
        np.array([text.keys for text in texts], np.uint32).reshape(len(texts), bands),
    )


def bounded(bits: int, matching: Matching, bounds: Bounds) -> CandidateIndex:
    """Return an empty index with these limits."""
    with mock.patch.multiple(candidate_index, LISTED=bounds.listed, FOUND=bounds.found):
        return CandidateIndex(bits, matching)
