"""What the front page and the docs say is there, is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dedup_job.cli import commands
from dedup_job.config import Settings

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "scripts" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = {
    "dedup-job": "**dedup-job, default**",
    "rensa": "rensa RMinHash",
    "gaoya": "gaoya MinHash",
    "datasketch": "datasketch MinHashLSH",
    "the usual job": "the usual job",
}


def rows(page: Path) -> list[list[str]]:
    """The cells of all rows of all tables of a page."""
    lines = page.read_text("utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def anchors(page: Path) -> set[str]:
    """What the headings of a page can be linked by."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_the_front_page_has_120_lines_at_most() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text("utf-8")):
        if not target.startswith("https://"):
            file, _, anchor = target.partition("#")
            there = page.parent / file if file else page
            assert there.exists(), target
            assert not anchor or anchor in anchors(there), target


def test_the_figures_of_the_front_page_are_those_of_the_tables() -> None:
    measured = {(row[0], row[1]): row[4] for row in rows(ROOT / "docs" / "accuracy.md") if len(row) == 9}
    table = [row for row in rows(ROOT / "README.md") if len(row) == 4]
    sets = table[0][1:]
    assert len(sets) == 3
    figures = {row[0]: row[1:] for row in table[2:]}
    assert figures == {
        name: [measured[one, measured_name] for one in sets] for name, measured_name in NAMES.items()
    }


def test_every_command_is_on_the_front_page_and_no_other() -> None:
    named = {row[0].strip("`").split()[0] for row in rows(ROOT / "README.md") if len(row) == 2}
    assert named - {"dedup-job", "---"} == set(commands.commands)


def test_every_setting_is_in_its_section_of_the_docs() -> None:
    told = {row[0]: row[1] for row in rows(ROOT / "docs" / "settings.md")}
    for section, field in Settings.model_fields.items():
        keys = getattr(field.annotation, "model_fields")  # noqa: B009
        missing = [key for key in keys if f"`{key}`" not in told[f"`[{section}]`"]]
        assert not missing, section


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_line_of_the_front_page_makes_the_shell_complete_commands(shell: str) -> None:
    assert '"$(_DEDUP_JOB_COMPLETE=bash_source dedup-job)"' in (ROOT / "README.md").read_text("utf-8")
    asked = {"zsh": {"COMP_CWORD": "1"}, "fish": {"COMP_CWORD": "verif"}}[shell]

    def answer(what: str) -> str:
        asking = {"_DEDUP_JOB_COMPLETE": f"{shell}_{what}", "COMP_WORDS": "dedup-job verif", **asked}
        program = Path(sys.executable).with_name("dedup-job")
        done = subprocess.run(
            [program], env={**os.environ, **asking}, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert "_DEDUP_JOB_COMPLETE" in answer("source")
    assert "verify" in answer("complete")
