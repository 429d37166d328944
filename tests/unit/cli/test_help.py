"""The help: commands in sections, whole summaries, and examples that can be pasted."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from dedup_job.cli import commands
from dedup_job.cli.all_commands import SECTIONS

# The commands that start as many worker processes as the settings say.
WITH_WORKERS = {"backfill", "run", "report", "history", "estimate", "sync", "tune", "evaluate", "fit-idf"}


def test_the_help_loads_neither_the_driver_nor_compiled_code() -> None:
    # They take more than a second, and the fork server must start before they load: see `preload_workers`.
    heavy = {"numba", "numpy", "pydantic", "pymongo"}
    loaded = f"import sys, dedup_job.run_and_exit; print(sorted({heavy} & {{*sys.modules}}))"
    run = subprocess.run([sys.executable, "-c", loaded], capture_output=True, check=True, text=True)
    assert run.stdout == "[]\n"


def test_each_command_is_in_one_section() -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(commands.commands)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_help_shows_each_summary_in_full(width: int) -> None:
    shown = CliRunner().invoke(commands, ["--help"], terminal_width=width).output
    words = " ".join(shown.split())
    for name, command in commands.commands.items():
        summary = " ".join(inspect.cleandoc(command.help or "").partition("\n\n")[0].split())
        assert f"{name} {summary.partition('. ')[0].rstrip('.')}." in words, name


@pytest.mark.parametrize("name", commands.commands)
def test_the_help_of_a_command_has_an_example_that_can_be_pasted(name: str) -> None:
    command = commands.commands[name]
    (examples,) = re.findall(r"Examples?.*:\n((?:.+\n?)+)", inspect.cleandoc(command.help or ""))
    lines = [line.strip() for line in examples.splitlines() if "dedup-job" in line]
    calls = [shlex.split(line.rpartition("dedup-job ")[2].partition(" > ")[0].strip("| ")) for line in lines]
    assert any(line.startswith("dedup-job ") or "=" in line or "|" in line for line in lines)
    for called, *arguments in calls:
        assert commands.commands[called].make_context(called, arguments, parent=click.Context(commands))
    assert name in {called for called, *_ in calls}


@pytest.mark.parametrize("name", commands.commands)
def test_every_option_has_a_help(name: str) -> None:
    options = [one for one in commands.commands[name].params if isinstance(one, click.Option)]
    assert [option.opts for option in options if not option.help] == []


@pytest.mark.parametrize("name", commands.commands)
def test_no_line_of_a_help_is_wider_than_a_terminal(name: str) -> None:
    shown = CliRunner().invoke(commands, [name, "--help"], terminal_width=80).output
    # Examples may be wider: a line to paste is not broken.
    assert [line for line in shown.splitlines() if len(line) > 80 and "dedup-job" not in line] == []


@pytest.mark.parametrize("name", commands.commands)
def test_only_commands_that_start_workers_have_a_number_of_workers(name: str) -> None:
    options = {option for parameter in commands.commands[name].params for option in parameter.opts}
    assert ("--workers" in options) == (name in WITH_WORKERS)


def test_the_same_words_mean_the_same_everywhere() -> None:
    options = {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in commands.commands.items()
    }
    assert {name for name in options if "--dry-run" in options[name]} == {
        "undo", "sync", "mark", "sweep", "promote",
    }  # fmt: skip
    assert {name for name in options if "--save-pairs" in options[name]} == {"report", "history"}
    assert not any({"--pairs", "--apply", "--of"} & own for own in options.values())
