from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import xxhash
from bson import encode
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.minhash_bands import band_keys
from dedup_job.fingerprint.recipe import Recipe, Resource
from dedup_job.fingerprint.shingles import shingle_sets
from dedup_job.fingerprint.weighted_terms import TermRule
from dedup_job.records import digests
from dedup_job.text.clean import Cleaner
from dedup_job.text.code_points import encode_lower_case
from dedup_job.text.extract_and_clean import Reader
from dedup_job.text.fields import TextFields
from scripts.bench.corpus import generate
from tests.support.recipes import PLAIN, recipe_of

ROOT = Path(__file__).parents[3]
READER, MATCHING = PLAIN.reader, PLAIN.matching
WORDS = TermRule("words", min_length=1, tf="log", idf="full", top=0)
CHINESE = "我们的数据库里有五千万条记录，其中很多网页是重复的，需要在夜里把它们清理干净。"
ENGLISH = "The quick brown fox jumps over the lazy dog while nobody in the whole village looks at it."
GOLDEN = {
    (CHINESE, 64): "72dae06ca7bca11d",
    (ENGLISH, 64): "8defdcb666d7b40f",
    (CHINESE, 128): "e19799402b44c8b572dae06ca7bca11d",
    (ENGLISH, 128): "70b9925bf9f650ea8defdcb666d7b40f",
}


def made(**changes: Any) -> Recipe:
    """A recipe that differs from the plainest one in these."""
    return replace(PLAIN, **changes)


def raw(text: Any, number: int = 0) -> bytes:
    return encode({"_id": number, "text": text})


def hexadecimal(row: np.ndarray) -> str:
    """A fingerprint as one number, most significant word first."""
    return "".join(f"{int(word):016x}" for word in row[::-1])


@pytest.fixture(scope="module")
def fingerprinter() -> Fingerprinter:
    return Fingerprinter(made())


@pytest.fixture(scope="module")
def small_idf(tmp_path_factory: pytest.TempPathFactory) -> Resource:
    path = tmp_path_factory.mktemp("idf") / "idf.txt"
    path.write_text("数据库 5.0\nfox 4.0\nthe 0.5\n", "utf-8")
    return Resource.at(path)


@pytest.mark.parametrize("bits", [64, 128])
def test_golden_fingerprints_stay_for_ever(bits: int) -> None:
    """Whoever changes one raises `FORMAT`: the fingerprints in ledgers would not compare any more."""
    prints = Fingerprinter(made(bits=bits, terms=WORDS))([raw(CHINESE), raw(ENGLISH)])
    assert [hexadecimal(row) for row in prints.bits] == [GOLDEN[CHINESE, bits], GOLDEN[ENGLISH, bits]]
    assert prints.has_fingerprint.all()


CORPUS_GOLDEN = {
    "default": "27931f0c1e873643ac01821a59f81a15",
    "classic": "bfdbc7187fdfa94d91b9b69abdcde379",
}


@pytest.mark.parametrize("profile", CORPUS_GOLDEN)
def test_a_golden_corpus_keeps_every_bit_of_every_column(profile: str) -> None:
    """Whoever changes `scripts.bench.corpus` takes new digests, with this code as it was."""
    recipe = recipe_of("title", "data", recipe={"profile": profile})
    prints = Fingerprinter(recipe)([encode(record) for record in generate(400)])
    columns = [prints.bits, prints.has_fingerprint, prints.keys, prints.digests, prints.hashes]
    found = xxhash.xxh3_128("\n".join(prints.reasons).encode())
    for column in (*columns, prints.shingles.offsets, prints.shingles.values):
        found.update(column.tobytes())
    assert found.hexdigest() == CORPUS_GOLDEN[profile]


SALTED = """
import sys
from bson import encode
from dedup_job.fingerprint.fingerprinter import Fingerprinter
from tests.support.recipes import PLAIN as recipe
prints = Fingerprinter(recipe)([encode({"_id": 0, "text": text}) for text in sys.argv[1:]])
columns = prints.bits, prints.digests, prints.hashes, prints.shingles.values
print(recipe.digest, *(column.tolist() for column in columns))
"""


@pytest.mark.long
def test_the_seed_of_pythons_hash_changes_nothing() -> None:
    """A fault of the seeds: Python's salted `hash()` changed every fingerprint in every run."""
    said = set()
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", SALTED, CHINESE, ENGLISH]
        said.add(subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout)
    assert len(said) == 1
    assert said != {""}


