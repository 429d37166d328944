from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain, pairwise
from math import isqrt, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.fingerprint.idf import MOST, SCALE, Idf, idf_weights
from dedup_job.fingerprint.jieba_to_segmenter_trie import load_tables
from dedup_job.fingerprint.segment import Segmenter
from dedup_job.fingerprint.term_hashes_and_tables import hash_strings
from dedup_job.fingerprint.weighted_terms import (
    TF_LIMIT,
    TermFinder,
    TermRule,
    term_frequency_weights,
)
from dedup_job.native.arrays import Ragged
from dedup_job.text.code_points import CODE_POINT, encode_lower_case

CHINESE = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
# 1.0 is 1024.
IDF = Idf.of(["a", "b", "cc", "中文"], [512, 2048, 2048, 7424], unknown=10240)
WORDS = partial(TermRule, features="words", min_length=1, tf="log", idf="full")
STOP_WORDS = frozenset({"the", "的"})
TOKENS = st.lists(
    st.sampled_from(["a", "b", "cc", "中文", "unheard", "the", "的", "水", ",", "。", "--", "x1"]),
    max_size=30,
)
RULES = st.builds(
    TermRule,
    features=st.sampled_from(["words", "words+han"]),
    min_length=st.integers(1, 2),
    tf=st.sampled_from(["log", "raw", "binary"]),
    idf=st.sampled_from(["full", "sqrt", "none"]),
    top=st.integers(0, 4),
)


class AtSpaces(Segmenter):
    """Splits texts at spaces, so that a test can choose the words."""

    def __init__(self) -> None:
        pass

    def __call__(self, text: str) -> list[str]:
        return re.findall("[^ ]+| ", text)

    def word_starts(self, codes: Ragged) -> np.ndarray:
        is_space = codes.values & CODE_POINT == ord(" ")
        starts = is_space.copy()
        starts[1:] |= is_space[:-1]
        starts[codes.offsets[:-1][np.diff(codes.offsets) > 0]] = True
        return starts


def finder_of(
    rule: TermRule, idf: Idf = IDF, bits: int = 64, segmenter: Segmenter | None = None
) -> TermFinder:
    return TermFinder(rule, segmenter or AtSpaces(), idf.weights(rule.idf), STOP_WORDS, bits)


def weighed(texts: Sequence[Sequence[str]], rule: TermRule, bits: int = 64) -> list[dict[str, int]]:
    """The weighted terms of texts, given as words."""
    joined, finder = [" ".join(text) for text in texts], finder_of(rule, bits=bits)
    found = finder.find(joined, encode_lower_case(joined))
    terms = finder.weigh(found)
    names = found.names(terms.places)
    assert (terms.hashes == hash_strings(names, bits)).all()
    assert len(terms.offsets) == len(texts) + 1
    return [
        dict(zip(names[start:stop], terms.weights[start:stop].tolist(), strict=True))
        for start, stop in pairwise(terms.offsets.tolist())
    ]


def plain_terms(words: Sequence[str], rule: TermRule) -> list[str]:
    """The terms among some words, and the Chinese characters."""

    def is_term(word: str) -> bool:
        is_han = rule.features == "words+han" and CHINESE.fullmatch(word) is not None
        return is_han or (len(word) >= rule.min_length and any(map(str.isalnum, word)))

    characters = CHINESE.findall("".join(words)) if rule.features == "words+han" else []
    return [term for term in [*filter(is_term, words), *characters] if term not in STOP_WORDS]


def slow_weights(text: Sequence[str], rule: TermRule) -> dict[str, int]:
    """The same with a Counter, one term at a time."""
    counted = Counter(plain_terms(text, rule))
    frequency = {
        "log": lambda tf: round((1 + log(tf)) * SCALE),
        "raw": lambda tf: tf * SCALE,
        "binary": lambda _: SCALE,
    }
    rarity = {"full": lambda idf: idf, "sqrt": lambda idf: isqrt(idf * SCALE), "none": lambda _: SCALE}
    weights = {
        term: frequency[rule.tf](tf) * rarity[rule.idf](IDF(hash_strings([term], 64)[:, 0]).item())
        for term, tf in counted.items()
    }
    order = sorted(weights, key=lambda term: (-weights[term], hash_strings([term], 64).item()))
    return {term: weights[term] for term in order[: rule.top or None]}


