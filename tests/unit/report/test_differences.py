from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.fingerprint.shingles import NUMBER_PATTERN
from dedup_job.report.differences import MOST_EQUALS, TextGap, TextPiece, cut_excerpt, diff_texts

TEXTS = st.text(st.sampled_from("ab 1❶今天，。😀"), max_size=60)


def joined(pieces: list[TextPiece]) -> tuple[str, str]:
    return "".join(piece.first for piece in pieces), "".join(piece.second for piece in pieces)


@given(TEXTS, TEXTS)
def test_the_pieces_joined_are_the_texts(first: str, second: str) -> None:
    assert joined(diff_texts(first, second)) == (first, second)


@given(TEXTS, TEXTS)
def test_same_and_different_pieces_take_turns_and_none_is_empty(first: str, second: str) -> None:
    pieces = diff_texts(first, second)
    assert all(piece.first or piece.second for piece in pieces)
    assert all(one.is_same != other.is_same for one, other in pairwise(pieces))


def test_letters_differ_by_words() -> None:
    assert diff_texts("the colour of it", "the color of it")[1] == TextPiece("colour", "color")


def test_chinese_differs_by_characters_and_the_numbers_in_it_as_a_whole() -> None:
    pieces = diff_texts("价格为1200元人民币", "价格为1250元港币")
    assert [piece for piece in pieces if not piece.is_same] == [
        TextPiece("1200", "1250"),
        TextPiece("人民", "港"),
    ]


@pytest.mark.parametrize("texts", [("", ""), ("a", "a"), ("", "a"), ("今天", "")])
def test_texts_of_nothing_differ_by_all(texts: tuple[str, str]) -> None:
    pieces = diff_texts(*texts)
    assert joined(pieces) == texts
    assert len(pieces) <= 1


def test_a_difference_in_the_midst_of_a_megabyte_is_found() -> None:
    random = Random(1)
    words = [
        random.choice(["alpha", "beta", "gamma,", "delta."]) + str(random.random()) for _ in range(50_000)
    ]
    first, second = (
        " ".join(words),
        " ".join([*words[:20_000], "一 new passage", *words[20_001:40_000], "end"]),
    )
    found = [piece for piece in diff_texts(first, second) if not piece.is_same]
    assert "new passage" in found[0].second
    assert found[-1].second.endswith("end")
    assert sum(len(piece.second) for piece in found) < 100


@pytest.mark.parametrize(
    "pattern", ["a", ".", "ab.", "a, ", "的", "今天天气很好，", "0123456789 ", "\x00", "\u202e", "<p>"]
)
def test_what_repeats_for_a_megabyte_costs_no_more_than_bounded_work(pattern: str) -> None:
    """Without the bound each of these takes hours."""
    first = pattern * (1_000_000 // len(pattern))
    second = "x" + first[: len(first) // 2] + "y" + first[len(first) // 2 + 3 :] + "z"
    assert joined(diff_texts(first, second)) == (first, second)


def test_texts_with_nothing_in_common_are_one_difference() -> None:
    first = "".join(chr(0x4E00 + at % 5000) for at in range(300_000))
    second = "".join(chr(0x4E00 + at * 7 % 5000) for at in range(300_000))
    assert len(first) ** 2 / 5000 > MOST_EQUALS
    assert joined(diff_texts(first, second)) == (first, second)


def test_an_excerpt_has_what_is_around_each_difference() -> None:
    same, near = TextPiece("x" * 100, "x" * 100), TextPiece("x" * 10, "x" * 10)
    one, other = TextPiece("1", "2"), TextPiece("3", "4")
    assert cut_excerpt([same, one, same, other, same], 10, 1000) == [
        TextGap(90, 90), near, one, near, TextGap(80, 80), near, other, near, TextGap(90, 90),
    ]  # fmt: skip


def test_a_short_stretch_is_not_left_out() -> None:
    pieces = [TextPiece("1", "2"), TextPiece("x" * 30, "x" * 30), TextPiece("3", "4")]
    assert cut_excerpt(pieces, 10, 1000) == pieces


def test_an_excerpt_ends_when_there_is_no_room_and_says_how_much_is_left() -> None:
    pieces = diff_texts("a " * 10 + "1" * 30, "a " * 10 + "2" * 40 + " more")
    assert cut_excerpt(pieces, 50, 25) == [
        pieces[0],
        TextPiece("1" * 5, "2" * 5),
        TextGap(25, 40, is_same=False),
    ]


def test_a_decimal_number_differs_as_a_whole() -> None:
    price = "The farmers' market sells the first tomatoes of the year at {} a kilo."
    for others in (("2.40", "2.90"), ("2.40", "2,40"), ("2.4", "2.45"), (".5", "5")):
        assert diff_texts(*map(price.format, others))[1] == TextPiece(*others)


@pytest.mark.parametrize("longest", [None, 15])
@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        # Beyond the room that other differences take up.
        ("a b " * 30 + "price 2.40 a kilo", "c d " * 30 + "price 2.90 a kilo", ("2.40", "2.90")),
        # Beyond the beginning of a long difference.
        ("x", "the chapter before this, and then chapter 17 of the book that has many", ("", "17")),
        ("一二三四五六七八九" * 9 + "1990", "甲乙丙丁戊己庚辛壬" * 9 + "1991年", ("1990", "1991")),
    ],
)
def test_an_excerpt_has_a_number_in_which_the_texts_differ(
    first: str, second: str, shown: tuple[str, str], longest: int | None
) -> None:
    parts = cut_excerpt(diff_texts(first, second), 8, 30, longest)
    differing = [part for part in parts if isinstance(part, TextPiece) and not part.is_same]
    assert any(shown[0] in part.first and shown[1] in part.second for part in differing)
    assert sum(len(part.second) for part in parts if isinstance(part, TextPiece)) < 80


@given(TEXTS, TEXTS, st.integers(1, 20), st.integers(1, 60), st.none() | st.integers(1, 9))
def test_the_shown_pieces_differ_in_numbers_where_the_texts_do(
    first: str, second: str, context: int, most: int, longest: int | None
) -> None:
    pieces = diff_texts(first, second)
    numbers = [[NUMBER_PATTERN.findall(side) for side in (piece.first, piece.second)] for piece in pieces]
    parts = cut_excerpt(pieces, context, most, longest)
    shown = [
        [NUMBER_PATTERN.findall(side) for side in (part.first, part.second)]
        for part in parts
        if isinstance(part, TextPiece)
    ]
    # Cut in the middle, equal numbers may differ, too.
    if any(one != other for one, other in numbers):
        assert any(one != other for one, other in shown)


def test_texts_that_are_the_same_show_their_beginning() -> None:
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 100)))
    assert cut_excerpt(diff_texts(text, text), 10, 1000) == [TextPiece(text[:20], text[:20]), TextGap(80, 80)]


@given(TEXTS, TEXTS, st.integers(1, 20), st.integers(1, 60), st.none() | st.integers(1, 9))
def test_an_excerpt_and_its_gaps_are_as_long_as_the_texts(
    first: str, second: str, context: int, most: int, longest: int | None
) -> None:
    parts = cut_excerpt(diff_texts(first, second), context, most, longest)
    lengths = [(part.first, part.second) for part in parts]
    for side, text in enumerate((first, second)):
        sizes = [one[side] if isinstance(one[side], int) else len(one[side]) for one in lengths]
        assert sum(sizes) == len(text)
