from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from bson import encode
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics.pairwise import cosine_similarity

from dedup_job.config import check
from dedup_job.document import Fingerprints, Match, Ragged, Verdict, digests
from dedup_job.fingerprint.profile import Calibration
from dedup_job.fingerprint.recipe import Fingerprinter, Matching, Recipe
from dedup_job.job import decide
from dedup_job.match.keepers import Keepers, Recollection
from dedup_job.report import explain
from dedup_job.report.explain import (
    BEGINNING,
    HEAVIEST,
    WIDTH,
    Record,
    Weighing,
    answer_as_text,
    as_json,
    as_text,
    distance,
    flips,
    id_text,
    jaccard,
    judged,
    marked,
    rules,
    segment_distances,
)
from scripts.corpus import Mix, samples

LONG = "清晨的码头上，工人们把一箱箱茶叶搬上货船，船长站在甲板上数着数目，海鸥在桅杆之间盘旋。"
OTHER = "山谷里的小学今年只剩下十二名学生，老师每天走七里山路，从不缺席，冬天也带着一篮柴火。"


def recipe(**tables: Mapping[str, Any]) -> Recipe:
    settings = {
        "source": {"database": "d", "collection": "c", "fields": ["data"]},
        "target": {"database": "d", "collection": "u"},
        **tables,
    }
    return check(settings, "test").make_recipe(Calibration(1_000, 500))


RECIPES = {
    "default": recipe(),
    "wide": recipe(index={"radius": 45}, verify={"short_text": 1000}),
    "narrow": recipe(index={"radius": 0}, verify={"min_jaccard": 0.7, "short_text": 1000}),
    "numbers": recipe(verify={"numbers": "distinguish", "short_text": 1000}),
    "classic": recipe(recipe={"profile": "classic"}),
    "few terms": recipe(recipe={"min_terms": 40, "top": 20}),
}

DIFFERENT = ["".join(chr(first + 7 * number) for number in range(300)) for first in (0x4E00, 0x6E01)]

made = cache(Fingerprinter)


