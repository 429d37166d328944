"""The examples in scripts/deploy: form, settings, commands, and the page that shows one of them."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import click
import pytest

from dedup_job.cli import commands
from dedup_job.config import load_settings

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "scripts" / "deploy"
FAILS_FOR_GOOD = {5, 64, 65, 77, 78}


def calls(name: str) -> list[list[str]]:
    """Return the arguments of each call of dedup-job in a file."""
    text = (DEPLOY / name).read_text("utf-8")
    found = re.findall(r"(?<!name: )\bdedup-job ((?:[a-z]+)(?: (?:--?[a-z-]+|json|/\S+))*)", text)
    found += [one.replace(",", "") for one in re.findall(r"^ *(?:args|command): \[(.*)\]$", text, re.M)]
    return [one.split() for one in found if one.split()[0] in commands.commands]


@pytest.mark.parametrize("name", sorted(path.name for path in DEPLOY.iterdir() if path.is_file()))
def test_the_head_of_a_file_says_what_was_tried(name: str) -> None:
    if name != "dedup-job.toml":
        head = "\n".join((DEPLOY / name).read_text("utf-8").splitlines()[:8])
        assert re.search(r"\bTried: |\bNot tried: ", head)


@pytest.mark.parametrize(
    "name", ["Dockerfile", "compose.yaml", "cronjob.yaml", "backfill.yaml", "airflow_dag.py"]
)
def test_the_commands_in_a_file_parse(name: str) -> None:
    found = calls(name)
    assert found
    for command, *arguments in found:
        assert commands.commands[command].make_context(command, arguments, parent=click.Context(commands))


def test_the_health_check_is_a_command() -> None:
    (check,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text("utf-8"), re.M)
    program, command, *arguments = json.loads(check)
    assert program == "dedup-job"
    assert commands.commands[command].make_context(command, arguments, parent=click.Context(commands))


def test_the_settings_of_compose_are_valid_and_name_the_sample() -> None:
    settings = load_settings(DEPLOY / "dedup-job.toml")
    record: dict[str, Any] = json.loads((ROOT / "docs/sample/pages.jsonl").read_text("utf-8").splitlines()[0])
    assert set(settings.source.fields) <= set(record)


@pytest.mark.parametrize("name", ["cronjob.yaml", "backfill.yaml"])
def test_exit_codes_that_need_a_person_are_not_retried(name: str) -> None:
    (codes,) = re.findall(r"values: \[(.*)\]", (DEPLOY / name).read_text("utf-8"))
    assert set(map(int, codes.split(","))) == FAILS_FOR_GOOD


def start_nightly_command(folder: Path, program: str) -> subprocess.Popen[str]:
    """Start the command of the nightly run, with a shell script in place of dedup-job."""
    (block,) = re.findall(r"- -c\n +- \|\n((?: {18}.*\n)+)", (DEPLOY / "cronjob.yaml").read_text("utf-8"))
    script = folder / "dedup-job"
    script.write_text(f"#!/bin/sh\n{program}\n")
    script.chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    return subprocess.Popen(
        ["/bin/sh", "-c", textwrap.dedent(block)],
        env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (3, 0), (75, 0), (74, 74), (78, 78)])
def test_the_nightly_run_turns_only_3_and_75_into_0(tmp_path: Path, code: int, expected: int) -> None:
    with start_nightly_command(tmp_path, f"exit {code}") as shell:
        assert shell.wait() == expected


def test_the_nightly_run_passes_sigterm_on_and_ends_with_the_code_of_the_job(tmp_path: Path) -> None:
    job = "trap 'kill $!; exit 42' TERM; sleep 600 > /dev/null & echo started; wait $!"
    with start_nightly_command(tmp_path, job) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == "started\n"
        shell.terminate()
        assert shell.wait() == 42


def test_the_page_shows_the_nightly_run_as_it_is_in_the_file() -> None:
    page = (ROOT / "docs" / "how-to" / "run-in-kubernetes.md").read_text("utf-8")
    (shown,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert (DEPLOY / "cronjob.yaml").read_text("utf-8").endswith(shown)


def test_the_example_of_airflow_is_python() -> None:
    ast.parse((DEPLOY / "airflow_dag.py").read_text("utf-8"))
