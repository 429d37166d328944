from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dedup_job import config
from dedup_job.config import SOURCE_URI, TARGET_URI, Settings, check_settings, load_settings, with_values
from dedup_job.config_errors import EXPECTED
from dedup_job.errors import ConfigError, UsageError
from dedup_job.fingerprint.recipe import Matching
from dedup_job.preference.preference_rule import PreferRule
from dedup_job.recipe_from_settings import PROFILES, make_recipe

SMALLEST = """
[source]
database = "crawl"
collection = "pages"
fields = ["body"]
[target]
database = "crawl"
collection = "unique"
"""
PASSWORD = "s3cret-word"


@pytest.fixture(autouse=True)
def _no_connection_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SOURCE_URI, raising=False)
    monkeypatch.delenv(TARGET_URI, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def settings(**sections: Any) -> Settings:
    """The smallest configuration with these keys more, by section."""
    table: dict[str, Any] = {
        "source": {"database": "crawl", "collection": "pages", "fields": ["body"]},
        "target": {"database": "crawl", "collection": "unique"},
    }
    for name, values in sections.items():
        table[name] = {**table.get(name, {}), **values} if isinstance(values, dict) else values
    return check_settings(table, "c.toml")


def fault(**sections: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        settings(**sections)
    message = str(caught.value)
    assert message.startswith("c.toml: ")
    assert "\n" not in message
    return message.removeprefix("c.toml: ")


def test_settings_are_read_without_compiled_code() -> None:
    """It takes longer to load than all else: mistakes are told sooner, and workers begin meanwhile."""
    read = "import sys, dedup_job.config; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", read], check=True)


def test_the_smallest_file_is_enough(file: Path) -> None:
    file.write_text(SMALLEST, "utf-8")
    loaded = load_settings(file)
    assert loaded.source.fields == ("body",)
    assert loaded.source.condition == {}
    assert loaded.source.lookback == timedelta(hours=48)
    assert loaded == settings()


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"match": {"radis": 3}}, "[match] radis: unknown key, did you mean radius?"),
        ({"mach": {"radius": 3}}, "[mach]: unknown key, did you mean match?"),
        ({"source": {"field": "body"}}, "[source] field: unknown key, did you mean fields?"),
        (
            {"report": {"zzz": 3}},
            "[report] zzz: unknown key, known: directory, samples, groups, keep, metrics, ping, show, "
            "group_by",
        ),
    ],
)
def test_an_unknown_key_is_an_error_with_a_proposal(sections: dict[str, Any], message: str) -> None:
    assert fault(**sections) == message


def test_a_misspelt_section_is_named_in_place_of_the_one_that_is_missing(file: Path) -> None:
    file.write_text(SMALLEST.replace("[target]", "[taget]"), "utf-8")
    with pytest.raises(ConfigError) as caught:
        load_settings(file)
    assert str(caught.value) == f"{file}: [taget]: unknown key, did you mean target?"


@pytest.mark.parametrize(("cut", "where"), [("[target]", "[target]"), ("fields", "[source] fields")])
def test_what_is_missing_is_named(file: Path, cut: str, where: str) -> None:
    end = None if cut == "[target]" else SMALLEST.index("[target]")
    file.write_text(SMALLEST[: SMALLEST.index(cut)] + ("" if end is None else SMALLEST[end:]), "utf-8")
    with pytest.raises(ConfigError) as caught:
        load_settings(file)
    assert str(caught.value) == f"{file}: {where}: is missing"