@given(st.lists(TOKENS, max_size=5), RULES)
def test_weights_are_those_of_a_plain_counter(texts: list[list[str]], rule: TermRule) -> None:
    assert weighed(texts, rule) == [slow_weights(text, rule) for text in texts]


@given(TOKENS, st.lists(TOKENS, max_size=3), RULES)
def test_the_neighbours_of_a_text_do_not_change_its_terms(
    text: list[str], before: list[list[str]], rule: TermRule
) -> None:
    assert weighed([*before, text], rule)[-1] == weighed([text], rule)[0]


@given(TOKENS.flatmap(lambda text: st.tuples(st.just(text), st.permutations(text))), RULES)
def test_the_order_of_the_tokens_does_not_matter(drawn: tuple[list[str], list[str]], rule: TermRule) -> None:
    text, shuffled = drawn
    assert weighed([text], rule) == weighed([shuffled], rule)


def test_ties_at_the_top_go_to_the_smaller_hash() -> None:
    tied = [f"word{i}" for i in range(20)]
    (kept,) = weighed([tied], WORDS(top=5))
    assert set(kept) == set(sorted(tied, key=lambda term: hash_strings([term], 64).item())[:5])


def test_a_lighter_term_never_takes_the_place_of_a_heavier_one() -> None:
    (kept,) = weighed([["a", "中文", "b"]], WORDS(top=2))
    assert set(kept) == {"中文", "b"}


@pytest.mark.parametrize(
    ("tf", "idf", "expected"),
    [
        ("log", "full", 1734 * 2048),
        ("raw", "full", 2048 * 2048),
        ("binary", "full", 1024 * 2048),
        ("raw", "sqrt", 2048 * 1448),
        ("raw", "none", 2048 * 1024),
        ("binary", "none", 1024 * 1024),
    ],
)
def test_the_weight_of_a_term_of_idf_2_that_is_there_twice(tf: str, idf: str, expected: int) -> None:
    assert weighed([["b", "b"]], WORDS(tf=tf, idf=idf)) == [{"b": expected}]


def test_a_weight_is_an_integer_of_at_least_one() -> None:
    finder = finder_of(WORDS(tf="raw"), Idf.of(["x"], [1], 1))
    terms = finder.weigh(finder.find(["x"], encode_lower_case(["x"])))
    assert terms.weights.dtype == np.int64
    assert terms.weights.min() >= 1


def test_a_term_frequency_beyond_the_table_counts_as_the_greatest() -> None:
    (terms,) = weighed([["b"] * (TF_LIMIT + 10)], WORDS(tf="raw", idf="none"))
    assert terms == {"b": (TF_LIMIT - 1) * SCALE * SCALE}


def test_no_texts_have_no_terms() -> None:
    assert weighed([], WORDS()) == []
    assert weighed([[], ["the"], []], WORDS()) == [{}, {}, {}]


@pytest.mark.parametrize("top", [0, 3])
def test_hashes_have_the_bits_of_the_fingerprint(top: int) -> None:
    text = ["a", "数据库数据库数据库", "cc"]
    assert weighed([text], WORDS(top=top), 128) == weighed([text], WORDS(top=top))


@given(
    st.lists(st.text(st.characters(exclude_characters=" "), max_size=4), max_size=20),
    st.integers(1, 3),
    st.sampled_from(["words", "words+han"]),
)
def test_a_term_holds_a_letter_or_digit_and_is_long_enough_or_a_chinese_character(
    tokens: list[str], min_length: int, features: str
) -> None:
    rule = WORDS(features=features, min_length=min_length)
    # In lower case twice: in a row of words the lower case of a sigma depends on its neighbours.
    text = " ".join(tokens).lower()
    assert Counter(finder_of(rule).names(text)) == Counter(plain_terms(text.lower().split(" "), rule))


