from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.fingerprint.shingles import NUMBER_PATTERN, comparable_text, shingle_sets
from dedup_job.native.arrays import Ragged
from dedup_job.text.code_points import COMPARED_BIT, encode_lower_case

MASK = 2**64 - 1
TEXTS = st.text(alphabet=st.sampled_from("aB 中文\U00020000x1,#+İΣのकि"), max_size=14)
LENGTHS = st.none() | st.integers(1, 6)


def shingles(texts: Sequence[str], length: int | None = None) -> Ragged:
    """The shingles of cleaned texts."""
    return shingle_sets(encode_lower_case(texts), length)


def slow_hash(window: str) -> int:
    """The documented hash of one shingle, in Python's integers."""
    state = 0x9E3779B97F4A7C15
    for sign in window:
        state = ((state ^ ord(sign)) * 0xD6E8FEB86659FD93) & MASK
        state ^= state >> 32
    return (state >> 16) & 0xFFFF_FFFF


def slow_shingles(text: str, length: int | None) -> list[int]:
    text = "".join(sign for sign in text.lower() if counts(sign))
    lengths = [length or (3 if is_cjk(sign) else 5) for sign in text]
    windows = {text[i : i + n] for i, n in enumerate(lengths) if i + n <= len(text)}
    return sorted({slow_hash(window) for window in windows or ([text] if text else [])})


def counts(sign: str) -> bool:
    return unicodedata.category(sign)[0] in "LMNS" or sign in "#%&@"


def is_cjk(sign: str) -> bool:
    code = ord(sign)
    return (
        0x2E80 <= code <= 0x9FFF
        or 0xAC00 <= code <= 0xD7AF
        or 0xF900 <= code <= 0xFAFF
        or 0x20000 <= code <= 0x3FFFF
    )


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("from 1,000 to -2.50", ["1", "000", "2.50"]),
        (".5 ($.75), x.5 and ..5", [".5", ".75", "5", "5"]),
        ("1.2.3 at 7.", ["1.2", "3", "7"]),
        ("❶➀⓵⓿㉈\U0001f10b 五Ⅳ", ["❶", "➀", "⓵", "⓿", "㉈", "\U0001f10b"]),
    ],
)
def test_a_number_is_a_run_of_digits_or_one_sign(text: str, numbers: list[str]) -> None:
    assert NUMBER_PATTERN.findall(text) == numbers


def test_every_sign_of_a_number_that_nfkc_leaves_is_a_number() -> None:
    circled = [
        char
        for char in map(chr, range(0x110000))
        if re.search("CIRCLED (NUMBER|(SANS-SERIF )?(DIGIT|NUMBER))", unicodedata.name(char, ""))
        and unicodedata.normalize("NFKC", char) == char
    ]
    assert len(circled) == 61
    assert NUMBER_PATTERN.findall("".join(circled)) == circled


@given(st.lists(TEXTS, max_size=5), LENGTHS)
def test_shingles_are_the_sorted_hashes_of_all_windows(texts: list[str], length: int | None) -> None:
    assert [row.tolist() for row in shingles(texts, length)] == [
        slow_shingles(text, length) for text in texts
    ]


@given(st.lists(st.text(max_size=30), max_size=3))
def test_whatever_characters_there_are(texts: list[str]) -> None:
    assert [row.tolist() for row in shingles(texts)] == [slow_shingles(text, None) for text in texts]


@given(TEXTS, st.lists(TEXTS, max_size=3), st.lists(TEXTS, max_size=3), LENGTHS)
def test_the_neighbours_of_a_text_do_not_change_its_shingles(
    text: str, before: list[str], after: list[str], length: int | None
) -> None:
    alone = shingles([text], length)[0]
    assert shingles([*before, text, *after], length)[len(before)].tolist() == alone.tolist()


def test_every_character_counts_or_not_as_its_category_says() -> None:
    every = [chr(code) for code in range(0x110000) if len(chr(code).lower()) == 1]
    found = encode_lower_case(["".join(every).replace("Σ", "σ")]).values & COMPARED_BIT
    assert found.astype(bool).tolist() == [counts(sign.lower()) for sign in every]


def test_golden_values_stay_for_ever() -> None:
    assert shingles(["今天天气很好"])[0].tolist() == [1336790915, 1436162124, 2283796287, 4240182178]


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
    assert comparable_text(spelling) == "helloworld价格100"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("C++ is a language", "C# is a language"),
        ("good 😀", "good 😡"),
        ("x = y", "x ≠ y"),
        ("कि", "की"),
        ("5%", "5&"),
    ],
)
def test_symbols_and_marks_tell_texts_apart(one: str, other: str) -> None:
    assert comparable_text(one) != comparable_text(other)
    first, second = shingles([one, other])
    assert first.tolist() != second.tolist()


def test_a_chinese_place_has_three_characters_and_any_other_five() -> None:
    """`天气好` `气好w` `好we`, and `weath` `eathe` `ather`: behind these no five are left."""
    assert shingles(["天气好weather"])[0].tolist() == slow_shingles("天气好weather", None)
    assert len(shingles(["天气好weather"])[0]) == 6


@given(st.text())
def test_what_counts_of_what_counts_is_the_same(text: str) -> None:
    once = comparable_text(text)
    assert comparable_text(once) == once


def test_shingle_arrays_are_unsigned_32_bit_and_ascending() -> None:
    row = shingles(["the quick brown fox jumps over the lazy dog" * 3], 5)[0]
    assert row.dtype == np.uint32
    assert (np.diff(row.astype(np.int64)) > 0).all()
