from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.analysis.labelled_pairs import (
    Evaluation,
    JudgedPair,
    LabelAdvice,
    LabelledPair,
    advise_threshold,
    read_pairs,
)
from dedup_job.analysis.scores import Score, tuned_toml
from dedup_job.errors import UsageError
from dedup_job.fingerprint.recipe import Matching

LABELS = st.lists(st.tuples(st.integers(0, 100).map(lambda step: step / 100), st.booleans()), max_size=12)


def wrong(labels: list[tuple[float, bool]], threshold: float) -> int:
    return sum((similarity >= threshold) != same for similarity, same in labels)


@given(LABELS)
def test_no_threshold_judges_fewer_wrong(labels: list[tuple[float, bool]]) -> None:
    found = advise_threshold(labels, 0.8)
    if not labels:
        assert found is None
        return
    assert found is not None
    assert found.wrong == min(wrong(labels, step / 1000) for step in range(1, 1001))
    assert wrong(labels, found.min_similarity) == wrong(labels, found.up_to) == found.wrong
    assert found.above < found.min_similarity <= found.up_to
    assert (found.wrong_now, found.pairs) == (wrong(labels, 0.8), len(labels))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([(0.82, True), (0.9, True)], LabelAdvice(0.8, 0.0, 0.82, 0, 0, 2)),
        ([(0.82, False), (0.9, False)], LabelAdvice(0.95, 0.9, 1.0, 0, 2, 2)),
        ([(0.8541, False), (0.8549, True)], LabelAdvice(0.8549, 0.8541, 0.8549, 0, 1, 2)),
        ([(0.81, True), (0.9, False), (0.95, True)], LabelAdvice(0.93, 0.9, 0.95, 1, 1, 3)),
    ],
)
def test_of_thresholds_that_judge_as_well_it_is_the_middle_of_the_highest(
    labels: list[tuple[float, bool]], expected: LabelAdvice
) -> None:
    assert advise_threshold(labels, 0.8) == expected


SETTING = Matching(radius=3, bands=8, rows=4, band_radius=16, min_similarity=0.8)


@pytest.mark.parametrize(
    ("label", "same"),
    [
        ("1", True), ("0", False), ("same", True), ("different", False), ("True", True), ("FALSE", False),
        ("0.8", True), ("0.79", False), ("1.0", True), (" yes ", True), ("0.0", False),
    ],
)  # fmt: skip
def test_a_label_is_a_word_or_a_similarity(label: str, same: bool) -> None:
    assert read_pairs([f"a\tb\t{label}"], 0.8) == [LabelledPair(1, "a", "b", same)]


def test_a_similarity_counts_as_same_from_the_level_on() -> None:
    assert [pair.same for pair in read_pairs(["a,b,0.6", "a,c,0.5"], 0.6)] == [True, False]


@pytest.mark.parametrize(
    "lines",
    [
        ["a b\tc\t1", "d\te,f\t0"],
        ["id1\tid2\tlabel", "a b\tc\t1", "d\te,f\t0"],
        ["id1\tid2\tLabel\tnote", "", "a b\tc\t1\tseen", "d\te,f\t0\t"],
        ["a b,c,1", 'd,"e,f",0'],
        ["one,other,jaccard,more", "a b,c,0.9,x", 'd,"e,f",0.1,y'],
        ['{"id1": "a b", "id2": "c", "label": 1}', '{"id1": "d", "id2": "e,f", "label": false, "more": 2}'],
        ['{"id1": "a b", "id2": "c", "label": true}', "", '{"id1": "d", "id2": "e,f", "label": "different"}'],
    ],
)
def test_the_first_line_tells_the_kind_of_file(lines: list[str]) -> None:
    pairs = read_pairs(lines, 0.8)
    assert [(pair.first, pair.second, pair.same) for pair in pairs] == [
        ("a b", "c", True),
        ("d", "e,f", False),
    ]


def test_ids_that_are_no_strings_stay_extended_json() -> None:
    (pair,) = read_pairs(['{"id1": {"$oid": "0123456789abcdef01234567"}, "id2": 42, "label": 1}'], 0.8)
    assert (pair.first, pair.second) == ('{"$oid": "0123456789abcdef01234567"}', "42")


