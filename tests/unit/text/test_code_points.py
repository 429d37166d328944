from __future__ import annotations

import re
import sys

from hypothesis import given
from hypothesis import strategies as st

from dedup_job.text.code_points import (
    CODE_POINT,
    COMPARED_BIT,
    LETTER_BIT,
    decode_text,
    encode_lower_case,
    encode_text,
    is_compared,
)

TEXTS = st.lists(st.text(st.one_of(st.characters(), st.sampled_from("AΣσİIıßǅﬁ'\u0307\ud800"))), max_size=5)


def test_every_character_has_its_lower_case_and_is_a_letter_or_digit_as_for_a_regular_expression() -> None:
    every = list(map(chr, range(sys.maxunicode + 1)))
    found = encode_lower_case([char for char in every if char not in "Σİ"])
    assert decode_text(found.values & CODE_POINT) == "".join(
        char.lower() for char in every if char not in "Σİ"
    )
    letters = "".join(
        char
        for char, value in zip(decode_text(found.values & CODE_POINT), found.values.tolist(), strict=True)
        if value >= LETTER_BIT
    )
    assert letters == re.sub(r"[\W_]+", "", "".join(every).replace("Σ", "").replace("İ", "").lower())


def test_every_character_is_marked_that_is_compared() -> None:
    every = [char for char in map(chr, range(sys.maxunicode + 1)) if char not in "Σİ"]
    found = encode_lower_case(every).values & COMPARED_BIT != 0
    assert found.tolist() == [is_compared(char.lower()) for char in every]


@given(TEXTS)
def test_lower_case_is_that_of_python_for_each_text_alone(texts: list[str]) -> None:
    assert [decode_text(row & CODE_POINT) for row in encode_lower_case(texts)] == [
        text.lower() for text in texts
    ]


@given(st.text(st.characters()))
def test_encoding_is_undone_by_decoding(text: str) -> None:
    assert encode_text(text).tolist() == list(map(ord, text))
    assert decode_text(encode_text(text)) == text
