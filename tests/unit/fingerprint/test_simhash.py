from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.fingerprint.simhash import compute_simhashes, hamming

Terms = Sequence[tuple[int, int]]  # (hash, weight)

HASHES = st.integers(0, 2**128 - 1)
WEIGHTS = st.integers(1, 2**40)
TEXTS = st.lists(st.lists(st.tuples(HASHES, WEIGHTS), max_size=8), max_size=5)


def words_of(value: int, words: int) -> list[int]:
    return [(value >> (64 * word)) & (2**64 - 1) for word in range(words)]


def folded(texts: Sequence[Terms], words: int = 1) -> list[int]:
    """Fold texts whose terms are given as (hash, weight); fingerprints as integers."""
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    entries = [entry for text in texts for entry in text]
    hashes = np.array([words_of(value, words) for value, _ in entries], np.uint64).reshape(-1, words)
    weights = np.array([weight for _, weight in entries], np.int64)
    prints = compute_simhashes(offsets, weights, hashes)
    return [sum(int(word) << (64 * i) for i, word in enumerate(row)) for row in prints]


def slow_simhash(terms: Terms, bits: int) -> int:
    """Simhash by the book: one vote for each bit of each term."""
    value = 0
    for bit in range(bits):
        votes = sum(weight if hashed >> bit & 1 else -weight for hashed, weight in terms)
        value |= (votes > 0) << bit
    return value


@pytest.mark.parametrize("words", [1, 2, 4])
@given(texts=TEXTS)
def test_folding_is_voting_bit_by_bit(words: int, texts: list[Terms]) -> None:
    assert folded(texts, words) == [slow_simhash(text, 64 * words) for text in texts]


def test_the_worked_example_of_the_module() -> None:
    (value,) = folded([[(0b0011, 3), (0b0101, 2), (0b1001, 2)]])
    assert value == 0b0001


@given(
    st.lists(st.tuples(HASHES, WEIGHTS), max_size=10).flatmap(
        lambda t: st.tuples(st.just(t), st.permutations(t))
    )
)
def test_the_order_of_the_terms_does_not_matter(drawn: tuple[Terms, Terms]) -> None:
    terms, shuffled = drawn
    assert folded([terms], 2) == folded([shuffled], 2)


@pytest.mark.parametrize("heavy", [2**53, 2**61])
def test_one_unit_decides_between_huge_weights(heavy: int) -> None:
    """In floating point 2**53 + 1 is 2**53, so the votes would cancel out."""
    assert folded([[(1, heavy + 1), (0, heavy)]]) == [1]
    assert folded([[(1, heavy), (0, heavy + 1)]]) == [0]


def test_a_tie_is_a_zero() -> None:
    assert folded([[(1, 5), (0, 5)]]) == [0]


def test_a_text_without_terms_has_the_fingerprint_zero() -> None:
    assert folded([[], [(7, 1)], []]) == [0, 7, 0]


def test_one_term_alone_is_the_fingerprint() -> None:
    value = 0x0123_4567_89AB_CDEF_FEDC_BA98_7654_3210
    assert folded([[(value, 1)]], 2) == [value]


@given(st.lists(st.tuples(HASHES, HASHES), min_size=1, max_size=6))
def test_hamming_counts_the_bits_that_differ(pairs: list[tuple[int, int]]) -> None:
    a, b = (np.array([words_of(pair[side], 2) for pair in pairs], np.uint64) for side in (0, 1))
    assert hamming(a, b).tolist() == [(x ^ y).bit_count() for x, y in pairs]