@pytest.mark.parametrize(
    ("sections", "start"),
    [
        ({"match": {"radius": "3"}}, '[match] radius: expected a whole number, not "3"'),
        ({"match": {"radius": 3.0}}, "[match] radius: expected a whole number, not 3.0"),
        ({"match": {"radius": True}}, "[match] radius: expected a whole number, not true"),
        ({"match": {"radius": -1}}, "[match] radius: expected 0 or more, not -1"),
        ({"match": {"radius": 129}}, "[match] radius: expected 128 or less, not 129"),
        ({"recipe": {"top": 1 << 63}}, "[recipe] top: expected 1000000000 or less, not 9223372036854775808"),
        ({"match": 3}, "[match]: expected a table of settings, not 3"),
        ({"source": {"fields": "body"}}, '[source] fields: expected a list, not "body"'),
        ({"source": {"fields": []}}, "[source] fields: expected at least one, not []"),
        ({"source": {"fields": ["a", 1]}}, "[source] fields, number 2: expected a text in quotes, not 1"),
        ({"source": {"database": ""}}, "[source] database: expected the name of a database, without"),
        ({"source": {"lookback_hours": float("nan")}}, "[source] lookback_hours: expected a number, not NaN"),
        ({"source": {"lookback_hours": float("inf")}}, "[source] lookback_hours: "),
        ({"recipe": {"bits": 96}}, "[recipe] bits: expected 64 or 128, not 96"),
        ({"recipe": {"hmm": "no"}}, "[recipe] hmm: expected true or false, not"),
        ({"recipe": {"features": "chars:0"}}, "[recipe] features: expected words, words+han, words:2 to"),
        ({"recipe": {"features": "words:"}}, "[recipe] features: "),
        ({"match": {"min_similarity": 1.5}}, "[match] min_similarity: expected 1 or less, not 1.5"),
        ({"match": {"min_similarity": float("nan")}}, "[match] min_similarity: expected a number, not NaN"),
        ({"limits": {"retry_seconds": float("nan")}}, "[limits] retry_seconds: expected a number, not NaN"),
        ({"engine": {"workers": 0}}, "[engine] workers: "),
        ({"limits": {"batch_records": 5_001}}, "[limits] batch_records: "),
    ],
)
def test_a_wrong_value_is_named_with_its_place(sections: dict[str, Any], start: str) -> None:
    assert fault(**sections).startswith(start)


WRONG: dict[str, dict[str, Any]] = {
    "source": {"database": 3, "collection": "a..b", "fields": ["a..b"], "filter": "{", "lookback_hours": "2"},
    "target": {"database": "x" * 70, "uri_file": 3},
    "clean": {"drop_after": [""], "max_chars": 0},
    "recipe": {"hmm": "x", "features": "x", "bits": 7},
    "match": {"radius": 1.5, "min_similarity": 2},
    "engine": {"workers": 5_000},
    "limits": {"record_seconds": 0, "allow_plaintext": "yes", "retry_seconds": float("inf")},
    "report": {"directory": [1], "sample": 3},
}


def test_all_faults_are_told_at_once_in_the_names_of_the_settings() -> None:
    told = fault(**WRONG).split("; ")
    assert {one.partition(": ")[0] for one in told} == {
        "[source] database", "[source] collection", "[source] fields", "[source] filter",
        "[source] lookback_hours", "[target] database", "[target] uri_file",
        "[clean] drop_after, number 1", "[clean] max_chars", "[recipe] hmm", "[recipe] features",
        "[recipe] bits", "[match] radius", "[match] min_similarity", "[engine] workers",
        "[limits] record_seconds", "[limits] allow_plaintext", "[limits] retry_seconds",
        "[report] directory", "[report] sample",
    }  # fmt: skip
    assert not any("nput should" in one or "alue error" in one for one in told)


def test_a_key_that_is_missing_is_told_of_beside_others() -> None:
    told = fault(source={"database": 3}, target={"collection": ""}, macth={})
    assert told.startswith("[source] database: expected a text in quotes, not 3; [target] collection: ")
    assert told.endswith("; [macth]: unknown key, did you mean match?")


