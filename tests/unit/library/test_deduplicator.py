from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from bson import Binary, decode, encode
from bson.int64 import Int64
from bson.objectid import ObjectId

from dedup_job import Deduplicator, Match
from dedup_job.config import CleanSettings, MatchSettings, RecipeSettings
from dedup_job.errors import ConfigError
from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.index.keepers import Keepers
from dedup_job.library.arguments import Keywords
from dedup_job.library.deduplicator import BATCH
from dedup_job.pipeline import job
from dedup_job.records import Batch
from scripts.bench.corpus import Mix, generate
from scripts.bench.made_up import Collection, Forms, Pages
from tests.support.recipes import recipe_of
from tests.support.text_pairs import LONG, OTHER

NEAR = LONG.replace("海鸥", "白鸟")
COUNT = 1_500
FORM = Collection(Forms(forms=1, words_each=60, fields=3, least=0.3, most=1.0), copies=0.2)
COLLECTIONS = {
    "pages": Collection(Pages(words_each=60), copies=0.5),
    "forms": Collection(Forms(words_each=60), copies=0.4),
    "one form": FORM,
}


@cache
def texts_of(name: str) -> list[str]:
    """Made-up texts, half of them in HTML; `odd` ones are of all kinds and languages, some empty."""
    if name == "odd":
        records = generate(COUNT, mix=Mix(odd=0.1))
        return [text for record in records if isinstance(text := record.get("data"), str)]
    raws = COLLECTIONS[name].records(np.arange(COUNT))
    return [decode(raw)["data"] for raw in raws]


def decided_by_the_job(texts: list[str], batch: int = 200, **tables: Any) -> dict[int, Match]:
    """The matches of the job itself, by row, deciding records in batches."""
    recipe = recipe_of("data", **tables)
    fingerprint, raws = Fingerprinter(recipe), [encode({"_id": n, "data": t}) for n, t in enumerate(texts)]
    keepers = Keepers(recipe, 1 << 30)
    matches = {}
    for first in range(0, len(texts), batch):
        some = raws[first : first + batch]
        ids = [encode({"_id": first + place}) for place in range(len(some))]
        plan = job.decide_in_memory(Batch(ids, some), fingerprint(some), recipe.matching, keepers)
        for row, verdict in enumerate(plan.verdicts, first):
            if found := verdict.match:
                keeper = decode(found.keeper)["_id"]
                matches[row] = Match(keeper, verdict.reason, found.distance, found.similarity)
    return matches


@pytest.mark.parametrize("name", [*COLLECTIONS, "odd"])
def test_decisions_are_those_of_the_job_record_for_record(name: str) -> None:
    texts = texts_of(name)
    expected = decided_by_the_job(texts)
    assert {match.reason for match in expected.values()} == {"exact", "near"}
    ours = Deduplicator()
    assert ours.add_all(enumerate(texts)) == expected
    assert list(ours) == [row for row in range(len(texts)) if row not in expected]
    assert len(ours) == len(texts) - len(expected)


@pytest.mark.parametrize(
    "tables",
    [
        {"recipe": {"profile": "classic"}},
        {"match": {"radius": 20, "min_similarity": 0.6}, "recipe": {"bits": 128}},
        {"match": {"numbers": "distinguish", "shingle": 2}, "clean": {"drop_after": ["转载"]}},
    ],
)
def test_settings_are_keywords_and_mean_what_they_mean_to_the_job(tables: dict[str, dict[str, Any]]) -> None:
    texts = texts_of("odd")[:600]
    keywords = {name: value for table in tables.values() for name, value in table.items()}
    ours = Deduplicator(**keywords)
    assert ours.add_all(enumerate(texts)) == decided_by_the_job(texts, **tables)
    assert ours.digest == recipe_of("text", **tables).digest


def test_one_after_the_other_is_decided_as_all_together_and_finding_tells_it_before() -> None:
    texts = texts_of("one form")[:400]
    ours, found, added = Deduplicator(), {}, {}
    for row, text in enumerate(texts):
        found[row], added[row] = ours.find(text), ours.add(row, text)
    assert found == added
    assert {row: match for row, match in added.items() if match} == decided_by_the_job(texts)


