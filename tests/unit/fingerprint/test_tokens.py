from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dedup_job.fingerprint.tokens as module
from dedup_job.fingerprint.idf import Idf
from dedup_job.fingerprint.segment import LONGEST_RUN, Segmenter, python_segmenter, rust_segmenter
from dedup_job.fingerprint.terms import TermRule, Vocabulary
from dedup_job.fingerprint.tokens import Pieces, Tokenizer, TokenRows, token_rows
from dedup_job.text.characters import encode_lower_case, encode_texts, offsets_of


@given(st.lists(st.lists(st.integers(-2, 9), max_size=4), min_size=1, max_size=6), st.data())
def test_texts_have_the_rows_of_their_pieces(learned: list[list[int]], data: st.DataObject) -> None:
    """Rows below 0 are left out; pieces are learned in two parts."""
    known, middle = Pieces(), len(learned) // 2
    for part in (learned[:middle], learned[middle:]):
        rows = np.array([row for piece in part for row in (*piece, -9)], np.int64)
        known.learn(rows == -9, rows)
    texts = data.draw(st.lists(st.lists(st.integers(0, len(learned) - 1), max_size=5), max_size=4))
    offsets, rows = known.rows(offsets_of(texts), np.array([one for text in texts for one in text], np.int64))
    assert [rows[start:stop].tolist() for start, stop in pairwise(offsets)] == [
        [row for piece in text for row in learned[piece] if row >= 0] for text in texts
    ]


STOP_WORDS = frozenset({"the", "的"})
WORDS = [
    "数据库",
    "的",
    "云计算",
    "李小福",
    "the",
    "Quick",
    "C++",
    "3.14",
    "100%",
    "e-mail",
    "ΣΑΣ",
    "a" * 700,
    "中" * 700,
]
SIGNS = "京\U00020000\uf900々éжİ😀+#&_ ，。、（）《》“”…·!?,.-/:@|~\x7f¶→≤"
TEXTS = st.lists(st.lists(st.sampled_from([*WORDS, *SIGNS]), max_size=25).map("".join), max_size=5)


def tokens(features: str, text: str) -> list[str]:
    return Tokenizer(TermRule(features), str.split, frozenset())(text)


def test_words_are_those_of_the_segmenter_in_lower_case() -> None:
    assert tokens("words", "The Quick , Fox") == ["the", "quick", ",", "fox"]


def test_chinese_characters_count_beside_the_words() -> None:
    assert tokens("words+han", "数据库 big 库") == ["数据库", "big", "库", "数", "据", "库", "库"]


def test_runs_of_words_leave_punctuation_out() -> None:
    assert tokens("words:2", "the quick , brown fox") == ["the quick", "quick brown", "brown fox"]
    assert tokens("words:3", "a b") == []


def test_character_grams_run_over_letters_and_digits_alone() -> None:
    assert tokens("chars:3", "A b，中文 1") == ["ab中", "b中文", "中文1"]
    assert tokens("chars:1", "A b") == ["a", "b"]


@given(st.text(), st.integers(1, 4))
def test_character_grams_have_their_length(text: str, length: int) -> None:
    assert {len(token) for token in tokens(f"chars:{length}", text)} <= {length}


def terms_of(rows: TokenRows, vocabulary: Vocabulary, texts: Sequence[str]) -> list[Counter[str]]:
    """The terms of each text and how often it has them, by way of the rows."""
    offsets, found = rows(texts, encode_lower_case(texts))
    name = vocabulary.terms()
    return [
        Counter(name[row] for row in found[start:stop].tolist() if row >= 0)
        for start, stop in pairwise(offsets)
    ]


def plain_terms(tokenizer: Tokenizer, vocabulary: Vocabulary, texts: Sequence[str]) -> list[Counter[str]]:
    """The same from the tokens of each text alone."""
    return [
        Counter(
            token
            for token, row in zip(tokens, vocabulary.rows(encode_texts(tokens)), strict=True)
            if row >= 0
        )
        for tokens in map(tokenizer, texts)
    ]


USER_WORDS = [
    ("李小福", 100_000),
    ("c++", 100_000),
    ("云计算，的", 100_000),
    ("乔治·布什", 100_000),
    ("的 the", 100_000),
]
MAKERS = {"rjieba": rust_segmenter, "jieba": python_segmenter}


