"""The sample collection: the same every time, and true to what it says was planted."""

from __future__ import annotations

import itertools
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from bson import ObjectId, json_util
from hypothesis import given
from hypothesis import strategies as st
from pymongo.database import Database

from dedup_job.text.clean import Cleaner
from scripts.bench.corpus import EDITABLE, Corpus, Mix, Sample, generate, main, samples

COUNT = 1500


@pytest.fixture(scope="module")
def mixed() -> list[Sample]:
    return list(samples(COUNT, seed=3))


def texts(of: list[Sample]) -> dict[ObjectId, str]:
    """What a reader sees of every record that has a text."""
    return {each.record["_id"]: Cleaner().clean(each.record["data"]) for each in of if each.kind != "odd"}


def shingles(text: str) -> set[str]:
    return {text[at : at + 5] for at in range(len(text) - 4)}


def jaccard(left: str, right: str) -> float:
    return len(shingles(left) & shingles(right)) / len(shingles(left) | shingles(right))


def test_a_seed_gives_the_same_records_every_time() -> None:
    assert list(generate(200, seed=5)) == list(generate(200, seed=5))


def test_another_seed_gives_other_records() -> None:
    ours, theirs = ({str(record.get("data")) for record in generate(50, seed, Mix(odd=0))} for seed in (5, 6))

    assert not ours & theirs


def test_a_longer_collection_begins_like_a_shorter_one() -> None:
    assert list(itertools.islice(generate(10_000_000), 100)) == list(generate(100))


@given(number=st.integers(0, 1 << 26), seed=st.integers(0, 1 << 41))
def test_ids_grow_with_the_number(number: int, seed: int) -> None:
    corpus = Corpus(seed)

    assert corpus.id_of(number) < corpus.id_of(number + 1)


@given(period=st.integers(1, 4))
def test_ids_grow_where_their_counter_starts_again(period: int) -> None:
    assert Corpus().id_of((period << 24) - 1) < Corpus().id_of(period << 24)


def test_a_record_does_not_tell_what_was_planted(mixed: list[Sample]) -> None:
    fields = {"_id", "url", "title", "data", "views", "published"}

    assert all(sample.record.keys() <= fields for sample in mixed)


def test_a_copy_names_an_earlier_record_that_is_none(mixed: list[Sample]) -> None:
    seen: dict[ObjectId, str] = {}
    for sample in mixed:
        seen[sample.record["_id"]] = sample.kind

        assert (sample.of is not None) == (sample.kind in ("exact", "near"))
        assert sample.of is None or seen[sample.of] in ("original", "template")


def test_an_exact_copy_reads_like_its_original(mixed: list[Sample]) -> None:
    text_of = texts(mixed)
    copies = [sample for sample in mixed if sample.kind == "exact"]

    assert len(copies) > 100
    assert all(text_of[copy.record["_id"]] == text_of[copy.of] for copy in copies if copy.of)


def test_no_two_originals_read_alike(mixed: list[Sample]) -> None:
    text_of = texts(mixed)
    originals = [text_of[each.record["_id"]] for each in mixed if each.kind in ("original", "template")]

    assert len(set(originals)) == len(originals)


def test_exact_copies_are_written_in_many_ways(mixed: list[Sample]) -> None:
    written = {sample.record["_id"]: sample.record.get("data") for sample in mixed}
    differing = [sample.record["data"] != written[sample.of] for sample in mixed if sample.kind == "exact"]

    assert sum(differing) > 0.8 * len(differing)


def test_a_near_copy_stays_near(mixed: list[Sample]) -> None:
    text_of = texts(mixed)
    near = [
        (text_of[each.record["_id"]], text_of[each.of]) for each in mixed if each.kind == "near" if each.of
    ]

    assert len(near) > 100
    assert all(0.8 <= jaccard(copy, original) < 1 for copy, original in near)


def test_records_of_one_template_are_alike_but_not_near(mixed: list[Sample]) -> None:
    text_of = texts(mixed)
    templates = [text_of[sample.record["_id"]] for sample in mixed if sample.kind == "template"]
    alike = [jaccard(*pair) for pair in itertools.combinations(templates, 2)]

    assert sum(likeness > 0.3 for likeness in alike) > len(templates)
    assert max(alike) < 0.7


def test_odd_records_come_in_every_form(mixed: list[Sample]) -> None:
    odd = [sample.record.get("data", "missing") for sample in samples(300, mix=Mix(duplicates=0, odd=0.9))]

    assert {type(data) for data in odd} == {str, int, list, type(None)}
    assert {"missing", "", " \r\n", "<p>&nbsp;</p>"} <= {data for data in odd if isinstance(data, str)}


@pytest.mark.parametrize("share", [0, 0.3, 0.9])
def test_the_share_of_copies_is_the_one_asked_for(share: float) -> None:
    copies = [sample.of is not None for sample in samples(2000, mix=Mix(duplicates=share, html=0))]

    assert sum(copies) / 2000 == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_the_share_of_html_is_the_one_asked_for(share: float) -> None:
    html = [record["data"].startswith("<") for record in generate(1000, mix=Mix(html=share, odd=0))]

    assert sum(html) / 1000 == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("length", [100, 1000, 10_000])
def test_texts_can_all_have_one_length(length: int) -> None:
    mix = Mix(length=length, spread=0, templates=0, odd=0, duplicates=0)

    assert all(length - 2 <= len(text) <= length for text in texts(list(samples(20, mix=mix))).values())


def test_by_default_half_of_the_texts_are_longer_than_300_characters(mixed: list[Sample]) -> None:
    lengths = [len(text) for text in texts(mixed).values()]

    assert 250 < median(lengths) < 350
    assert min(lengths) < 40
    assert 3000 < max(lengths) < 5100


def test_most_texts_are_chinese_and_some_english(mixed: list[Sample]) -> None:
    originals = {each.record["_id"] for each in mixed if each.kind == "original"}
    shares = [
        sum(character >= "一" for character in text) / len(text)
        for _id, text in texts(mixed).items()
        if _id in originals
        if len(text) > 100  # a shorter mixture may have come out in one language
    ]

    assert sum(share > 0.8 for share in shares) / len(shares) == pytest.approx(0.70, abs=0.05)
    assert sum(share == 0 for share in shares) / len(shares) == pytest.approx(0.15, abs=0.05)


def test_short_texts_have_exact_copies_only() -> None:
    mix = Mix(length=EDITABLE - 1, spread=0, near=1, templates=0)

    assert "near" not in {sample.kind for sample in samples(300, mix=mix)}


def test_shares_that_add_up_to_more_than_one_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 1"):
        Mix(duplicates=0.9, templates=0.2)


def test_a_file_holds_the_records_as_extended_json(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"

    assert main(["--count", "50", "--seed", "4", "--out", str(file)]) == 0
    lines = file.read_text(encoding="utf-8").rstrip("\n").split("\n")
    options = json_util.JSONOptions(tz_aware=True)

    assert [json_util.loads(line, json_options=options) for line in lines] == list(generate(50, seed=4))


def test_a_collection_is_filled_in_order(
    database: Database[dict[str, Any]], mongo_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEDUP_SOURCE_URI", mongo_uri)

    assert main(["--count", "1200", "--database", database.name, "--collection", "raw"]) == 0
    assert list(database["raw"].find().sort("_id")) == list(generate(1200))


def test_a_command_that_says_nowhere_to_write_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DEDUP_SOURCE_URI", raising=False)

    with pytest.raises(SystemExit):
        main(["--count", "1", "--database", "somewhere"])

    assert "DEDUP_SOURCE_URI" in capsys.readouterr().err