def test_only_texts_of_one_group_match(tmp_path: Path) -> None:
    texts = texts_of("one form")[:200]
    groups = [(row % 2, "zh" if row % 3 else None) for row in range(len(texts))]
    ours, alone = Deduplicator(within=["site", "lang"]), {group: Deduplicator() for group in set(groups)}
    expected = {row: alone[groups[row]].add(row, text) for row, text in enumerate(texts)}
    found = ours.add_all(zip(range(100), texts[:100], groups[:100], strict=True))
    ours.save(tmp_path / "ours")
    for row in range(100, 200):
        assert ours.find(texts[row], groups[row]) == ours.add(row, texts[row], groups[row]) == expected[row]
    assert found == {row: match for row, match in expected.items() if match and row < 100}
    assert any(found.values())
    again = Deduplicator.load(tmp_path / "ours")
    assert [again.add(row, texts[row], groups[row]) for row in range(100, 200)] == list(expected.values())[
        100:
    ]


def test_the_group_of_one_field_is_its_value_and_none_is_a_missing_one() -> None:
    ours = Deduplicator(within=["site"])
    text = texts_of("pages")[0]
    assert [ours.add("a", text, "x"), ours.add("b", text), ours.add("c", text, 1)] == [None, None, None]
    same = ("x", None, 1.0, np.int64(1))
    assert [ours.find(text, group).keeper for group in same] == ["a", "b", "c", "c"]
    assert ours.find(text, "y") is None
    assert ours.digest == recipe_of("text", match={"within": ["site"]}).digest