def test_every_kind_of_fault_that_a_setting_may_have_has_its_sentence() -> None:
    """By the schema that pydantic has made of the settings: each kind of type and bound in it."""
    bounds = {"ge": "greater_than_equal", "gt": "greater_than", "le": "less_than_equal", "lt": "less_than"}
    bounds |= {"multiple_of": "multiple_of"}
    found: set[str] = set()

    def look(node: Any) -> None:
        if isinstance(node, dict):
            kind = node.get("type")
            if kind in ("int", "float", "bool"):
                found.add(f"{kind}_type")
                found.update(name for key, name in bounds.items() if key in node)
            look(list(node.values()))
        elif isinstance(node, list | tuple):
            for one in node:
                look(one)

    look(Settings.__pydantic_core_schema__)
    assert {"int_type", "float_type", "bool_type", "greater_than", "greater_than_equal"} <= found
    assert found <= set(EXPECTED)


def test_contradictions_and_files_are_told_of_at_once(tmp_path: Path) -> None:
    recipe = {"stop_words": str(tmp_path / "stop"), "idf_table": str(tmp_path / "idf")}
    made = settings(
        clean={"drop_after": [" "]}, recipe=recipe, match={"radius": 65, "min_similarity": 0, "bands": 3}
    )
    with pytest.raises(ConfigError) as caught:
        make_recipe(made)
    assert [one.partition(": ")[0] for one in str(caught.value).split("; ")] == [
        "[match] radius", "[match] min_similarity", "[clean] drop_after", "[recipe] idf_table",
        "[recipe] stop_words",
    ]  # fmt: skip


def test_whole_numbers_will_do_for_fractions() -> None:
    assert settings(match={"min_similarity": 1}).match.min_similarity == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        "{'lang': 'zh'}",
        '{"a": ',
        '{"$oid": "0123456789abcdef01234567"}',
        '{"a": {"$oid": "x"}}',
        '{"a": {"$date": "yesterday"}}',
        '{"a": {"$numberDecimal": "x"}}',
        '{"a": {"$timestamp": {"t": 1}}}',
        '{"a": {"$binary": {"base64": 3, "subType": "00"}}}',
        pytest.param('{"a":' * 100_000, id="nested without end"),
    ],
)
def test_a_filter_that_is_no_extended_json_is_refused(text: str) -> None:
    assert fault(source={"filter": text}).startswith("[source] filter: expected a filter in extended JSON")


def test_a_filter_is_given_to_the_server_as_it_stands() -> None:
    made = settings(source={"filter": '{"lang": "zh", "n": {"$gt": {"$numberLong": "5"}}}'})
    assert made.source.condition == {"lang": "zh", "n": {"$gt": 5}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[source", "not valid TOML"),
        (b"\xff\xfe", "not valid TOML"),
        (b"a = 1\na = 2", "not valid TOML"),
        (b"a = " + b"9" * 6_000, "not valid TOML: a number has too many digits"),
        (b"a = " + b"[" * 3_000 + b"]" * 3_000, "not valid TOML: it is nested too deep"),
    ],
)
def test_a_file_that_is_no_toml_is_refused(file: Path, content: bytes, words: str) -> None:
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        load_settings(file)


def test_a_byte_order_mark_is_no_part_of_the_settings(file: Path) -> None:
    settings = (
        '[source]\ndatabase="d"\ncollection="s"\nfields=["f"]\n[target]\ndatabase="d"\ncollection="t"\n'
    )
    file.write_text(f"\ufeff{settings}", "utf-8")
    assert load_settings(file).source.collection == "s"


def test_an_endless_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "MOST_BYTES", 1_000)
    with pytest.raises(ConfigError, match="/dev/zero: File too large; name a settings file"):
        load_settings(Path("/dev/zero"))


def test_a_file_that_is_not_there_is_named(file: Path) -> None:
    told = rf"No such file.* -c or DEDUP_CONFIG, .*: dedup-job init -c {re.escape(str(file))}$"
    with pytest.raises(ConfigError, match=told):
        load_settings(file)


