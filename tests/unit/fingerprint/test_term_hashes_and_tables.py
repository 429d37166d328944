from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.fingerprint.term_hashes_and_tables import build_table, hash_strings, hash_terms, look_up
from dedup_job.text.code_points import encode_lower_case

WORD = 2**64 - 1
SIGNS = "ab\0\x7f\x80é\u07ff\u0800中文\ud800\uffff\U00010000\U0010ffff"
TERMS = st.text(st.sampled_from(SIGNS), max_size=20) | st.text(st.sampled_from("abc"), max_size=40)


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ("", (0xB1ACEDD695565D40, 0xEF46DB3751D8E999)),
        ("hello", (0x3FA71535D345A62F, 0x4FB657774976E047)),
        ("中", (0xAF90DA79AA0BCEB7, 0xDB369132CBBBB998)),
    ],
)
def test_a_term_hashes_alike_for_ever(term: str, expected: tuple[int, int]) -> None:
    assert hash_strings([term], 128).tolist() == [list(expected)]
    assert hash_strings([term], 64).tolist() == [[expected[0]]]


def hash_slowly(term: str, seed: int) -> int:
    """The definition in Python's integers."""
    state = seed
    for sign in term:
        state = (state ^ ord(sign)) * 0xD6E8FEB86659FD93 & WORD
        state ^= state >> 32
    state = (state ^ state >> 33) * 0xC2B2AE3D27D4EB4F & WORD
    state = (state ^ state >> 29) * 0x165667B19E3779F9 & WORD
    return state ^ state >> 32


@given(st.lists(TERMS | st.text(st.characters())))
def test_hashes_are_those_of_the_definition(terms: list[str]) -> None:
    expected = [
        [hash_slowly(term, seed) for seed in (0x9E3779B97F4A7C15, 0x27D4EB2F165667C5)] for term in terms
    ]
    assert hash_strings(terms, 128).tolist() == expected
    assert hash_strings(terms, 64)[:, 0].tolist() == [first for first, _ in expected]


@pytest.mark.parametrize("terms", [list(map(chr, range(0x4E00, 0x9FA6))), list(map(str, range(20_000)))])
def test_the_bits_of_hashes_are_fair_and_independent(terms: list[str]) -> None:
    """Similar terms, one character each, or digits: as random bits would, within five standard deviations."""
    octets = hash_strings(terms, 128).view(np.uint8)
    bits = 2.0 * np.unpackbits(octets, axis=1) - 1
    deviation = len(terms) ** -0.5
    assert np.abs(bits.mean(axis=0)).max() < 5 * deviation
    products = bits.T @ bits / len(terms)
    np.fill_diagonal(products, 0)
    assert np.abs(products).max() < 5 * deviation


@pytest.mark.parametrize("length", range(20))
def test_every_character_counts(length: int) -> None:
    terms = ["a" * length, *("a" * n + "b" + "a" * (length - n - 1) for n in range(length))]
    assert len(np.unique(hash_strings(terms, 64))) == len(terms)
    assert len(np.unique(hash_strings(terms, 128), axis=0)) == len(terms)


def test_other_bits_than_the_code_point_are_ignored() -> None:
    codes = encode_lower_case(["数据x库"]).values
    starts, stops = np.array([0, 2, 0]), np.array([2, 3, 4])
    assert (
        hash_terms(codes, starts, stops, 64).tolist() == hash_strings(["数据", "x", "数据x库"], 64).tolist()
    )


HASHES = st.integers(0, 2**64 - 1) | st.integers(0, 5) | st.integers(0, 5).map(lambda n: n << 40)


@given(st.lists(st.tuples(HASHES, st.integers(1, 2**62)), max_size=40), st.lists(HASHES, max_size=9))
def test_a_table_has_the_last_value_of_each_hash(entries: list[tuple[int, int]], others: list[int]) -> None:
    table = build_table(
        np.array([key for key, _ in entries], np.uint64), np.array([value for _, value in entries], np.int64)
    )
    keys = [*others, *(key for key, _ in entries)]
    expected = dict(entries)
    assert look_up(np.array(keys, np.uint64), table, 7).tolist() == [expected.get(key, 7) for key in keys]