@pytest.mark.parametrize(
    ("within", "group", "message"),
    [
        ([], "x", "within="),
        (["site"], ("x", "y"), "a value for each of site"),
        (["site", "lang"], "x", "a value for each of site, lang"),
        (["site"], object(), "can be no group"),
        (["site"], 1 << 70, "can be no group"),
    ],
)
def test_a_group_that_does_not_fit_is_refused(within: list[str], group: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Deduplicator(within=within).add("a", "text", group)


def test_finding_alters_nothing() -> None:
    texts = texts_of("pages")
    asked, ours = Deduplicator(), Deduplicator()
    for part in (texts[:500], texts[500:]):
        for text in texts[::40]:
            asked.find(text)
        rows = range(texts.index(part[0]), texts.index(part[0]) + len(part))
        assert asked.add_all(zip(rows, part, strict=True)) == ours.add_all(zip(rows, part, strict=True))


def test_a_text_whose_keeper_was_removed_is_kept_when_it_comes() -> None:
    ours = Deduplicator()
    assert ours.add("a", LONG) is None
    assert ours.add("b", NEAR) == ours.find(NEAR) != None  # noqa: E711
    ours.remove("a")
    assert "a" not in ours
    assert ours.find(LONG) is None
    assert ours.add("b", NEAR) is None
    assert ours.add("a", LONG) == Match("b", "near", *distances(LONG, NEAR))
    assert list(ours) == ["b"]


def distances(one: str, other: str) -> tuple[int | None, float | None]:
    ours = Deduplicator()
    ours.add(1, one)
    match = ours.add(2, other)
    assert match
    return match.distance, match.similarity


def test_a_removed_key_may_come_again_with_its_text_or_another() -> None:
    ours = Deduplicator()
    ours.add("a", LONG)
    ours.remove("a")
    assert ours.add("a", LONG) is None
    assert ours.add("b", LONG) == Match("a", "exact", 0, 1.0)
    ours.remove("a")
    assert ours.add("a", OTHER) is None
    assert ours.find(LONG) is None
    assert len(ours) == 1


def test_what_is_removed_leaves_the_matches_with_others_as_they_were() -> None:
    texts = texts_of("one form")
    ours = Deduplicator()
    ours.add_all(enumerate(texts))
    before = [ours.find(text) for text in texts[:100]]
    gone = set(list(ours)[::2])
    for key in gone:
        ours.remove(key)
    after = [ours.find(text) for text in texts[:100]]
    stays = [match is None or match.keeper not in gone for match in before]
    assert 0 < sum(stays) < len(stays)
    assert all(now == match for now, match, is_same in zip(after, before, stays, strict=True) if is_same)
    assert not gone & {match.keeper for match in after if match}


@pytest.mark.parametrize("key", ["a", "", 0, -(2**63), 2**40, b"\0", UUID(int=7), ObjectId()])
def test_keys_come_back_as_they_were_given(key: Any) -> None:
    ours = Deduplicator()
    ours.add(key, LONG)
    match = ours.find(LONG)
    assert match
    assert (match.keeper, type(match.keeper)) == (key, type(key))


def test_integers_of_numpy_and_bson_are_integers() -> None:
    ours = Deduplicator()
    ours.add_all([(np.int64(3), LONG), (Int64(4), OTHER)])  # type: ignore[list-item]
    assert [ours.find(text).keeper for text in (LONG, OTHER)] == [3, 4]  # type: ignore[union-attr]
    assert 3 in ours


@pytest.mark.parametrize("key", [None, True, 1.0, ("a", 1), object(), Binary(b"a", 5), Binary(b"a", 0)])
def test_what_is_no_key_is_told_by_its_type(key: Any) -> None:
    with pytest.raises(TypeError, match=f"not a {type(key).__name__}"):
        Deduplicator().add(key, LONG)


@pytest.mark.parametrize("key", [2**63, "\ud800"])
def test_a_key_that_cannot_be_saved_is_refused(key: Any) -> None:
    with pytest.raises(ValueError, match="can be no key"):
        Deduplicator().add(key, LONG)


@pytest.mark.parametrize("text", [None, float("nan"), b"text", ["text"]])
def test_what_is_no_text_is_told_by_its_type(text: Any) -> None:
    with pytest.raises(TypeError, match=f"a text is a str, not a {type(text).__name__}"):
        Deduplicator().add("a", text)


@pytest.mark.parametrize("pair", ["ab", b"ab", ("a",), ("a", LONG, None, 1), {"ab": LONG}])
def test_what_is_no_pair_is_refused(pair: Any) -> None:
    ours = Deduplicator()
    with pytest.raises(TypeError, match=f"expected .key, text. or .*, not {type(pair).__name__}"):
        ours.add_all([("kept", LONG), pair])
    assert list(ours) == []


def test_a_kept_key_is_refused_and_one_that_was_not_kept_may_come_again() -> None:
    ours = Deduplicator()
    assert ours.add_all([("a", LONG), ("b", LONG), ("b", OTHER), ("c", OTHER)]).keys() == {"c"}
    assert list(ours) == ["a", "b"]
    with pytest.raises(ValueError, match="'b' is kept already"):
        ours.add("b", NEAR)
    assert ours.find(OTHER) == Match("b", "exact", 0, 1.0)


def test_what_came_before_a_wrong_pair_is_there() -> None:
    ours = Deduplicator()

    def pairs() -> Iterator[tuple[int, str]]:
        yield from ((row, f"{LONG} {row}") for row in range(BATCH + 1))
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        ours.add_all(pairs())
    assert 0 in ours
    assert ours.add("a", LONG) is not None


def test_to_remove_what_is_not_kept_is_a_key_error() -> None:
    ours = Deduplicator()
    ours.add("a", LONG)
    ours.add("b", LONG)
    with pytest.raises(KeyError):
        ours.remove("b")


@pytest.mark.parametrize("text", ["", " ", "<script>x()</script>", "\ud800", "x" * 101])
def test_what_cannot_be_judged_is_kept_and_stands_for_nothing(text: str) -> None:
    ours = Deduplicator(max_chars=100)
    assert ours.add("a", text) is None
    assert ours.add("b", text) is None
    assert ours.find(text) is None
    ours.remove("a")
    assert list(ours) == ["b"]


def test_what_was_loaded_goes_on_as_if_it_had_never_been_saved(tmp_path: Path) -> None:
    texts = texts_of("forms")
    ours = Deduplicator(min_similarity=0.75)
    ours.add_all(enumerate(texts[:700]))
    ours.add("empty", "")
    for key in list(ours)[::5]:
        ours.remove(key)
    ours.add_all((row, texts[row]) for row in range(300) if row not in ours)
    ours.save(tmp_path / "texts")
    loaded = Deduplicator.load(tmp_path / "texts")
    assert (list(loaded), loaded.digest) == (list(ours), ours.digest)
    for key in list(ours)[::7]:
        ours.remove(key)
        loaded.remove(key)
    rest = list(enumerate(texts))[700:]
    expected = ours.add_all(rest)
    assert expected
    assert loaded.add_all(rest) == expected
    assert [loaded.find(text) for text in texts[::10]] == [ours.find(text) for text in texts[::10]]


def test_a_text_stands_after_loading_when_another_key_brought_it_again(tmp_path: Path) -> None:
    ours = Deduplicator()
    ours.add(ObjectId(), OTHER)
    ours.add("a", LONG)
    ours.remove("a")
    ours.add(b"b", LONG)
    ours.save(tmp_path / "texts")
    loaded = Deduplicator.load(tmp_path / "texts")
    assert loaded.find(LONG) == Match(b"b", "exact", 0, 1.0)
    loaded.remove(b"b")
    assert loaded.find(LONG) is None


def test_nothing_is_saved_and_loaded_too(tmp_path: Path) -> None:
    Deduplicator(profile="classic").save(tmp_path / "none")
    loaded = Deduplicator.load(tmp_path / "none")
    assert (len(loaded), loaded.digest) == (0, Deduplicator(profile="classic").digest)
    assert loaded.add("a", LONG) is None


def test_settings_with_files_are_saved_with_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stop.txt").write_text("茶叶\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    ours = Deduplicator(stop_words="stop.txt")
    ours.save("texts")
    monkeypatch.chdir("/")
    assert Deduplicator.load(tmp_path / "texts").digest == ours.digest
    (tmp_path / "stop.txt").write_text("海鸥\n", "utf-8")
    with pytest.raises(ConfigError, match="another recipe: stop_words"):
        Deduplicator.load(tmp_path / "texts")


def test_a_file_that_cannot_be_written_leaves_the_one_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        Deduplicator().save(tmp_path / "nowhere" / "texts")
    with pytest.raises(IsADirectoryError):
        Deduplicator().save(tmp_path)
    assert list(tmp_path.parent.glob(f"*{tmp_path.name}*")) == [tmp_path]


def test_an_unknown_setting_is_a_type_error_with_a_proposal() -> None:
    with pytest.raises(TypeError, match="no setting 'min_similarty'; did you mean 'min_similarity'"):
        Deduplicator(min_similarty=0.9)  # type: ignore[call-arg]


def test_a_setting_that_cannot_be_used_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"\[match\] min_similarity: .* not 1.5"):
        Deduplicator(min_similarity=1.5)
    with pytest.raises(ConfigError, match=r"nowhere\.txt: No such file"):
        Deduplicator(stop_words="/nowhere.txt")
    with pytest.raises(ConfigError, match=r"user_words: expected the name of a file in quotes, not 5"):
        Deduplicator(user_words=5)  # type: ignore[arg-type]


