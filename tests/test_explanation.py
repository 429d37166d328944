from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.fingerprint.recipe import Recipe
from dedup_job.lab import votes
from dedup_job.lab.explanation import BEGINNING, Record, as_json, marked
from dedup_job.report.explain_page import HEAVIEST, as_text
from dedup_job.report.terminal import WIDTH
from tests.pairs import LONG, OTHER, RECIPES, made, raw

DIFFERENT = ["".join(chr(first + 7 * number) for number in range(300)) for first in (0x4E00, 0x6E01)]


@pytest.fixture(autouse=True, scope="module")
def _made_once() -> Iterator[None]:
    """A command explains once; here the dictionary is not loaded for every test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(votes, "Fingerprinter", made)
        yield


def explained(texts: Sequence[str], chosen: Recipe) -> dict[str, Any]:
    raws = [raw(text) for text in texts]
    cleaned = chosen.reader.texts(raws)[0]
    first, second = (Record(number, "source", text) for number, text in enumerate(cleaned, 1))
    return as_json((first, second), made(chosen)(raws), chosen)


PIECES = st.text(st.sampled_from("ab 1.码头数\n"), max_size=60)


def unmarked(text: str, opening: str, closing: str) -> str:
    return text.replace(opening, "").replace(closing, "")


@given(PIECES, PIECES)
def test_marks_add_nothing_else_and_what_is_not_marked_is_common(first: str, second: str) -> None:
    left, right = marked(first, second)
    assert unmarked(left, "[-", "-]") == first
    assert unmarked(right, "{+", "+}") == second
    assert kept(left, "[-", "-]") == kept(right, "{+", "+}")


def kept(text: str, opening: str, closing: str) -> str:
    """Return what is outside of the marks."""
    head, *marks = text.split(opening)
    return head + "".join(mark.partition(closing)[2] for mark in marks)


def test_only_beginnings_are_compared_and_the_cut_is_no_difference() -> None:
    text = "".join(chr(0x4E00 + number) for number in range(2 * BEGINNING))
    assert marked(text, text + "更多") == (text[:BEGINNING], text[:BEGINNING])
    left, right = marked(text, "新增" + text)
    assert left == text[:BEGINNING]
    assert right == "{+新增+}" + text[: BEGINNING - 2]
    assert marked("新增" + text, text) == ("[-新增-]" + text[: BEGINNING - 2], text[:BEGINNING])
    short = text[: BEGINNING - 1]
    assert marked(short, short + "ab") == (short, short + "{+a+}")


def test_the_rule_that_failed_is_named_in_the_first_line() -> None:
    def line(first: str, second: str, name: str = "default") -> str:
        return as_text(explained([first, second], RECIPES[name])).splitlines()[0]

    assert line(LONG, f"<p>{LONG}</p>") == "exact duplicate: the cleaned texts are the same"
    assert line(LONG, LONG + "。续").startswith("near duplicate: all 9 bands are the same, within 18 bits")
    assert line(LONG * 9, LONG * 9 + "续").startswith("near duplicate: the fingerprints are ")
    assert "similarity 0.0000, at least 0.8 is needed" in line(*DIFFERENT)
    assert "bits apart, at most 3 count as near" in line(LONG, OTHER, "classic")
    assert line("", LONG) == "no match: the first cannot be judged (empty)"
    assert line("甲板", "海鸥").startswith("no match: similarity 0.0000, at least 0.8 is needed")
    numbered = "第{}页" + LONG
    assert line(numbered.format(1), numbered.format(2), "numbers") == "no match: the numbers in them differ"


def test_texts_that_are_similar_and_share_no_key_say_so() -> None:
    """A pair that no key finds is missed however similar; here its keys are taken away."""
    chosen = RECIPES["default"]
    raws = [raw(LONG), raw(LONG + "。续")]
    prints = made(chosen)(raws)
    prints.keys[1] += np.uint32(1)
    prints.bits[1] = ~prints.bits[0]
    first, second = (Record(number, "source", LONG) for number in (1, 2))
    shown = as_json((first, second), prints, chosen)
    assert shown["decided_by"] == ["radius", "bands"]
    assert shown["shared_keys"] == {"segments": [], "bands": []}
    assert shown["similarity"] >= 0.8
    assert as_text(shown).startswith("no match: the fingerprints are 64 bits apart")
    assert "none of 9 bands is the same" in " ".join(as_text(shown).split())


def test_the_chance_of_the_present_bands_is_shown_where_there_are_bands() -> None:
    shown = explained([LONG, LONG + "。续"], RECIPES["default"])
    assert shown["band_chance"] == pytest.approx(1 - (1 - shown["similarity"] ** 4) ** 8, abs=1e-3)
    assert f"{shown['band_chance']:.4f}  that texts so similar share one of 9 bands of 4" in as_text(shown)
    assert "bands of" not in as_text(explained([LONG, OTHER], RECIPES["classic"]))


def test_containment_tells_which_text_is_part_of_which() -> None:
    shown = explained([LONG, LONG + OTHER], RECIPES["default"])
    assert shown["containment"][0] == 1.0
    assert 0.4 < shown["containment"][1] < 0.6
    assert shown["same_characters"] == len(RECIPES["default"].reader.texts([raw(LONG)])[0][0])


def test_the_settings_that_decided_are_shown() -> None:
    shown = explained([LONG, OTHER], RECIPES["narrow"])
    assert shown["settings"]["radius"] == 0
    assert shown["settings"]["min_similarity"] == 0.7
    assert shown["recipe"] == RECIPES["narrow"].digest
    assert f"recipe {RECIPES['narrow'].digest[:12]}: " in as_text(shown)


def columns(line: str) -> int:
    return sum(2 if ord(character) >= 0x1100 else 1 for character in line)


@pytest.mark.parametrize("name", RECIPES)
def test_no_line_is_wider_than_a_terminal(name: str) -> None:
    wide = "one\n\ttwo\u2028" + "word" * 200 + " " + LONG * 9 + "\n\ttab\u2028"
    for texts in ([LONG * 5, OTHER * 5], [wide, LONG], ["", LONG], [wide, wide + "x" * 300]):
        shown = explained(texts, RECIPES[name])
        shown["records"][0]["id"] = "\u202e\x9b识别" * 100  # an id is not cleaned
        lines = as_text(shown).split("\n")
        assert max(map(columns, lines)) <= WIDTH
        assert all(line.isprintable() for line in lines)


def test_long_lists_of_terms_are_cut_for_people_alone() -> None:
    shown = explained([LONG * 3, OTHER * 3], RECIPES["default"])
    text = as_text(shown)
    assert len(shown["terms"]) > HEAVIEST
    assert f"and {len(shown['terms']) - HEAVIEST:,} more" in text
    assert shown["terms"][HEAVIEST - 1]["term"] in text
    flipping = {term for flip in shown["flips"] for term in flip["terms"]}
    assert f"and {len(flipping) - HEAVIEST:,} more" in text