TEXTS = st.lists(st.sampled_from([CHINESE, ENGLISH, "", "短", "fox " * 30, CHINESE[::-1]]), max_size=6)


@given(texts=TEXTS)
def test_a_record_gets_the_same_row_alone_and_in_a_batch(
    fingerprinter: Fingerprinter, texts: Sequence[str]
) -> None:
    together = fingerprinter(list(map(raw, texts)))
    for row, text in enumerate(texts):
        alone = fingerprinter([raw(text)])
        assert together.reasons[row] == alone.reasons[0]
        assert (together.bits[row] == alone.bits[0]).all()
        assert together.has_fingerprint[row] == alone.has_fingerprint[0]
        assert (together.digests[row] == alone.digests[0]).all()
        assert (together.keys[row] == alone.keys[0]).all()
        assert together.shingles[row].tolist() == alone.shingles[0].tolist()


def test_no_records_give_no_rows(fingerprinter: Fingerprinter) -> None:
    prints = fingerprinter([])
    assert (len(prints), prints.bits.shape, prints.digests.shape, len(prints.shingles)) == (
        0,
        (0, 1),
        (0, 2),
        0,
    )


def test_every_column_says_what_it_promises(fingerprinter: Fingerprinter) -> None:
    records = [raw(CHINESE), raw(f"<p>{CHINESE}</p>", 1)]
    prints = fingerprinter(records)
    assert (prints.digests == digests([READER.texts(records)[0].encode()] * 2)).all()
    assert (prints.hashes == digests(records)).all()
    assert (prints.bits[0] == prints.bits[1]).all()
    expected = shingle_sets(encode_lower_case([READER.texts(records)[0]]), 5)
    assert prints.shingles[1].tolist() == expected[0].tolist()
    assert prints.keys.tolist() == band_keys(expected, 9, 4).tolist() * 2


@pytest.mark.parametrize(
    ("value", "reason"),
    [("", "empty"), (" \n", "empty"), (None, "null"), (3, "not_text:number"), ([], "not_text:list")],
)
def test_what_cannot_be_judged_gets_a_reason_and_zeros(
    fingerprinter: Fingerprinter, value: Any, reason: str
) -> None:
    prints = fingerprinter([raw(value), raw(CHINESE)])
    assert list(prints.reasons) == [reason, ""]
    assert not prints.has_fingerprint[0]
    assert not prints.bits[0].any()
    assert not prints.keys[0].any()
    assert not prints.digests[0].any()
    assert len(prints.shingles[0]) == 0


def test_a_text_with_too_few_terms_is_judged_and_not_near(fingerprinter: Fingerprinter) -> None:
    prints = fingerprinter([raw("一二三四"), raw("fox " * 50), raw(CHINESE)])
    assert set(prints.reasons) == {""}
    assert prints.has_fingerprint.tolist() == [False, False, True]
    assert not prints.bits[:2].any()
    assert prints.bits[2].any()


def test_the_least_number_of_terms_counts_distinct_terms(small_idf: Resource) -> None:
    recipe = made(idf_table=small_idf, terms=WORDS, matching=replace(MATCHING, min_terms=3))
    prints = Fingerprinter(recipe)([raw("red blue"), raw("red blue red blue"), raw("red blue green")])
    assert prints.has_fingerprint.tolist() == [False, False, True]


def test_taking_only_the_heaviest_terms_does_not_make_a_text_poor(small_idf: Resource) -> None:
    """`min_terms` is about the text, `top` about the fingerprint."""
    recipe = made(idf_table=small_idf, terms=replace(WORDS, top=3), matching=MATCHING)
    assert Fingerprinter(recipe)([raw(ENGLISH)]).has_fingerprint.all()


def test_terms_are_counted_once_for_each_text(fingerprinter: Fingerprinter) -> None:
    texts, counted = fingerprinter.document_frequencies(
        [raw("fox fox dog"), raw("dog ,"), raw(""), raw(None)]
    )
    assert (texts, counted) == (2, Counter(fox=1, dog=2))


def test_stop_words_are_no_terms_in_whatever_case(tmp_path: Path, small_idf: Resource) -> None:
    path = tmp_path / "stop.txt"
    path.write_text("The\n的\n", "utf-8")
    ready = Fingerprinter(made(idf_table=small_idf, stop_words=Resource.at(path)))
    assert ready.terms.names("THE fox的the") == ["fox"]


