from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from scripts.bench.reference import Judge, Mixed, TextSet

TOOLS = Path(__file__).parents[4] / "shared" / "tools"
TEXTS = {"a": "<p>seven eight nine</p>", "b": "one two three", "c": "<p></p>", "d": "four five six"}


def text_set(name: str = "small") -> TextSet:
    texts = ["seven eight nine", "one two three", "", "four five six"]
    return TextSet(name, list(TEXTS), list(TEXTS.values()), texts)


def test_the_ids_kept_are_those_of_the_rows_kept_and_of_texts_that_no_one_was_asked_about() -> None:
    texts = text_set()
    assert texts.asked == ["seven eight nine", "one two three", "four five six"]
    assert texts.kept([0, 2]) == ["a", "c", "d"]
    assert texts.kept([]) == ["c"]


def test_median_letters_are_those_of_the_middle_text() -> None:
    assert text_set().median_letters == 11


def test_a_set_is_read_in_the_order_of_its_ids(tmp_path: Path) -> None:
    write_set(tmp_path, {"b": "two", "a": "<b>one</b>"})
    texts = TextSet.read(tmp_path, "small")
    assert (texts.ids, texts.texts) == (["a", "b"], ["one", "two"])
    assert list(texts.records) == [{"_id": "a", "data": "<b>one</b>"}, {"_id": "b", "data": "two"}]


def test_ids_dealt_out_by_a_seed_lead_back_to_every_record() -> None:
    sets = [text_set("one"), text_set("other")]
    mixed = Mixed.dealt(sets, 1)
    assert [record["_id"] for record in mixed.records] == list(range(8))
    assert sorted(record["data"] for record in mixed.records) == sorted([*TEXTS.values()] * 2)
    assert [sorted(ids) for ids in mixed.kept(range(8))] == [list(TEXTS)] * 2
    data = {record["_id"]: record["data"] for record in mixed.records}
    for place in range(8):
        assert [TEXTS[key] for ids in mixed.kept([place]) for key in ids] == [data[place]]


def test_a_seed_deals_alike_every_time_and_another_one_otherwise() -> None:
    sets = [text_set("one"), text_set("other")]
    assert Mixed.dealt(sets, 1) == Mixed.dealt(sets, 1)
    assert Mixed.dealt(sets, 1) != Mixed.dealt(sets, 2)


@pytest.mark.skipif(not TOOLS.exists(), reason=f"no shared tools at {TOOLS}")
def test_symbols_count_for_the_judge_but_not_for_its_old_references(tmp_path: Path) -> None:
    plus, sharp = "C++ is a language that many people write", "C# is a language that many people write"
    write_set(tmp_path, {"a": plus, "b": sharp, "c": plus})
    write_pairs(tmp_path / "small" / "gt_places.tsv.gz", ["a\tc\t1.0000=", "a\tb\t0.8500"])
    write_pairs(tmp_path / "small" / "gt_jaccard.tsv.gz", ["a\tb\t1.0000=", "a\tc\t1.0000="])
    judge = Judge(TOOLS, tmp_path, "small")
    assert judge.near_pairs == 1
    first, both = judge.score(["a"]), judge.score(["a", "b"])
    assert (first.recall, first.precision, first.f1, first.near, first.wiped) == (1.0, 1.0, 1.0, 1.0, 0)
    assert first.letters_f1 == 1.0
    assert (both.recall, both.near) == (0.6667, 0.0)
    assert both.letters_f1 == 0.8


def write_set(folder: Path, texts: dict[str, str]) -> None:
    (folder / "small").mkdir()
    with gzip.open(folder / "small" / "docs.jsonl.gz", "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps({"_id": key, "data": text}) + "\n" for key, text in texts.items())


def write_pairs(path: Path, pairs: list[str]) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as lines:
        lines.writelines(pair + "\n" for pair in ["id1\tid2\tsimilarity", *pairs])