def test_lines_are_numbered_as_in_the_file() -> None:
    assert [pair.line for pair in read_pairs(["id1,id2,label", "", "a,b,1", "", "c,d,0"], 0.8)] == [3, 5]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a,b,1", "a,b"], "line 2: expected two ids and a label"),
        (["a,b,1", "a,b,maybe"], "line 2: expected a label"),
        (["a,b,maybe"], "line 1: expected a label"),
        (["a,b,1.5"], "line 1: expected a label"),
        (["a,b,-1"], "line 1: expected a label"),
        (["a,b,nan"], "line 1: expected a label"),
        (["a,b,1", "id1,id2,label"], "line 2: expected a label"),
        (["a\tb\t1", ",b,1"], "line 2: expected two ids"),
        (["a,,1"], "line 1: an id is empty"),
        (["a,a,1"], "line 1: names the same record twice"),
        (['a,"b,1'], "line 1: cannot be read"),
        (['{"id1": 1, "id2": 2, "label": 1}', "a,b,1"], "line 2: cannot be read"),
        (['{"id1": 1, "id2": 2, "label": 1}', "[1, 2, 1]"], 'line 2: expected an object with "id1"'),
        (['{"id1": 1, "id2": 2}'], 'line 1: expected an object with "id1"'),
        (['{"id1": 1, "id2": 2, "label": null}'], "line 1: expected a label"),
        (['{"id1": 1, "id2": 2, "label": 1}', '{"id1":' * 100_000], "line 2: cannot be read"),
        (['{"id1":' * 100_000], "line 1: cannot be read"),
        ([], "no pairs"),
        (["", "id1,id2,label"], "no pairs"),
    ],
)
def test_a_malformed_line_is_named(lines: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read_pairs(lines, 0.8)
    assert caught.value.exit_code == 64


def judged(line: int, same: bool, found: bool, similarity: float = 0.5, **more: str) -> JudgedPair:
    return JudgedPair(LabelledPair(line, f"a{line}", f"b{line}", same), found, 7, similarity, **more)


def test_an_evaluation_counts_every_pair() -> None:
    kinds = [(True, True)] + [(False, True)] * 2 + [(True, False)] * 3 + [(False, False)] * 4
    pairs = [judged(line, same, found) for line, (same, found) in enumerate(kinds)]
    assert Evaluation(SETTING, "ab" * 32, pairs).score == Score(
        hits=1, false_alarms=2, misses=3, rejections=4
    )


def test_the_strangest_errors_come_first_and_ten_are_shown() -> None:
    wrong = [judged(line, same, not same, line / 100) for line in range(1, 31) for same in (True, False)]
    evaluation = Evaluation(SETTING, "ab" * 32, wrong)
    assert [one.pair.line for one in evaluation.misses] == list(range(30, 20, -1))
    assert [one.pair.line for one in evaluation.false_alarms] == list(range(1, 11))
    shown = evaluation.as_json()
    assert shown["worst_misses"][0] == {
        "line": 30, "id1": "a30", "id2": "b30", "distance": 7, "similarity": 0.3, "unchecked": "",
    }  # fmt: skip


def test_the_text_names_errors_and_settings() -> None:
    wrong = [judged(3, True, False), judged(9, True, False, unchecked="missing"), judged(5, False, True)]
    text = Evaluation(SETTING, "ab" * 32, wrong).as_text()
    assert "line 3: a3  b3: distance 7, similarity 0.500" in text
    assert "line 9: a9  b9: cannot be judged (missing)" in text
    assert "line 5: a5  b5" in text
    assert tuned_toml(SETTING) in text


def test_no_errors_are_not_listed() -> None:
    text = Evaluation(SETTING, "ab" * 32, [judged(1, True, True)]).as_text()
    assert "labelled" not in text


def test_a_pair_of_which_a_person_was_unsure_is_left_out() -> None:
    lines = ['{"id1": "a", "id2": "b", "label": "unsure"}', '{"id1": "c", "id2": "d", "label": "same"}']
    assert read_pairs(lines, 0.8) == [LabelledPair(2, "c", "d", True)]


def test_an_evaluation_says_which_threshold_the_labels_ask_for() -> None:
    pairs = [(0.82, False, ""), (0.9, True, ""), (0.0, True, "too_long")]
    judged = [
        JudgedPair(LabelledPair(line, "a", str(line), same), similarity >= 0.8, 2, similarity, unchecked)
        for line, (similarity, same, unchecked) in enumerate(pairs)
    ]
    evaluation = Evaluation(SETTING, "digest", judged)
    assert evaluation.as_json()["advice"] == {
        "min_similarity": 0.86, "above": 0.82, "up_to": 0.9, "wrong": 0, "wrong_now": 1, "pairs": 2,
    }  # fmt: skip
    assert "min_similarity = 0.86 fits these labels best: 0 of 2" in evaluation.as_text()


@pytest.mark.parametrize("same", [True, False])
def test_labels_of_one_kind_ask_for_no_threshold(same: bool) -> None:
    evaluation = Evaluation(SETTING, "digest", [judged(line, same, True, line / 10) for line in range(1, 9)])
    assert evaluation.as_json()["advice"] is None
    assert "no threshold can be advised: label some pairs as the same and some" in evaluation.as_text()
