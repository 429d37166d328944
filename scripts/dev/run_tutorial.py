"""Runs every command of the tutorial, and compares what it prints with the page.

    python scripts/dev/local_mongod.py -- python -m scripts.dev.run_tutorial [--write]

Commands and output are in the fenced blocks that begin with ```console; a command follows `$ `. Run ids,
times, sizes, rates and versions may differ, and a line `...` on the page may hide any lines. `--write` puts
the present output into blocks that differ, or that have only `...`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
RUN_ID = re.compile(r"\b\d{8}T\d{6}-[0-9a-f]{4}\b")
# What differs from run to run or from machine to machine.
VARIABLE = (
    (RUN_ID, "RUN"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d\+00:00)?"), "TIME"),
    (
        re.compile(r"(?<![\w.])[\d,.]+ (s|ms|seconds?|MB|GB|bytes|documents/s|decisions/s|processes)\b"),
        r"N \1",
    ),
    (re.compile(r"(dedup-job|Python|pymongo|MongoDB) \d[\w.]*"), r"\1 VERSION"),
    (re.compile(r"(RUN \w+) +\d+\.\d\b"), r"\1 N"),  # the column of seconds in `status`
    (re.compile(r"\b[0-9a-f]{12}(?=[:,])"), "DIGEST"),
    (re.compile(r" {2,}"), "  "),
)
ELLIPSIS = "..."  # a line that may hide any lines


@dataclass(frozen=True)
class Step:
    """A command of the page, and the output printed below it."""

    command: str
    output: str


def steps(page: str) -> Iterator[Step]:
    """Yield the commands of a page with their outputs, in order."""
    for block in BLOCK.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield Step(command, output)


def agrees(expected: str, actual: str) -> bool:
    """Say whether an output is as the page has it, apart from what differs from run to run."""
    parts = [
        re.escape(_normalise(part))
        for part in re.split(rf"^ *{re.escape(ELLIPSIS)}\n", expected, flags=re.MULTILINE)
    ]
    return re.fullmatch(r"(?:.*\n)*".join(parts), _normalise(actual)) is not None


def _normalise(text: str) -> str:
    for pattern, name in VARIABLE:
        text = pattern.sub(name, text)
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)


def prepare_folder(folder: Path) -> dict[str, str]:
    """Link `docs` into a folder, and return the environment in which commands of a page run there."""
    (folder / "docs").symlink_to(ROOT / "docs")
    # python -m scripts.bench.load_sample works in the folder, as in a checkout.
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PYTHONPATH": paths, "PATH": programs, "NO_COLOR": "1"}


def run_steps(page: str, folder: Path) -> Iterator[tuple[Step, str]]:
    """Run the commands of a page in a folder, and yield each with the output that it gives now.

    Args:
        page: The text of the page.
        folder: Where the commands run; it gets a link to `docs`.

    Raises:
        RuntimeError: If a command fails.
    """
    environment = prepare_folder(folder)
    runs: dict[str, str] = {}  # a run id of the page, and that of this run
    for step in steps(page):
        command = step.command
        for name in RUN_ID.findall(command):
            command = command.replace(name, runs.get(name, name))
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        runs |= zip(RUN_ID.findall(step.output), RUN_ID.findall(done.stdout), strict=False)
        yield step, done.stdout


def main() -> int:
    """Run the page, and return 1 if it differs."""
    parser = argparse.ArgumentParser(description="Run the commands of the tutorial.")
    parser.add_argument("--write", action="store_true", help="put the present output into the page")
    write = parser.parse_args().write
    page = PAGE.read_text("utf-8")
    code = 0
    with tempfile.TemporaryDirectory() as folder:
        for step, output in run_steps(page, Path(folder)):
            if agrees(step.output, output) and not (write and step.output == f"{ELLIPSIS}\n"):
                continue
            code = 1
            print(f"$ {step.command}\n--- the page has\n{step.output}--- now\n{output}")
            if write:
                old = f"$ {step.command}\n{step.output}"
                page = page.replace(old, f"$ {step.command}\n{output}", 1)
    if write:
        PAGE.write_text(page, "utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