def test_every_setting_that_decides_is_a_keyword() -> None:
    sections = (CleanSettings, RecipeSettings, MatchSettings)
    # `prefer` replaces records that were kept, which `add` cannot say.
    not_here = {"cache_mb", "prefer"}
    names = [name for section in sections for name in section.model_fields if name not in not_here]
    assert sorted(Keywords.__annotations__) == sorted(names)


def test_it_does_not_prefer_and_says_so() -> None:
    settings: Any = {"prefer": ["longest"]}
    with pytest.raises(TypeError, match="no setting 'prefer': it keeps the first of similar texts"):
        Deduplicator(**settings)


def test_threads_share_one() -> None:
    texts = texts_of("pages")[:400]
    ours = Deduplicator()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(ours.add, range(len(texts)), texts))
    kept = [row for row, match in enumerate(found) if match is None]
    assert sorted(ours) == kept  # type: ignore[type-var]
    assert {match.keeper for match in found if match} <= set(kept)


def test_the_package_is_imported_without_what_a_command_has_no_use_for() -> None:
    told = "import json, sys, dedup_job; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert not {"numba", "numpy", "pymongo"} & set(json.loads(done.stdout))


def test_a_program_that_uses_the_library_needs_no_driver() -> None:
    told = "import json, sys; from dedup_job import Deduplicator; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert "pymongo.mongo_client" not in json.loads(done.stdout)