def names(features: str, text: str) -> list[str]:
    return finder_of(TermRule(features)).names(text)


def test_words_are_those_of_the_segmenter_in_lower_case() -> None:
    assert names("words", "The Quick , Fox") == ["quick", "fox"]


def test_chinese_characters_count_beside_the_words() -> None:
    assert sorted(names("words+han", "数据库 big 库")) == sorted(
        ["数据库", "big", "库", "数", "据", "库", "库"]
    )


def test_runs_of_words_leave_punctuation_and_stop_words_out() -> None:
    assert names("words:2", "the quick , brown the fox") == ["quick brown", "brown fox"]
    assert names("words:3", "a b") == []


def test_character_runs_are_of_letters_and_digits_alone() -> None:
    assert names("chars:3", "A b，中文 1") == ["ab中", "b中文", "中文1"]
    assert names("chars:2", "A b") == ["ab"]


@given(st.text(), st.integers(2, 4))
def test_character_runs_have_their_length(text: str, length: int) -> None:
    assert {len(name) for name in names(f"chars:{length}", text)} <= {length}


MIXED = st.lists(
    st.sampled_from(
        [
            *(["数据库", "的", "云计算", "李小福", "the", "Quick", "C++", "3.14", "e-mail", "ΣΑΣ"]),
            *"京\U00020000\uf900々éжİ😀+# _，。~",
        ]
    )
    | st.sampled_from(["a" * 700, "中" * 700]),
    max_size=25,
).map("".join)


@pytest.mark.parametrize("features", ["words", "words+han", "words:2", "chars:3"])
@given(texts=st.lists(MIXED, max_size=4))
def test_the_terms_of_a_text_do_not_depend_on_its_neighbours(features: str, texts: list[str]) -> None:
    finder = finder_of(TermRule(features), segmenter=Segmenter(load_tables(())))
    found = finder.find(texts, encode_lower_case(texts))
    together = found.names(np.arange(len(found.starts)))
    alone = [finder.find([text], encode_lower_case([text])) for text in texts]
    assert together == list(chain.from_iterable(one.names(np.arange(len(one.starts))) for one in alone))
    assert np.diff(found.offsets).tolist() == [len(one.starts) for one in alone]


@given(st.lists(st.integers(1, int(MOST * SCALE))))
def test_the_square_root_of_rarity_is_exact(idfs: list[int]) -> None:
    found = idf_weights(np.array(idfs, np.int64), "sqrt").tolist()
    assert found == [isqrt(idf * SCALE) for idf in idfs]


@given(st.integers(1, isqrt(int(MOST)) * SCALE), st.sampled_from([-1, 0, 1]))
def test_it_is_exact_beside_a_square(root: int, step: int) -> None:
    idf = max(1, root * root // SCALE + step)
    assert idf_weights(np.array([idf]), "sqrt").item() == isqrt(idf * SCALE)


@pytest.mark.parametrize("tf", ["log", "raw", "binary"])
def test_a_more_frequent_term_never_weighs_less(tf: str) -> None:
    column = term_frequency_weights(tf)
    assert (len(column), column.dtype) == (TF_LIMIT, np.int64)
    assert (np.diff(column[1:]) >= 0).all()


def test_no_logarithm_of_a_term_frequency_is_rounded_otherwise_by_another_processor() -> None:
    exact = [(1 + log(tf)) * SCALE for tf in range(1, TF_LIMIT)]
    assert term_frequency_weights("log")[1:].tolist() == [round(weight) for weight in exact]
    # A logarithm has an error of a few units in the last place, less than 1e-11 after the multiplication.
    assert min(abs(weight % 1 - 0.5) for weight in exact) > 1e-9
