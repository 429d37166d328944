from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from dedup_job.engine.spark.nearby import Texts, entries, first_found, pairs
from dedup_job.fingerprint.recipe import Matching
from tests.sieve import Bounds, Sieved, candidates, columns

FEW, USUAL = Bounds(listed=3, found=2), Bounds()


def found(
    texts: list[Sieved], matching: Matching, bits: int, bounds: Bounds = USUAL
) -> list[list[tuple[int, int]]]:
    """What the groups give, as the sieve says it."""
    words, near, keys = columns(texts, bits, matching.bands)
    again = np.ones(len(texts), bool)
    all_texts = Texts(np.arange(len(texts)), words, near, keys, again)
    met = pairs(entries(all_texts, matching), matching, bounds.listed, bounds.found)
    met = first_found(met, bounds.found)
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
def test_groups_find_what_the_sieve_finds(seed: int, bits: int, bounds: Bounds) -> None:
    matching = Matching(bands=3, band_radius=6)
    texts = crowd(Random(seed), 120, bits, matching.bands)
    expected = candidates(texts, matching, bits, bounds)
    assert sum(map(len, expected)) > 200
    assert found(texts, matching, bits, bounds) == expected


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
    all_texts = Texts(np.arange(len(texts)), words, near, keys, np.ones(len(texts), bool))
    every = first_found(pairs(entries(all_texts, matching), matching))
    some = first_found(pairs(entries(replace(all_texts, again=again), matching), matching))
    wanted = (every.other < every.text) | again[every.text]
    assert [column.tolist() for column in some] == [column[wanted].tolist() for column in every]