def test_paths_are_beside_the_settings_file(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    (tmp_path / "stop.txt").write_text("the\n")
    (tmp_path / "uri").write_text("mongodb://x/")
    (tmp_path / "uri").chmod(0o600)
    paths = '[recipe]\nstop_words = "stop.txt"\n[report]\ndirectory = "~/reports"\n'
    file.write_text(SMALLEST.replace("[target]", 'uri_file = "uri"\n[target]') + paths, "utf-8")
    monkeypatch.chdir(tmp_path)
    read = load_settings(Path(file.name))
    monkeypatch.chdir("/")

    assert read.source_uri() == "mongodb://x/"
    assert make_recipe(read).stop_words.path == str((tmp_path / "stop.txt").resolve())
    assert read.report.directory == Path("/home/somebody/reports")


def test_an_absolute_path_is_what_it_says() -> None:
    assert settings(report={"directory": "/srv/reports"}).report.directory == Path("/srv/reports")


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        settings().match.radius = 5  # type: ignore[misc]


def test_the_number_of_workers_can_be_given_beside_the_file() -> None:
    changed = with_values(settings(), "engine", workers=7)
    assert changed.engine.workers == 7
    assert changed.source == settings().source


def test_the_recipe_has_what_the_file_says(tmp_path: Path) -> None:
    words = tmp_path / "stop.txt"
    words.write_text("the\n", "utf-8")
    made = make_recipe(
        settings(
            clean={"drop_after": ["Share:"], "max_chars": 50},
            recipe={
                "features": "words:2",
                "min_length": 2,
                "tf": "raw",
                "top": 30,
                "bits": 128,
                "stop_words": str(words),
            },
            match={"radius": 9, "bands": 6, "min_similarity": 0.5, "shingle": 3},
        )
    )
    assert made.reader.fields.paths == ("body",)
    assert (made.reader.cleaner.drop_after, made.reader.cleaner.max_chars) == (("Share:",), 50)
    assert (made.terms.features, made.terms.min_length, made.terms.tf, made.terms.top) == (
        "words:2",
        2,
        "raw",
        30,
    )
    assert made.matching == Matching(radius=9, bands=6, min_similarity=0.5, shingle=3)
    assert made.bits == 128
    assert made.stop_words.path == str(words)


@pytest.mark.parametrize("name", ["idf_table", "stop_words", "user_words"])
def test_a_file_of_the_recipe_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / "absent.txt"
    with pytest.raises(ConfigError, match=r"absent\.txt: No such file"):
        make_recipe(settings(recipe={name: str(path)}))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("idf_table", b"word without number\n"),
        ("idf_table", b""),
        ("idf_table", b"\xff\xfe 1.0\n"),
        ("user_words", "云计算 x\n".encode()),
        ("user_words", b"\xff\xfe\n"),
        ("stop_words", b"\xff\xfe\n"),
    ],
)
def test_a_file_of_the_recipe_that_is_malformed_is_named_before_a_worker_starts(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / "given.txt"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"given\.txt"):
        make_recipe(settings(recipe={name: str(path)}))


@pytest.mark.parametrize(
    "sections",
    [{"source": {"fields": ["a..b"]}}, {"source": {"fields": ["."]}}, {"clean": {"drop_after": [" "]}}],
)
def test_a_value_that_only_its_part_can_judge_is_a_mistake_in_the_configuration(
    sections: dict[str, Any],
) -> None:
    with pytest.raises(ConfigError):
        make_recipe(settings(**sections))


def test_a_radius_beyond_the_fingerprint_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\[match\] radius: 65 is more than the 64 bits"):
        make_recipe(settings(match={"radius": 65}, recipe={"bits": 64}))
    assert make_recipe(settings(match={"radius": 65}, recipe={"bits": 128})).matching.radius == 65


