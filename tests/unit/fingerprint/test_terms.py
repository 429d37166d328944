from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain
from math import isqrt, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.fingerprint.idf import SCALE, Idf
from dedup_job.fingerprint.simhash import term_hashes
from dedup_job.fingerprint.terms import (
    DROPPED,
    SPACE,
    TF_LIMIT,
    TermRule,
    Vocabulary,
    idf_weights,
    term_frequency_weights,
    weigh_terms,
)
from dedup_job.text.characters import CHINESE, encode_texts, offsets_of

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


def weighed(texts: Sequence[Sequence[str]], rule: TermRule, bits: int = 64) -> list[dict[str, int]]:
    """The weighted terms of each text, as `weigh` has them."""
    vocabulary = Vocabulary(rule, IDF, STOP_WORDS, bits)
    rows = vocabulary.rows(encode_texts([*chain.from_iterable(texts)]))
    terms = weigh_terms(offsets_of(texts), rows, vocabulary, rule)
    name = vocabulary.terms()
    starts, stops = terms.offsets[:-1].tolist(), terms.offsets[1:].tolist()
    assert len(starts) == len(texts)
    return [
        {
            name[row]: weight
            for row, weight in zip(terms.rows[a:b].tolist(), terms.weights[a:b].tolist(), strict=True)
        }
        for a, b in zip(starts, stops, strict=True)
    ]


def slow_weights(text: Sequence[str], rule: TermRule) -> dict[str, int]:
    """The same with a Counter, one term at a time."""

    def is_term(token: str) -> bool:
        if rule.features == "words+han" and token == "水":
            return token not in STOP_WORDS
        return len(token) >= rule.min_length and token not in STOP_WORDS and any(map(str.isalnum, token))

    counted = Counter(filter(is_term, text))
    frequency = {
        "log": lambda tf: round((1 + log(tf)) * SCALE),
        "raw": lambda tf: tf * SCALE,
        "binary": lambda _: SCALE,
    }
    rarity = {"full": lambda idf: idf, "sqrt": lambda idf: isqrt(idf * SCALE), "none": lambda _: SCALE}
    weights = {
        term: frequency[rule.tf](tf) * rarity[rule.idf](IDF(encode_texts([term])).item())
        for term, tf in counted.items()
    }
    order = sorted(weights, key=lambda term: (-weights[term], term_hashes(encode_texts([term]), 64).item()))
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
    assert set(kept) == set(sorted(tied, key=lambda term: term_hashes(encode_texts([term]), 64).item())[:5])


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
    rule = WORDS(tf="raw")
    vocabulary = Vocabulary(rule, Idf.of(["x"], [1], 1), frozenset(), 64)
    terms = weigh_terms(offsets_of("x"), vocabulary.rows(encode_texts("x")), vocabulary, rule)
    assert terms.weights.dtype == np.int64
    assert terms.weights.min() >= 1


def test_a_term_frequency_beyond_the_table_counts_as_the_greatest() -> None:
    (terms,) = weighed([["b"] * (TF_LIMIT + 10)], WORDS(tf="raw", idf="none"))
    assert terms == {"b": (TF_LIMIT - 1) * SCALE * SCALE}


def test_no_texts_have_no_terms() -> None:
    assert weighed([], WORDS()) == []
    assert weighed([[], ["the"], []], WORDS()) == [{}, {}, {}]


@pytest.mark.parametrize("bits", [64, 128])
def test_a_vocabulary_gives_the_hash_of_each_row(bits: int) -> None:
    vocabulary = Vocabulary(WORDS(), IDF, frozenset(), bits)
    rows = [*vocabulary.rows(encode_texts("aba")), *vocabulary.rows(encode_texts("ca"))]
    assert (vocabulary.hashes()[rows] == term_hashes(encode_texts("abaca"), bits)).all()
    assert vocabulary.terms() == ["a", "b", "c"]
    assert Vocabulary(WORDS(), IDF, frozenset(), bits).hashes().shape == (0, bits // 64)


@pytest.mark.parametrize("token", ["", "，", "——", "★", "the"])
def test_a_token_without_letter_or_digit_and_a_stop_word_are_no_terms(token: str) -> None:
    assert Vocabulary(WORDS(), IDF, STOP_WORDS, 64).rows(encode_texts([token])) == [DROPPED]


@given(st.lists(st.text(max_size=4), max_size=20), st.integers(1, 3), st.sampled_from(["words", "words+han"]))
def test_a_term_holds_a_letter_or_digit_and_is_long_enough_or_a_chinese_character(
    tokens: list[str], min_length: int, features: str
) -> None:
    tokens = [token.lower() for token in tokens if token != " "]
    rows = Vocabulary(WORDS(features=features, min_length=min_length), IDF, STOP_WORDS, 64).rows(
        encode_texts(tokens)
    )
    assert [row >= 0 for row in rows] == [
        token not in STOP_WORDS
        and (
            (len(token) >= min_length and any(map(str.isalnum, token)))
            or (features == "words+han" and CHINESE.fullmatch(token) is not None)
        )
        for token in tokens
    ]


def test_a_space_has_a_row_of_its_own_and_is_no_term() -> None:
    assert Vocabulary(WORDS(), IDF, STOP_WORDS, 64).rows(encode_texts([" ", "  "])).tolist() == [
        SPACE,
        DROPPED,
    ]


@given(st.lists(st.integers(1, 2**42 - 1) | st.integers(1, 2**62)))
def test_the_square_root_of_rarity_is_exact(idfs: list[int]) -> None:
    found = idf_weights(np.array(idfs, np.int64), "sqrt").tolist()
    assert found == [isqrt(idf * SCALE) for idf in idfs]


@given(st.integers(1, 2**31), st.sampled_from([-1, 0, 1]))
def test_it_is_exact_beside_a_square(root: int, step: int) -> None:
    idf = max(1, root * root // SCALE + step)
    assert idf_weights(np.array([idf]), "sqrt").item() == isqrt(idf * SCALE)


@pytest.mark.parametrize("tf", ["log", "raw", "binary"])
def test_a_more_frequent_term_never_weighs_less(tf: str) -> None:
    column = term_frequency_weights(tf)
    assert (len(column), column.dtype) == (TF_LIMIT, np.int64)
    assert (np.diff(column[1:]) >= 0).all()
