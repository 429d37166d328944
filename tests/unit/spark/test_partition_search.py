from __future__ import annotations

from dataclasses import replace
from random import Random
from unittest import mock

import numpy as np
import pytest

from dedup_job.fingerprint.recipe import Matching
from dedup_job.index import candidate_index
from dedup_job.spark.partition_search import (
    CrowdedKeys,
    DistinctTexts,
    FoundPairs,
    KeyEntries,
    entries,
    first_found,
    first_listed,
    in_every_part,
    pairs,
    spread,
)
from tests.support.reference_index import Bounds, Sieved, candidates, columns

FEW, USUAL = Bounds(listed=3, found=2), Bounds()
PLACES = 4


def nobody() -> CrowdedKeys:
    return CrowdedKeys(np.empty(0, np.int64), np.empty(0, np.int64))


def crowded_at(all_entries: KeyEntries, most: int) -> CrowdedKeys:
    """The keys that more texts have than so many, cut into parts of so many."""
    keys, counts = np.unique(all_entries.place, return_counts=True)
    return CrowdedKeys(keys[counts > most], -(-counts[counts > most] // most))


def shared_out(some: KeyEntries, crowded: CrowdedKeys) -> list[KeyEntries]:
    """Entries by place, as Spark shares them out; those that are listed come from two sets of texts."""
    is_crowded = np.isin(some.place, crowded.keys)
    halves = [some.take(is_crowded & (some.text % 2 == half)) for half in range(2)]
    listed = first_listed(KeyEntries.join(map(first_listed, halves)))
    every = KeyEntries.join([spread(some, crowded), in_every_part(listed, crowded)])
    at = every.place * 2654435761 % (1 << 32) % PLACES
    return [every.take(at == place) for place in range(PLACES)]


def found(
    texts: list[Sieved],
    matching: Matching,
    bits: int,
    bounds: Bounds = USUAL,
    crowd: int | None = None,
) -> list[list[tuple[int, int]]]:
    """What the parts give, as the sieve says it."""
    words, near, keys = columns(texts, bits, matching.bands)
    again = np.ones(len(texts), bool)
    all_entries = entries(
        DistinctTexts(np.arange(len(texts)), words, near, keys, again, np.ones(len(texts), bool)), matching
    )
    crowded = crowded_at(all_entries, crowd) if crowd else nobody()
    with mock.patch.multiple(candidate_index, LISTED=bounds.listed, FOUND=bounds.found):
        met = [pairs(part, matching) for part in shared_out(all_entries, crowded)]
        met = first_found(FoundPairs._make(map(np.concatenate, zip(*met, strict=True))))
    rows: list[list[tuple[int, int]]] = [[] for _ in texts]
    for text, other, distance in zip(
        met.text.tolist(), met.other.tolist(), met.distance.tolist(), strict=True
    ):
        rows[text].append((distance, other))
    return [sorted(row) for row in rows]


def crowd(rng: Random, count: int, bits: int, bands: int) -> list[Sieved]:
    """Texts around a few centres: some without a fingerprint, some without keys."""
    centres = [rng.getrandbits(bits) for _ in range(3)]
    made = []
    for _ in range(count):
        value = rng.choice(centres)
        for _ in range(rng.choice([0, 1, 2, 3, 5])):
            value ^= 1 << rng.randrange(bits)
        keys = tuple(rng.choice([7, 8, 9, rng.getrandbits(32)]) for _ in range(bands))
        made.append(
            Sieved(None if rng.random() < 0.1 else value, keys if rng.random() < 0.9 else (0,) * bands)
        )
    return made


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("bits", [64, 128])
@pytest.mark.parametrize("bounds", [FEW, USUAL])
def test_parts_find_what_the_sieve_finds(seed: int, bits: int, bounds: Bounds) -> None:
    matching = Matching(bands=3, band_radius=6)
    texts = crowd(Random(seed), 120, bits, matching.bands)
    expected = candidates(texts, matching, bits, bounds)
    assert sum(map(len, expected)) > 200
    assert found(texts, matching, bits, bounds) == expected


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bits", [64, 128])
@pytest.mark.parametrize("bounds", [FEW, USUAL])
def test_crowded_keys_find_the_same_in_several_parts(seed: int, bits: int, bounds: Bounds) -> None:
    matching = Matching(bands=3, band_radius=6)
    texts = crowd(Random(seed), 400, bits, matching.bands)
    assert found(texts, matching, bits, bounds, crowd=30) == found(texts, matching, bits, bounds)


def test_of_a_crowded_key_each_part_has_its_own_texts_and_those_that_are_listed() -> None:
    matching = Matching(bands=1)
    texts = [Sieved(None, (7,)) for _ in range(1_000)]
    words, near, keys = columns(texts, 64, 1)
    some = entries(
        DistinctTexts(np.arange(1_000), words, near, keys, np.zeros(1_000, bool), np.ones(1_000, bool)),
        matching,
    )
    crowded = crowded_at(some, 250)
    assert crowded.parts.tolist() == [4]
    spread_out, listed = spread(some, crowded), in_every_part(first_listed(some), crowded)
    assert np.unique(spread_out.place, return_counts=True)[1].tolist() == [250] * 4
    assert np.unique(listed.place, return_counts=True)[1].tolist() == [candidate_index.LISTED] * 4
    assert set(listed.place.tolist()) == set(spread_out.place.tolist())
    assert not listed.asks.any()


def test_segments_alone_find_what_the_sieve_finds() -> None:
    matching = Matching(bands=0)
    texts = crowd(Random(1), 100, 64, 0)
    assert found(texts, matching, 64) == candidates(texts, matching, 64, USUAL)


def test_nothing_finds_nothing() -> None:
    assert found([], Matching(), 64) == []


def test_a_text_that_comes_once_finds_earlier_ones_alone() -> None:
    matching = Matching(bands=2)
    texts = crowd(Random(2), 80, 64, 2)
    words, near, keys = columns(texts, 64, 2)
    again = np.arange(len(texts)) % 5 == 0
    all_texts = DistinctTexts(np.arange(len(texts)), words, near, keys, *[np.ones(len(texts), bool)] * 2)
    every = first_found(pairs(entries(all_texts, matching), matching))
    some = first_found(pairs(entries(replace(all_texts, again=again), matching), matching))
    wanted = (every.other < every.text) | again[every.text]
    assert [column.tolist() for column in some] == [column[wanted].tolist() for column in every]