def test_a_band_radius_beyond_the_fingerprint_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\[match\] band_radius: 65 is more than the 64 bits"):
        make_recipe(settings(match={"band_radius": 65}))


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_what_it_says_where_nothing_else_is_set(name: str) -> None:
    made = make_recipe(settings(recipe={"profile": name}))
    assert (made.matching, made.terms, made.bits) == (
        PROFILES[name].matching,
        PROFILES[name].terms,
        PROFILES[name].bits,
    )


def test_what_a_file_sets_takes_the_place_of_a_profile_and_zero_is_a_value() -> None:
    made = make_recipe(settings(recipe={"profile": "thorough", "top": 0}, match={"bands": 0}))
    assert made.matching == replace(PROFILES["thorough"].matching, bands=0)


def test_bands_need_texts_that_are_compared() -> None:
    """They bring texts 18 bits apart, and those without a fingerprint at any distance."""
    with pytest.raises(ConfigError, match=r"\[match\] min_similarity: .* set bands = 0 too"):
        make_recipe(settings(match={"min_similarity": 0}))
    assert make_recipe(settings(match={"min_similarity": 0, "bands": 0})).matching.min_similarity == 0.0


def test_numbers_cannot_tell_texts_apart_that_are_not_compared() -> None:
    with pytest.raises(ConfigError, match=r"\[match\] numbers: .* set min_similarity above 0"):
        make_recipe(settings(recipe={"profile": "classic"}, match={"numbers": "distinguish"}))


def uri_file(tmp_path: Path, text: str = f"mongodb://user:{PASSWORD}@db/\n", mode: int = 0o600) -> str:
    path = tmp_path / "uri"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    path.chmod(mode)
    return str(path)


def test_a_connection_string_comes_from_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    made = settings(source={"uri_file": uri_file(tmp_path)})
    assert made.source_uri() == made.target_uri() == f"mongodb://user:{PASSWORD}@db/"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o620])
def test_a_file_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    made = settings(source={"uri_file": uri_file(tmp_path, mode=mode)})
    with pytest.raises(ConfigError, match="run chmod 600") as caught:
        made.source_uri()
    assert PASSWORD not in str(caught.value)


def test_the_environment_comes_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SOURCE_URI, "mongodb://one/")
    made = settings(source={"uri_file": uri_file(tmp_path, mode=0o644)})
    assert made.source_uri() == made.target_uri() == "mongodb://one/"
    monkeypatch.setenv(TARGET_URI, "mongodb://two/")
    assert (made.source_uri(), made.target_uri()) == ("mongodb://one/", "mongodb://two/")


def test_the_target_has_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SOURCE_URI, "mongodb://one/")
    made = settings(target={"uri_file": uri_file(tmp_path)})
    assert made.target_uri() == f"mongodb://user:{PASSWORD}@db/"


def test_without_a_connection_string_the_message_says_what_to_set() -> None:
    with pytest.raises(ConfigError, match=f"set {SOURCE_URI} to the connection string"):
        settings().target_uri()