@cache
def segmenter_of(name: str, *, is_taught: bool) -> Segmenter:
    return MAKERS[name](USER_WORDS if is_taught else [])


@pytest.mark.long
@pytest.mark.parametrize("is_taught", [False, True])
@pytest.mark.parametrize("name", sorted(MAKERS))
@pytest.mark.parametrize("features", ["words", "words+han", "words:2", "chars:3"])
@settings(max_examples=30)
@given(batches=st.lists(TEXTS, max_size=3))
def test_the_rows_of_a_text_are_those_of_its_tokens(
    features: str, name: str, is_taught: bool, batches: list[list[str]]
) -> None:
    """Piece by piece, remembered from batch to batch, or all at once: the terms are the same."""
    rule = TermRule(features, min_length=1)
    vocabulary = Vocabulary(rule, Idf.of([], [], 1), STOP_WORDS, 64)
    tokenizer = Tokenizer(rule, segmenter_of(name, is_taught=is_taught), STOP_WORDS)
    rows = token_rows(rule, tokenizer, vocabulary)
    for texts in batches:
        assert terms_of(rows, vocabulary, texts) == plain_terms(tokenizer, vocabulary, texts)


class Counting:
    """A segmenter that counts what it is given."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def __call__(self, text: str) -> list[str]:
        self.given.append(text)
        return re.findall("[^ ]+| ", text)


def counting() -> tuple[Counting, TokenRows, Vocabulary]:
    segmenter, rule = Counting(), TermRule("words")
    vocabulary = Vocabulary(rule, Idf.of([], [], 1), frozenset(), 64)
    return segmenter, token_rows(rule, Tokenizer(rule, segmenter, frozenset()), vocabulary), vocabulary


def test_a_piece_is_segmented_once() -> None:
    segmenter, rows, vocabulary = counting()
    assert terms_of(rows, vocabulary, ["red, blue", "Blue. green"]) == [
        Counter(["red", "blue"]),
        Counter(["blue", "green"]),
    ]
    assert terms_of(rows, vocabulary, ["green red; white"]) == [Counter(["green", "red", "white"])]
    assert segmenter.given == ["red blue green ", "white "]


@pytest.mark.parametrize(
    ("segmenter", "lost"), [(str.split, "a character"), (lambda text: [text], "a space")], ids=["none", "all"]
)
def test_a_segmenter_that_loses_spaces_is_noticed(segmenter: Segmenter, lost: str) -> None:
    vocabulary = Vocabulary(TermRule("words"), Idf.of([], [], 1), frozenset(), 64)
    rows = token_rows(TermRule("words"), Tokenizer(TermRule("words"), segmenter, frozenset()), vocabulary)
    with pytest.raises(ValueError, match=f"lost {lost}"):
        terms_of(rows, vocabulary, ["red, blue"])


@pytest.mark.parametrize("at_once", [1, 5, 9, 10_000])
def test_how_much_is_segmented_at_once_does_not_matter(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(module, "AT_ONCE", at_once)
    segmenter, rows, vocabulary = counting()
    text = "red, blue, yellow, light green; ox"
    expected = Counter(re.findall("[a-z]+", text))
    assert terms_of(rows, vocabulary, [text, "", text]) == [expected, Counter(), expected]
    assert "".join(segmenter.given) == "red blue yellow light green ox "
    assert all(part.endswith(" ") for part in segmenter.given)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CHARACTERS", 5)
    segmenter, rows, vocabulary = counting()
    for text in ("red", "blue", "red", "red blue"):
        assert terms_of(rows, vocabulary, [text]) == [Counter(text.split())]
    assert segmenter.given == ["red ", "blue ", "red ", "blue "]


def test_a_long_run_of_letters_is_cut_as_the_segmenters_need_it() -> None:
    segmenter, rows, vocabulary = counting()
    terms_of(rows, vocabulary, ["a" * (2 * LONGEST_RUN + 1), "+" * (LONGEST_RUN + 1)])
    assert [len(piece) for piece in segmenter.given[0].split()] == [LONGEST_RUN, 1, LONGEST_RUN + 1]
