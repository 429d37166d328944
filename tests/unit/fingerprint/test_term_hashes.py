from __future__ import annotations

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.fingerprint.term_hashes import build_table, hash_strings, hash_terms, look_up
from dedup_job.text.characters import encode_lower_case

# Of one to four bytes in UTF-8, and the first and last code points of each length.
SIGNS = "ab\0\x7f\x80é\u07ff\u0800中文\ud800\uffff\U00010000\U0010ffff"
TERMS = st.text(st.sampled_from(SIGNS), max_size=20) | st.text(st.sampled_from("abc"), max_size=40)


@pytest.mark.parametrize(
    ("term", "bits", "expected"),
    [
        ("", 64, (0x2D06800538D394C2,)),
        ("hello", 64, (0x9555E8555C62DCFD,)),
        ("数据库", 64, (0xDC299A2B8F4DBF33,)),
        ("", 128, (0x6001C324468D497F, 0x99AA06D3014798D8)),
        ("数据库", 128, (0x3A9D7DBB2065FE8B, 0x3D8B5A893D9C652A)),
    ],
)
def test_a_term_hashes_alike_for_ever(term: str, bits: int, expected: tuple[int, ...]) -> None:
    assert hash_strings([term], bits).tolist() == [list(expected)]


@given(st.lists(TERMS | st.text(st.characters())))
def test_hashes_are_those_of_the_xxhash_package(terms: list[str]) -> None:
    octets = [term.encode("utf-8", "surrogatepass") for term in terms]
    assert hash_strings(terms, 64)[:, 0].tolist() == list(map(xxhash.xxh3_64_intdigest, octets))
    low, high = hash_strings(terms, 128).T.tolist()
    found = [one | other << 64 for one, other in zip(low, high, strict=True)]
    assert found == list(map(xxhash.xxh3_128_intdigest, octets))


@pytest.mark.parametrize("length", range(20))
def test_every_byte_counts(length: int) -> None:
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
    assert look_up(np.array(keys, np.uint64), table).tolist() == [expected.get(key, 0) for key in keys]
