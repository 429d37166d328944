from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.analysis import pair_explanation
from dedup_job.analysis.match_conditions import distance
from dedup_job.analysis.pair_explanation import (
    ComparedRecord,
    TermWeights,
    explanation_json,
    find_flipped_bits,
)
from dedup_job.commands.compare import LONGEST, describe_differences
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.report.comparison_text import HEAVIEST, comparison_text
from dedup_job.report.terminal_text import WIDTH
from scripts.bench.corpus import samples
from tests.support.recipes import recipe_of
from tests.support.text_pairs import LONG, OTHER, RECIPES, made, raw

DIFFERENT = ["".join(chr(first + 7 * number) for number in range(300)) for first in (0x4E00, 0x6E01)]


@pytest.fixture(autouse=True, scope="module")
def _made_once() -> Iterator[None]:
    """A command explains once; here the dictionary is not loaded for every test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_explanation, "Fingerprinter", made)
        yield


def explained(texts: Sequence[str], chosen: Recipe) -> dict[str, Any]:
    raws = [raw(text) for text in texts]
    cleaned = chosen.reader.texts(raws)
    first, second = (ComparedRecord(number, "source", text) for number, text in enumerate(cleaned, 1))
    prints = made(chosen)(raws)
    return {
        **explanation_json((first, second), prints, chosen),
        "differences": None if any(prints.reasons) else describe_differences(*cleaned),
        "compared_by": {"settings": None, "ledger_recipe": None},
    }


def test_each_difference_is_shown_wherever_it_is() -> None:
    middle = "".join(chr(0x4E00 + number) for number in range(3_000))
    first = f"开头{middle}一只海鸥{middle[::-1]}结尾"
    second = f"开头{middle}一只鸽子{middle[::-1]}结尾更多"

    shown = describe_differences(first, second)

    assert shown["places"] == 2
    told = [part for part in shown["parts"] if "first" in part]
    assert told == [{"first": "海鸥", "second": "鸽子"}, {"first": "", "second": "更多"}]
    page = comparison_text(explained([first, second], RECIPES["default"]))
    assert "the texts differ in 2 places: " in page
    assert "一只[-海鸥-]{+鸽子+}" in "".join(line.removeprefix("  | ") for line in page.splitlines())


def test_a_difference_is_none_that_a_cut_has_made() -> None:
    """What is in both, and only moved by what one has more before it, is the same wherever it ends."""
    text = "".join(chr(0x4E00 + number) for number in range(1_000))
    for first, second, more in ((text, text + "更多", ("", "更多")), (text, "新增" + text, ("", "新增"))):
        told = [part for part in describe_differences(first, second)["parts"] if "first" in part]
        assert [(part["first"], part["second"]) for part in told] == [more]


def test_a_long_difference_is_cut_and_says_how_much_is_left_and_the_next_is_shown_still() -> None:
    first = "前" * 100 + "甲" * 5_000 + "中间没有不同的话。" * 10 + "三" + "后" * 100
    second = "前" * 100 + "乙" * 10 + "中间没有不同的话。" * 10 + "四" + "后" * 100
    parts = describe_differences(first, second)["parts"]
    told = [(len(part["first"]), len(part["second"])) for part in parts if "first" in part]
    assert told == [(LONGEST, 10), (1, 1)]
    assert {"left_out": [5_000 - LONGEST, 0], "same": False} in parts


def test_texts_that_are_the_same_differ_nowhere_and_show_their_beginning() -> None:
    shown = describe_differences(OTHER * 4, OTHER * 4)
    assert shown["places"] == 0
    assert (OTHER * 4).startswith(shown["parts"][0]["both"])


def test_the_rule_that_failed_is_named_in_the_first_line() -> None:
    def line(first: str, second: str, name: str = "default") -> str:
        return comparison_text(explained([first, second], RECIPES[name])).splitlines()[0]

    assert line(LONG, f"<p>{LONG}</p>") == "exact duplicate: the cleaned texts are the same"
    assert line(LONG, LONG + "。续").startswith("near duplicate: all 9 bands are the same, within 18 bits")
    assert line(LONG * 9, LONG * 9 + "海鸥").startswith("near duplicate: the fingerprints are ")
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
    first, second = (ComparedRecord(number, "source", LONG) for number in (1, 2))
    shown = {**explained([LONG, LONG], chosen), **explanation_json((first, second), prints, chosen)}
    assert shown["decided_by"] == ["radius", "bands"]
    assert shown["shared_keys"] == {"segments": [], "bands": []}
    assert shown["similarity"] >= 0.8
    assert comparison_text(shown).startswith("no match: the fingerprints are 64 bits apart")
    assert "none of 9 bands is the same" in " ".join(comparison_text(shown).split())


def test_the_chance_of_the_present_bands_is_shown_where_there_are_bands() -> None:
    shown = explained([LONG, LONG + "。续"], RECIPES["default"])
    assert shown["band_chance"] == pytest.approx(1 - (1 - shown["similarity"] ** 4) ** 8, abs=1e-3)
    assert (
        f"{shown['band_chance']:.4f}  that texts this similar share one of 9 bands of 4"
        in comparison_text(shown)
    )
    assert "bands of" not in comparison_text(explained([LONG, OTHER], RECIPES["classic"]))


def test_containment_tells_which_text_is_part_of_which() -> None:
    shown = explained([LONG, LONG + OTHER], RECIPES["default"])
    assert shown["containment"][0] == 1.0
    assert 0.4 < shown["containment"][1] < 0.6
    assert shown["same_characters"] == len(RECIPES["default"].reader.texts([raw(LONG)])[0])


def test_the_settings_that_decided_are_shown() -> None:
    shown = explained([LONG, OTHER], RECIPES["narrow"])
    assert shown["settings"]["radius"] == 0
    assert shown["settings"]["min_similarity"] == 0.7
    assert shown["recipe"] == RECIPES["narrow"].digest
    assert f"recipe {RECIPES['narrow'].digest[:12]}: " in comparison_text(shown)


def columns(line: str) -> int:
    return sum(2 if ord(character) >= 0x1100 and character != "…" else 1 for character in line)


@pytest.mark.parametrize("name", RECIPES)
def test_no_line_is_wider_than_a_terminal(name: str) -> None:
    wide = "one\n\ttwo\u2028" + "word" * 200 + " " + LONG * 9 + "\n\ttab\u2028"
    for texts in ([LONG * 5, OTHER * 5], [wide, LONG], ["", LONG], [wide, wide + "x" * 300]):
        shown = explained(texts, RECIPES[name])
        shown["records"][0]["id"] = "\u202e\x9b识别" * 100  # an id is not cleaned
        lines = comparison_text(shown).split("\n")
        assert max(map(columns, lines)) <= WIDTH
        assert all(line.isprintable() for line in lines)


def test_long_lists_of_terms_are_cut_for_people_alone() -> None:
    shown = explained([LONG * 3, OTHER * 3], RECIPES["default"])
    text = comparison_text(shown)
    assert len(shown["terms"]) > HEAVIEST
    assert f"and {len(shown['terms']) - HEAVIEST:,} more" in text
    assert shown["terms"][HEAVIEST - 1]["term"] in text
    flipping = {term for flip in shown["flips"] for term in flip["terms"]}
    assert f"and {len(flipping) - HEAVIEST:,} more" in text


def test_the_weights_fold_into_the_fingerprints_of_the_job() -> None:
    """So the votes that are shown are those that made the bits."""
    texts = [sample.record["data"] for sample in samples(30, seed=8) if sample.kind in ("original", "near")]
    for name in ("default", "classic", "few terms"):
        chosen = RECIPES[name]
        cleaned = chosen.reader.texts([*map(raw, texts)])
        prints = made(chosen)(list(map(raw, texts)))
        for row in range(len(texts) - 1):
            pair = prints.take([row, row + 1])
            if distance(pair) is None:
                continue
            flipped = find_flipped_bits(TermWeights.of(cleaned[row : row + 2], chosen))
            differing = [
                64 * word + bit
                for word, value in enumerate((pair.bits[0] ^ pair.bits[1]).tolist())
                for bit in range(64)
                if value >> bit & 1
            ]
            assert [flip.bit for flip in flipped] == differing
            ones = [bool(int(pair.bits[0, flip.bit // 64]) >> flip.bit % 64 & 1) for flip in flipped]
            assert [flip.votes[0] > 0 for flip in flipped] == ones


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 2**64 - 1)), min_size=1, max_size=8
    )
)
def test_the_terms_of_a_flip_suffice_and_none_of_them_can_be_spared(
    made: list[tuple[int, int, int]],
) -> None:
    weights = np.array([[first for first, _, _ in made], [second for _, second, _ in made]])
    hashes = np.array([[value] for _, _, value in made], np.uint64)
    names = [str(number) for number in range(len(made))]
    for flip in find_flipped_bits(TermWeights(names, weights, hashes, (1, 1))):

        def votes(changed: Sequence[str], bit: int = flip.bit) -> int:
            """Votes for a bit when these terms alone have their weight of the second text."""
            return sum(
                (second if name in changed else first) * (1 if value >> bit & 1 else -1)
                for name, (first, second, value) in zip(names, made, strict=True)
            )

        assert votes([]) == flip.votes[0]
        assert votes(names) == flip.votes[1]
        assert (votes(flip.terms) > 0) == (flip.votes[1] > 0)
        for spared in flip.terms:
            rest = [name for name in flip.terms if name != spared]
            assert (votes(rest) > 0) == (flip.votes[0] > 0)


def test_terms_are_weighed_by_the_recipe_heaviest_first() -> None:
    # Not at the top: it takes a second, and each process of the tests imports every file of tests.
    from sklearn.metrics.pairwise import cosine_similarity

    weighing = TermWeights.of([LONG + "码头" * 5, OTHER], RECIPES["default"])
    weights = dict(zip(weighing.terms, weighing.weights.T.tolist(), strict=True))
    heaviest = weighing.weights.max(axis=0).tolist()
    assert heaviest == sorted(heaviest, reverse=True)
    assert weights["码头"][0] > weights["甲板"][0] > 0
    assert weights["码头"][1] == 0
    assert all(max(row) > 0 for row in weights.values())
    assert weighing.cosine == pytest.approx(cosine_similarity(weighing.weights)[0, 1])
    assert 0 < weighing.cosine < 1


def test_stop_words_have_no_weight(tmp_path: Path) -> None:
    words = tmp_path / "stop.txt"
    words.write_text("码头", "utf-8")
    chosen = recipe_of("data", recipe={"stop_words": str(words)})
    assert "码头" in TermWeights.of([LONG, OTHER], RECIPES["default"]).terms
    assert "码头" not in TermWeights.of([LONG, OTHER], chosen).terms


def test_texts_without_terms_have_no_cosine() -> None:
    assert TermWeights.of(["!", ""], RECIPES["default"]).cosine == 0.0
