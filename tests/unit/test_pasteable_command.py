"""A command that a message names carries the `-c` of the command that prints it."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from dedup_job.cli.options import CONFIG_OPTION
from dedup_job.pasteable_command import command_line


@click.command("fake")
@CONFIG_OPTION
def named(config: Path) -> str:
    return command_line("sweep --archive NAME")


@pytest.mark.parametrize(
    ("given", "file"),
    [([], ""), (["-c", "shop.toml"], " -c shop.toml"), (["--config", "my shop.toml"], " -c 'my shop.toml'")],
)
def test_it_carries_the_settings_file_of_the_command_line(given: list[str], file: str) -> None:
    assert named(given, standalone_mode=False) == f"dedup-job sweep{file} --archive NAME"


def test_it_leaves_out_a_file_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEDUP_CONFIG", "shop.toml")
    assert named([], standalone_mode=False) == "dedup-job sweep --archive NAME"


def test_a_program_that_is_no_command_gets_it_without_a_file() -> None:
    assert command_line("run") == "dedup-job run"