def test_an_empty_connection_string_is_none_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`DEDUP_SOURCE_URI=` in a cron table, or an empty file, is a slip and not the local server."""
    with pytest.raises(ConfigError):
        settings(source={"uri_file": uri_file(tmp_path, " \n")}).source_uri()
    monkeypatch.setenv(SOURCE_URI, "")
    with pytest.raises(ConfigError):
        settings().source_uri()


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        settings(source={"uri_file": uri_file(tmp_path, "\udcff\udcfe")}).source_uri()


def test_a_connection_string_in_the_place_of_a_file_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        settings(source={"uri_file": f"mongodb://user:{PASSWORD}@db/"}).source_uri()
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("key", ["uri", "password"])
def test_a_connection_string_in_the_configuration_is_refused_and_not_repeated(key: str) -> None:
    assert PASSWORD not in fault(source={key: f"mongodb://user:{PASSWORD}@db/"})


@pytest.mark.parametrize(
    ("work", "folder"),
    [
        ("stages", "file:///etc/jobs/stages"),
        ("/var/tmp/文 b", "file:///var/tmp/文 b"),
        ("/var/tmp/a%20[b]", "file:///var/tmp/a%20[b]"),
        ("/var/a://b", "file:///var/a:/b"),
        ("file:///var/tmp/a%20b", "file:///var/tmp/a%20b"),
        ("hdfs://host/d", "hdfs://host/d"),
    ],
)
def test_the_folder_of_stages_is_beside_the_settings_unless_it_says_otherwise(work: str, folder: str) -> None:
    places = {"database": "crawl", "collection": "pages"}
    table = {"source": {**places, "fields": ["body"]}, "target": places, "engine": {"work": work}}
    assert check_settings(table, "test", Path("/etc/jobs")).engine.work_folder == folder


@pytest.mark.parametrize("name", ["[a]:b", "a:b/*", "a:b/?", "{a}/b:", "a\\b:"])
def test_a_folder_of_stages_that_spark_cannot_read_is_refused(name: str) -> None:
    for folder in (f"/var/tmp/{name}", f"hdfs://host:9000/{name}"):
        with pytest.raises(ConfigError, match=r"^\[engine\] work: .*has a colon and one of") as caught:
            assert settings(engine={"work": folder}).engine.work_folder
        assert folder in str(caught.value)
    assert settings(engine={"work": "hdfs://host:9000/[a]"}).engine.work_folder == "hdfs://host:9000/[a]"


def test_the_environment_changes_the_file_and_the_command_line_changes_both(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(f"{SMALLEST}\n[match]\nmin_similarity = 0.5\ncache_mb = 7\n", "utf-8")
    monkeypatch.setenv("DEDUP_MATCH_MIN_SIMILARITY", "0.6")
    monkeypatch.setenv("DEDUP_LIMITS_BATCH_RECORDS", "123")
    monkeypatch.setenv("DEDUP_SOURCE_FIELDS", '["title", "body"]')

    loaded = load_settings(file, ["match.min_similarity=0.7", "target.collection=kept"])

    assert (loaded.match.min_similarity, loaded.match.cache_mb) == (0.7, 7)
    assert (loaded.limits.batch_records, loaded.source.fields) == (123, ("title", "body"))
    assert loaded.target.collection == "kept", "a text needs no quotes"
    assert with_values(loaded, "engine", workers=3).overrides == (
        "match.min_similarity (DEDUP_MATCH_MIN_SIMILARITY)",
        "source.fields (DEDUP_SOURCE_FIELDS)",
        "limits.batch_records (DEDUP_LIMITS_BATCH_RECORDS)",
        "match.min_similarity (--set)",
        "target.collection (--set)",
    )


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("source.filter={}", "{}"),
        ('source.filter={"a": 1}', '{"a": 1}'),
        ("source.collection=2024-05-01", "2024-05-01"),
        ("target.database=7", "7"),
        ('target.database="7"', "7"),
        ("report.group_by=true", "true"),
        ("recipe.idf_table=7", "{folder}/7"),
    ],
)
def test_a_text_from_the_command_line_needs_no_quotes_although_it_is_toml(
    file: Path, assignment: str, value: str
) -> None:
    file.write_text(SMALLEST, "utf-8")
    loaded = load_settings(file, [assignment])
    section, key = assignment.partition("=")[0].split(".")
    assert str(getattr(getattr(loaded, section), key)) == value.replace("{folder}", str(file.parent))


@pytest.mark.parametrize("assignment", ["match", "match=1", "match.radius", ".radius=1", "match.=1"])
def test_a_malformed_assignment_is_named_without_its_value(file: Path, assignment: str) -> None:
    file.write_text(SMALLEST, "utf-8")
    with pytest.raises(UsageError, match=r"^--set: expected SECTION.KEY=VALUE"):
        load_settings(file, [assignment])


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("match.radis=3", "[match] radis: unknown key, did you mean radius?"),
        ("match.radius=many", '[match] radius: expected a whole number, not "many"'),
        ("match.radius=3\nband_radius = 2", "[match] radius: expected a whole number"),
        ("match.radius=" + "9" * 6_000, "[match] radius: expected a whole number"),
        ("match.within=" + "[" * 3_000 + "]" * 3_000, "[match] within: expected a list"),
    ],
)
def test_a_wrong_assignment_is_told_like_a_wrong_setting(file: Path, assignment: str, message: str) -> None:
    file.write_text(SMALLEST, "utf-8")
    with pytest.raises(ConfigError) as caught:
        load_settings(file, [assignment])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "rule",
    [
        "biggest",
        "longest ",
        7,
        {"field": "score"},
        {"order": "newest"},
        {"field": "score", "order": "longest"},
        {"field": "a..b", "order": "newest"},
        {"field": "", "order": "newest"},
        {"field": "score", "order": "ascending", "more": 1},
    ],
)
def test_an_unknown_rule_is_refused_with_the_rules_there_are(rule: object) -> None:
    with pytest.raises(ConfigError, match=r"\[match\] prefer: expected rules such as \"longest\", .*, not "):
        settings(match={"prefer": [rule]})


def test_rules_are_a_list() -> None:
    with pytest.raises(ConfigError, match=r"\[match\] prefer: expected a list of rules: .*, not \"longest\""):
        settings(match={"prefer": "longest"})


def test_rules_are_part_of_the_recipe_and_an_empty_list_is_the_default() -> None:
    rules = ["longest", {"field": "meta.score", "order": "ascending"}, "newest"]
    recipe = make_recipe(settings(match={"prefer": rules}))
    assert recipe.matching.prefer == (
        PreferRule("longest"),
        PreferRule("ascending", "meta.score"),
        PreferRule("newest"),
    )
    plain = make_recipe(settings())
    assert make_recipe(settings(match={"prefer": []})).digest == plain.digest != recipe.digest


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("mark", {"field": "a\0b"}),
        ("source", {"fields": ["body", "a\0b"]}),
        ("report", {"directory": "a\0b"}),
        ("report", {"show": ["a\0b"]}),
        ("recipe", {"idf_table": "a\0b"}),
    ],
)
def test_a_text_with_a_nul_is_refused(section: str, values: dict[str, Any]) -> None:
    assert "expected a text without the character U+0000" in fault(**{section: values})


@pytest.mark.parametrize(
    ("condition", "name"),
    [
        ({"$sampleRate": 0.5}, "$sampleRate"),
        ({"$expr": {"$lt": [{"$rand": {}}, 0.5]}}, "$rand"),
        ({"$or": [{"$expr": {"$lt": ["$at", "$$NOW"]}}]}, "$$NOW"),
    ],
)
def test_a_filter_whose_result_varies_is_refused(condition: dict[str, Any], name: str) -> None:
    message = fault(source={"filter": json.dumps(condition)})
    assert f"a filter that always gives the same result, without {name}" in message


@pytest.mark.parametrize("value", ['{"$numberLong": "99999999999999999999"}', "9" * 22, '"\\ud800"'])
def test_a_filter_with_a_value_that_bson_cannot_hold_is_refused(value: str) -> None:
    assert "a filter in extended JSON" in fault(source={"filter": f'{{"a": {value}}}'})


@pytest.mark.parametrize("name", ["connect_seconds", "retry_seconds", "record_seconds"])
def test_a_time_of_centuries_is_refused(name: str) -> None:
    assert f"[limits] {name}: expected" in fault(limits={name: 1e300})


def test_a_resource_that_is_no_file_is_refused_without_reading_it() -> None:
    with pytest.raises(ConfigError, match="/dev/zero: not a regular file"):
        make_recipe(settings(recipe={"idf_table": "/dev/zero"}))


def test_a_resource_whose_path_is_too_long_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match=r"\[recipe\] stop_words: .*File name too long"):
        make_recipe(settings(recipe={"stop_words": "/tmp/" + "a" * 300}))