def test_a_word_of_the_user_is_one_term_in_whatever_case(tmp_path: Path, small_idf: Resource) -> None:
    path = tmp_path / "words.txt"
    path.write_text("玄鼎浮屠\nX光透视机\n", "utf-8")
    ready = Fingerprinter(made(idf_table=small_idf, user_words=Resource.at(path)))
    assert "玄鼎浮屠" in ready.terms.names("今天玄鼎浮屠发布了")
    assert "x光透视机" in ready.terms.names("这台X光透视机很好")


@pytest.mark.parametrize("name", ["idf_table", "stop_words", "user_words"])
def test_a_file_that_changed_since_its_digest_was_taken_is_refused(
    tmp_path: Path, small_idf: Resource, name: str
) -> None:
    path = tmp_path / "given.txt"
    path.write_text("fox 4\n", "utf-8")
    recipe = replace(made(idf_table=small_idf), **{name: Resource.at(path)})
    path.write_text("fox 5\n", "utf-8")
    with pytest.raises(ValueError, match="changed while the job was starting"):
        Fingerprinter(recipe)


def test_the_digest_of_the_recipe_is_that_of_its_settings(small_idf: Resource) -> None:
    recipe = made(idf_table=small_idf)
    assert recipe.digest == made(idf_table=small_idf).digest
    assert len(recipe.digest) == 64
    assert json.loads(json.dumps(recipe.settings)) == recipe.settings
    assert recipe.settings["idf_table"] == small_idf.sha256


def test_every_setting_that_decides_changes_the_digest(tmp_path: Path, small_idf: Resource) -> None:
    path = tmp_path / "given.txt"
    path.write_text("fox 4\n", "utf-8")
    given_file, recipe = Resource.at(path), made(idf_table=small_idf)
    changed = [
        recipe,
        replace(recipe, reader=Reader(TextFields(("text", "title")))),
        replace(recipe, reader=Reader(TextFields(("text.title",)))),
        replace(recipe, reader=replace(READER, cleaner=Cleaner(drop_after=("x",)))),
        replace(recipe, reader=replace(READER, cleaner=Cleaner(max_chars=5))),
        replace(recipe, hmm=False),
        *(
            replace(recipe, terms=rule)
            for rule in (
                TermRule("words:2"),
                TermRule(min_length=3),
                TermRule(tf="raw"),
                TermRule(idf="full"),
            )
        ),
        replace(recipe, terms=TermRule(top=5)),
        replace(recipe, bits=128),
        *(
            replace(recipe, matching=replace(MATCHING, **{name: 11}))
            for name in (
                "radius",
                "bands",
                "rows",
                "band_radius",
                "min_terms",
                "min_similarity",
                "shingle",
                "numbers",
            )
        ),
        *(replace(recipe, **{name: given_file}) for name in ("idf_table", "stop_words", "user_words")),
    ]
    assert len({one.digest for one in changed}) == len(changed)


def test_where_a_file_lies_is_no_part_of_the_recipe(tmp_path: Path) -> None:
    copies = []
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("fox 4\n", "utf-8")
        copies.append(Resource.at(tmp_path / name))
    assert made(idf_table=copies[0]).digest == made(idf_table=copies[1]).digest


def test_the_settings_name_no_machine_path(small_idf: Resource) -> None:
    assert not any("/" in str(value) for value in made(idf_table=small_idf).settings.values())


@pytest.mark.parametrize(
    "place",
    [
        "segment._find_word_starts",
        "weighted_terms._find_terms",
        "weighted_terms.hash_terms",
        "weighted_terms._count",
    ],
)
def test_an_error_half_way_leaves_no_trace(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Memory may run out anywhere; what was remembered until then may be half of something."""
    first, second = [raw("red blue"), raw(CHINESE)], [raw(ENGLISH), raw(CHINESE + "red"), raw("red blue")]
    fingerprinter = Fingerprinter(made())
    fingerprinter([raw("red")])
    with monkeypatch.context() as patch:
        patch.setattr(f"dedup_job.fingerprint.{place}", Mock(side_effect=MemoryError))
        with pytest.raises(MemoryError):
            fingerprinter(first)
    for raws in (second, first):
        found, expected = fingerprinter(raws), Fingerprinter(made())(raws)
        assert np.array_equal(found.bits, expected.bits)
        assert np.array_equal(found.shingles.values, expected.shingles.values)