@pytest.fixture(autouse=True, scope="module")
def _made_once() -> Iterator[None]:
    """A command explains once; here the dictionary is not loaded for every test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explain, "Fingerprinter", made)
        yield


def raw(text: object) -> bytes:
    return encode({"_id": 1, "data": text})


def explained(texts: Sequence[str], chosen: Recipe) -> dict[str, Any]:
    raws = [raw(text) for text in texts]
    cleaned = chosen.reader.texts(raws)[0]
    first, second = (Record(number, "source", text) for number, text in enumerate(cleaned, 1))
    return as_json((first, second), made(chosen)(raws), chosen)


def decided(prints: Fingerprints, matching: Matching) -> Verdict:
    """Let the job decide two records by themselves; returns the verdict of the second."""
    bits = 64 * prints.bits.shape[1]
    keepers = Keepers(bits, matching.radius, 1 << 20, Recollection(lambda ids: {}, lambda raws: prints))
    return decide([b"first", b"second"], prints, matching, keepers)[1]


def agrees(texts: Sequence[str], prints: Fingerprints, matching: Matching) -> str:
    """Check an explanation against the job, and return the rules that decided."""
    verdict = decided(prints, matching)
    applied = rules(texts, prints, matching, (0, 0))
    judgement = judged(prints.reasons, applied)
    assert (judgement.action, judgement.reason) == (verdict.action, verdict.reason)
    if verdict.reason == "near":
        by_fingerprint = judgement.by[0] == "radius"
        similarity = jaccard(prints) if matching.min_jaccard else None
        measured = distance(prints) if by_fingerprint else None
        assert verdict.match == Match(b"first", measured, similarity)
    return "+".join(judgement.by)


def test_explanations_agree_with_the_job_on_generated_pairs() -> None:
    """Every planted copy against its origin, and records against their neighbours, by several recipes."""
    seen = set()
    for chosen in RECIPES.values():
        fingerprinter = made(chosen)
        planted = list(samples(90, seed=5, mix=Mix(length=120)))
        raws = [encode(sample.record) for sample in planted]
        prints, texts = fingerprinter(raws), chosen.reader.texts(raws)[0]
        place = {sample.record["_id"]: row for row, sample in enumerate(planted)}
        pairs = [(place[sample.of], row) for row, sample in enumerate(planted) if sample.of]
        for one, other in [*pairs, *((row, row + 1) for row in range(0, len(planted) - 1, 3))]:
            pair = prints.take([one, other])
            seen.add(agrees([texts[one], texts[other]], pair, chosen.matching))
    assert seen == {
        "passed",
        "same_text",
        "radius",
        "radius+short_text",
        "radius+min_jaccard",
        "min_terms",
        "min_terms+short_text",
        "short_text+min_jaccard",
        "min_jaccard",
        "numbers",
    }


@st.composite
def made_prints(draw: st.DrawFn) -> tuple[Fingerprints, Matching]:
    """Two fingerprints near the thresholds of a rule, in every combination of flags."""
    min_jaccard = draw(st.sampled_from([0.0, 0.5, 0.75, 1.0]))
    radius = draw(st.integers(0, 4))
    sets = [sorted(draw(st.sets(st.integers(0, 3), min_size=1, max_size=4))) for _ in range(2)]
    bits = [draw(st.integers(0, 2**64 - 1))]
    bits.append(bits[0] ^ (1 << draw(st.integers(0, 5))) - 1)
    near = np.array(draw(st.sampled_from([(True, True), (True, True), (True, False), (False, True)])))
    prints = Fingerprints(
        reasons=draw(st.sampled_from([["", ""]] * 4 + [["empty", ""], ["", "null"], ["null", "empty"]])),
        bits=np.where(near, np.array(bits, np.uint64), np.uint64(0)).reshape(2, 1),
        near=near,
        short=np.array(draw(st.tuples(st.booleans(), st.booleans()))) & (min_jaccard > 0),
        digests=digests([b"a", draw(st.sampled_from([b"a", b"b", b"b"]))]),
        hashes=digests([b"a", b"b"]),
        shingles=Ragged(
            np.cumsum([0, *map(len, sets)], dtype=np.int64),
            np.array([value for row in sets for value in row], np.uint32),
        ),
    )
    passed = np.array([bool(reason) for reason in prints.reasons])
    prints = replace(prints, near=prints.near & ~passed, short=prints.short & ~passed)
    return prints, replace(RECIPES["default"].matching, radius=radius, min_jaccard=min_jaccard)


@given(made_prints())
def test_explanations_agree_with_the_job_on_any_two_fingerprints(
    made: tuple[Fingerprints, Matching],
) -> None:
    agrees(["", ""], *made)


@given(made_prints())
def test_the_jaccard_that_is_shown_is_the_one_that_decides(made: tuple[Fingerprints, Matching]) -> None:
    prints, _ = made
    first, second = (set(prints.shingles[row].tolist()) for row in range(2))
    assert jaccard(prints) == (len(first & second) / len(first | second) if first | second else 0.0)


def test_the_distances_of_the_segments_add_up_to_the_distance() -> None:
    prints = made(RECIPES["default"])([raw(LONG), raw(OTHER)])
    assert len(segment_distances(prints)) == 8
    assert sum(segment_distances(prints)) == distance(prints)

    prints.bits[:] = [[1 << 15, 0], [1 << 16, 3 << 62]]
    assert segment_distances(prints) == [1, 1, 0, 0, 0, 0, 0, 2]


def test_the_weights_fold_into_the_fingerprints_of_the_job() -> None:
    """So the votes that are shown are those that made the bits."""
    texts = [sample.record["data"] for sample in samples(30, seed=8) if sample.kind in ("original", "near")]
    for name in ("default", "classic", "few terms"):
        chosen = RECIPES[name]
        cleaned = chosen.reader.texts(map(raw, texts))[0]
        prints = made(chosen)(list(map(raw, texts)))
        for row in range(len(texts) - 1):
            pair = prints.take([row, row + 1])
            if distance(pair) is None:
                continue
            flipped = flips(Weighing.of(cleaned[row : row + 2], chosen))
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
    for flip in flips(Weighing(names, weights, hashes, (1, 1))):

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
    weighing = Weighing.of([LONG + "码头" * 5, OTHER], RECIPES["default"])
    weights = dict(zip(weighing.terms, weighing.weights.T.tolist(), strict=True))
    heaviest = weighing.weights.max(axis=0).tolist()
    assert heaviest == sorted(heaviest, reverse=True)
    assert weights["码头"][0] > weights["甲板"][0] > 0
    assert weights["码头"][1] == 0
    assert all(max(row) > 0 for row in weights.values())
    assert weighing.cosine == pytest.approx(cosine_similarity(weighing.weights)[0, 1])
    assert 0 < weighing.cosine < 1


def test_stop_words_have_no_weight(tmp_path: Any) -> None:
    words = tmp_path / "stop.txt"
    words.write_text("码头", "utf-8")
    chosen = recipe(recipe={"stop_words": str(words)})
    assert "码头" in Weighing.of([LONG, OTHER], RECIPES["default"]).terms
    assert "码头" not in Weighing.of([LONG, OTHER], chosen).terms


def test_texts_without_terms_have_no_cosine() -> None:
    assert Weighing.of(["!", ""], RECIPES["default"]).cosine == 0.0


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
    assert line(LONG, LONG + "。续").startswith("near duplicate: the fingerprints are ")
    assert " bits apart, at most 19 count as near; 296 and 296 shingles" in line(*DIFFERENT)
    assert line("", LONG) == "no match: the first cannot be judged (empty)"
    assert line("甲板", "海鸥").startswith("no match: Jaccard similarity 0.0000, at least 0.8 is needed")
    numbered = "第{}页" + LONG
    assert line(numbered.format(1), numbered.format(2), "numbers") == "no match: the numbers in them differ"


def test_containment_tells_which_text_is_part_of_which() -> None:
    shown = explained([LONG, LONG + OTHER], RECIPES["default"])
    assert shown["containment"][0] == 1.0
    assert 0.4 < shown["containment"][1] < 0.6
    assert shown["same_characters"] == len(RECIPES["default"].reader.texts([raw(LONG)])[0][0])


def test_the_settings_that_decided_are_shown() -> None:
    shown = explained([LONG, OTHER], RECIPES["narrow"])
    assert shown["settings"]["radius"] == 0
    assert shown["settings"]["min_jaccard"] == 0.7
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


@pytest.mark.parametrize(
    ("value", "shown"),
    [({"$oid": "65920080000000000100002a"}, "65920080000000000100002a"), (42, "42"), ("42", '"42"')],
)
def test_ids_are_shown_as_the_command_line_takes_them(value: object, shown: str) -> None:
    assert id_text(value) == shown


def test_an_answer_has_a_line_for_each_thing_that_is_known() -> None:
    answer = {"id": 7, "verdict": "duplicate", "keeper": "k", "keeper_in_target": False, "distance": None}
    assert answer_as_text(answer) == '7: duplicate\n  keeper           "k"\n  keeper in target no'
    assert answer_as_text({"id": 7, "verdict": "undecided"}) == "7: not decided yet"
