"""The `mongod` of MongoDB 7.0 takes the options of any other, and is the first on PATH."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from scripts.dev import local_mongod7, soak
from scripts.dev.local_mongod import ServerError, find_mongod
from scripts.dev.local_mongod7 import main, use_mongod7, write_mongod


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder whose Wine prints what it is asked to run, a word a line."""
    folder = tmp_path / "a folder"
    wine = folder / "root/usr/lib/wine/wine64"
    wine.parent.mkdir(parents=True)
    wine.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    wine.chmod(0o755)
    write_mongod(folder)
    (folder / ".installed").touch()
    monkeypatch.setattr(local_mongod7, "FOLDER", folder)
    monkeypatch.setenv("PATH", os.environ["PATH"])
    monkeypatch.setenv("DEDUP_TEST_URI", "mongodb://example.org/")
    return folder


def test_the_options_of_a_linux_mongod_are_passed_on_as_windows_needs_them(installed: Path) -> None:
    options = ["--dbpath", "/a b/db", "--nounixsocket", "--keyFile", "key", "--port", "1"]
    done = subprocess.run([installed / "bin/mongod", *options], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        str(installed / "mongod.exe"), "--dbpath", "Z:/a b/db", "--keyFile", "key", "--port", "1",
    ]  # fmt: skip


def test_it_is_found_before_any_other_mongod_and_a_given_server_is_not_used(installed: Path) -> None:
    use_mongod7()
    assert find_mongod() == installed / "bin/mongod"
    assert "DEDUP_TEST_URI" not in os.environ


def test_where_it_cannot_be_installed_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(local_mongod7, "FOLDER", tmp_path / "mongod7")
    monkeypatch.setenv("PATH", "")
    assert main(["mongod"]) == 69
    said = capsys.readouterr().err
    assert said.startswith("local_mongod7: MongoDB 7.0 cannot be installed: ")
    assert "apt-get" in said
    assert said.count("\n") == 1


def test_an_installation_that_was_broken_off_is_begun_again(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (installed / ".installed").unlink()

    def fail(folder: Path) -> None:
        assert list(folder.iterdir()) == []
        raise ServerError("no package")

    monkeypatch.setattr(local_mongod7, "install", fail)
    for _ in range(2):
        with pytest.raises(ServerError):
            use_mongod7()


def test_campaigns_on_it_are_shortened_and_have_lines_of_their_own(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scales: list[float] = []

    def campaigns(chosen: list[soak.Campaign], scale: float, _seed: int) -> list[object]:
        scales.append(scale)
        return [(one, f"| {one.about} | 1 |", soak.Damage()) for one in chosen]

    monkeypatch.setattr(soak, "soak", campaigns)
    monkeypatch.setattr(soak, "TABLE", tmp_path / "soak.md")
    for options in ([], ["--mongod7"], ["--mongod7", "--scale", "0.5"]):
        assert soak.main(["--only", "kills", *options]) == 0
    assert scales == [1.0, soak.MONGOD7_SCALE, 0.5]
    lines = [line for line in soak.TABLE.read_text().splitlines() if "kill -9" in line]
    assert lines == [
        "| `kill -9` at a random moment | 1 |",
        "| MongoDB 7.0: `kill -9` at a random moment | 1 |",
    ]
