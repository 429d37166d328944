"""`init` writes a settings file that works, from options or from answers on a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dedup_job import config
from dedup_job.commands import init as commands
from dedup_job.mongo.connect_and_retry import RetryPolicy
from scripts.bench.corpus import generate
from tests.support.console import Console
from tests.support.faulty_runs import install
from tests.support.job import Job


@pytest.fixture
def console(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Console:
    install(monkeypatch)
    job.source.insert_many(list(generate(60, seed=5)))
    return Console(capsys, tmp_path / "new.toml")


def test_what_options_say_is_written_and_runs(job: Job, console: Console) -> None:
    place = f"{job.database.name}.pages"

    said = console("init", "--source", place, "--field", "title", "--field", "data", "--json")

    assert said.code == 0, said.err
    assert said.json == {
        "settings": str(console.settings), "source": place, "fields": ["title", "data"],
        "target": f"{place}_unique", "exit_code": 0,
    }  # fmt: skip
    assert [console("doctor").code, console("backfill").code, console("run").code] == [0, 0, 0]
    assert job.database["pages_unique"].count_documents({}) > 0
    again = console("init", "--source", place, "--field", "data")
    assert (again.code, again.out) == (64, "")
    assert f"{console.settings} exists already and was not changed" in again.err
    assert config.load_settings(console.settings).source.fields == ("title", "data")


def test_a_terminal_is_asked_with_what_the_server_has(job: Job, console: Console) -> None:
    job.database.create_collection("unique.dedup.head")
    job.target.insert_one({})
    name = job.database.name

    said = console("init", typed=f"nowhere\n{name}\n\n\nno dot\n\n\n")

    assert said.code == 0, said.err
    assert "Error: there is no nowhere" in said.err
    assert "there is: pages\n" in said.err  # neither a target nor what belongs to a ledger
    assert "  data  " in said.err
    assert "Error: expected DATABASE.COLLECTION, as in shop.pages, not 'no dot'" in said.err
    settings = config.load_settings(console.settings)
    assert (settings.source.database, settings.source.collection) == (name, "pages")
    assert settings.source.fields == ("data",)
    assert settings.target.collection == "pages_unique"
    assert settings.report.directory == console.settings.parent / "reports"
    assert said.out.endswith(f"next: dedup-job doctor -c {console.settings}\n")


def test_only_what_no_option_says_is_asked_for(job: Job, console: Console) -> None:
    said = console(
        "init",
        "--source",
        f"{job.database.name}.pages",
        "--target",
        "a.b",
        "--reports",
        "r",
        typed="title, data\n",
    )
    assert said.code == 0, said.err
    settings = config.load_settings(console.settings)
    assert settings.source.fields == ("title", "data")
    assert (settings.target.database, settings.target.collection) == ("a", "b")


@pytest.mark.parametrize("uri", ["mongodb://127.0.0.1:1/", "mongodb://user:ge/heim@127.0.0.1/", ""])
def test_without_a_server_it_asks_all_the_same(
    console: Console, monkeypatch: pytest.MonkeyPatch, uri: str
) -> None:
    monkeypatch.setenv("DEDUP_SOURCE_URI", uri)
    monkeypatch.setattr(commands, "RETRY", RetryPolicy(1.0))

    said = console("init", typed="shop\npages\ndata\n\n-\n")

    assert said.code == 0, said.err
    assert "nothing can be proposed: " in said.err
    assert "heim" not in said.err
    settings = config.load_settings(console.settings)
    assert (settings.source.collection, settings.report.directory) == ("pages", None)


@pytest.mark.parametrize(
    ("arguments", "typed", "told"),
    [
        ((), None, "there is no terminal to ask on: add --source and --field"),
        (("--source", "shop.pages"), None, "there is no terminal to ask on: add --field"),
        (("--source", "shop", "--field", "data"), None, "--source: expected DATABASE.COLLECTION"),
        ((), "shop\n", "nothing was written"),
        (("--uri-file", "~nobody-here/uri"), "shop\n", "--uri-file ~nobody-here/uri: there is no such home"),
    ],
)
def test_what_is_not_said_is_a_usage_error_and_nothing_is_written(
    console: Console, monkeypatch: pytest.MonkeyPatch, arguments: Any, typed: str | None, told: str
) -> None:
    monkeypatch.delenv("DEDUP_SOURCE_URI")
    said = console("init", *arguments, typed=typed)
    assert (said.code, said.out) == (64, "")
    assert told in said.err
    assert not console.settings.exists()


def test_the_connection_string_may_be_in_a_file_beside_the_settings(
    job: Job, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEDUP_SOURCE_URI")
    file = console.settings.with_name("source.uri")
    file.touch(0o600)
    file.write_text(job.uri)

    said = console(
        "init", "--uri-file", "source.uri", "--source", f"{job.database.name}.pages", typed="\n\n\n"
    )

    assert said.code == 0, said.err
    assert config.load_settings(console.settings).source.fields == ("data",)
    assert console("report").code == 0
