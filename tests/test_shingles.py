from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.fingerprint.characters import lower_case
from dedup_job.fingerprint.shingles import letter_shingles, normalised, shingles

MASK = 2**64 - 1
TEXTS = st.text(alphabet=st.sampled_from("ab中文\U00020000x1"), max_size=12)


def slow_hash(window: str) -> int:
    """The documented hash of one shingle, in Python's integers."""
    state = 0x9E3779B97F4A7C15
    for sign in window:
        state = ((state ^ ord(sign)) * 0xD6E8FEB86659FD93) & MASK
        state ^= state >> 32
    return (state >> 16) & 0xFFFF_FFFF


def slow_shingles(text: str, length: int) -> list[int]:
    windows = {text[i : i + length] for i in range(max(len(text) - length + 1, min(len(text), 1)))}
    return sorted({slow_hash(window) for window in windows})


@given(st.lists(TEXTS, max_size=5), st.integers(1, 6))
def test_shingles_are_the_sorted_hashes_of_all_windows(texts: list[str], length: int) -> None:
    found = shingles(texts, length)
    assert [row.tolist() for row in found] == [slow_shingles(text, length) for text in texts]


@given(TEXTS, st.lists(TEXTS, max_size=3), st.lists(TEXTS, max_size=3), st.integers(1, 6))
def test_the_neighbours_of_a_text_do_not_change_its_shingles(
    text: str, before: list[str], after: list[str], length: int
) -> None:
    alone = shingles([text], length)[0]
    assert shingles([*before, text, *after], length)[len(before)].tolist() == alone.tolist()


@given(st.lists(st.text(st.one_of(st.characters(), st.sampled_from("aBΣİ_ 中，1")))), st.integers(1, 6))
def test_letter_shingles_are_the_shingles_of_the_normalised_texts(texts: list[str], length: int) -> None:
    found = letter_shingles(lower_case(texts), length)
    assert [row.tolist() for row in found] == [
        row.tolist() for row in shingles([normalised(text) for text in texts], length)
    ]


def test_golden_values_stay_for_ever() -> None:
    assert shingles(["今天天气很好"], 3)[0].tolist() == [1336790915, 1436162124, 2283796287, 4240182178]


def test_two_characters_each_give_three_distinct_shingles() -> None:
    assert len(shingles(["abcab"], 2)[0]) == 3


def test_a_text_shorter_than_a_shingle_is_its_own_only_shingle() -> None:
    short, other = shingles(["ab", "ac"], 5)
    assert len(short) == len(other) == 1
    assert short.tolist() != other.tolist()


def test_an_empty_text_has_no_shingles() -> None:
    assert [len(row) for row in shingles(["", "abc", ""], 2)] == [0, 2, 0]


def test_no_texts_give_no_rows() -> None:
    assert len(shingles([], 5)) == 0


def test_a_lone_surrogate_is_a_character_like_any_other() -> None:
    assert shingles(["\ud800ab"], 2)[0].tolist() == slow_shingles("\ud800ab", 2)


@pytest.mark.parametrize(
    "spelling", ["Hello, World! 价格：100", "hello world价格 100", "HELLO_WORLD (价格) 1-00"]
)
def test_case_punctuation_and_spacing_are_no_part_of_a_shingle(spelling: str) -> None:
    assert normalised(spelling) == "helloworld价格100"


@given(st.text())
def test_normalising_twice_is_normalising_once(text: str) -> None:
    once = normalised(text)
    assert normalised(once) == once


def test_shingle_arrays_are_unsigned_32_bit_and_ascending() -> None:
    row = shingles(["the quick brown fox jumps over the lazy dog" * 3], 5)[0]
    assert row.dtype == np.uint32
    assert (np.diff(row.astype(np.int64)) > 0).all()
