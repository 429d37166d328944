"""README and docs agree with the code: links, figures, settings and commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from itertools import groupby
from pathlib import Path

import pytest

from dedup_job.cli import commands
from dedup_job.config import Settings, check_settings, keys_of
from dedup_job.errors import DedupError
from scripts.dev import docs_reference, docs_settings

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
LINKING = [*PAGES, ROOT / "scripts" / "README.md"]
NAMES = {
    "dedup-job": "**dedup-job, default**",
    "rensa": "rensa RMinHash",
    "gaoya": "gaoya MinHash",
    "datasketch": "datasketch MinHashLSH",
    "the usual job": "the usual job",
}
GENERATED = ("commands", "settings")  # pages whose lines are not wrapped
EXIT_CODES = {3, 5, 64, 65, 69, 70, 74, 75, 77, 78}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def rows(page: Path) -> list[list[str]]:
    """Return the cells of all rows of all tables of a page."""
    lines = page.read_text("utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def prose(page: Path) -> list[str]:
    """Return the paragraphs and list items of a page, without code, tables and headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    items = re.sub(r"^(?=- |\d+\. )", "\n", text, flags=re.MULTILINE)
    blocks = [part.strip("\n") for part in re.split(r"\n\s*\n", items)]
    return [block for block in blocks if block and not block.startswith(("    ", "|", "#", "<!--"))]


def test_the_front_page_has_100_lines_at_most() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 100


def test_the_changelog_has_one_section_of_a_page() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.findall(r"^## (.*)$", changelog, re.MULTILINE) == ["1.0.0"]
    assert len(changelog.splitlines()) <= 60


@pytest.mark.parametrize("page", LINKING, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text("utf-8")):
        if not target.startswith("https://"):
            file, _, anchor = target.partition("#")
            there = page.parent / file if file else page
            assert there.exists(), target
            assert not anchor or anchor in anchors(there), target


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_paragraph_has_four_short_lines_at_most(page: Path) -> None:
    blocks = [] if page.stem in GENERATED else prose(page)
    assert [block for block in blocks if len(block.splitlines()) > 4] == []
    assert [line for block in blocks for line in block.splitlines() if len(line) > 120] == []


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE))
    assert named == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}


def test_the_figures_of_the_front_page_are_in_the_table_of_accuracy() -> None:
    accuracy = DOCS / "explanation" / "accuracy.md"
    measured = {(row[0], row[1]): row[4] for row in rows(accuracy) if len(row) == 9}
    table = [row for row in rows(ROOT / "README.md") if len(row) == 4]
    sets = table[0][1:]
    assert len(sets) == 3
    figures = {row[0]: row[1:] for row in table[2:]}
    assert figures == {
        name: [measured[one, measured_name] for one in sets] for name, measured_name in NAMES.items()
    }


def test_the_front_page_names_the_setting_for_numbers() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    (toml,) = re.findall(r"```toml\n(.*?)```", readme, re.DOTALL)
    numbers = tomllib.loads(toml)["match"]["numbers"]
    assert settings_with("match", "numbers", numbers).match.numbers == "distinguish"
    assert "60 %" in readme


@pytest.mark.parametrize("page", docs_reference.pages())
def test_a_generated_page_is_up_to_date(page: str) -> None:
    written = (DOCS / "reference" / page).read_text("utf-8")
    assert docs_reference.pages()[page] == written, "run: python -m scripts.dev.docs_reference"


def test_every_setting_and_no_other_has_a_meaning() -> None:
    keys = {section: set(keys_of(docs_reference.section_model(section))) for section in Settings.model_fields}
    assert {section: set(meanings) for section, meanings in docs_settings.MEANINGS.items()} == keys
    assert set(docs_settings.SECTIONS) == set(keys)


def settings_with(section: str, key: str, value: object) -> Settings:
    """Check a small settings file with one more setting."""
    tables: dict[str, dict[str, object]] = {
        "source": {"database": "shop", "collection": "pages", "fields": ["body"]},
        "target": {"database": "shop", "collection": "pages_unique"},
    }
    table = {"database": "shop", "collection": "tests", key: value}
    if section == "reference":
        return check_settings({**tables, "reference": [table]}, "shop.toml")
    tables.setdefault(section, {})[key] = value
    return check_settings(tables, "shop.toml")


@pytest.mark.parametrize("section", docs_settings.MEANINGS)
def test_the_examples_of_settings_are_valid(section: str) -> None:
    for key, (_, example) in docs_settings.MEANINGS[section].items():
        settings_with(section, key, tomllib.loads(f"{key} = {example}")[key])


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_settings_on_a_page_exist(page: Path) -> None:
    known = {(section, key) for section, keys in docs_settings.MEANINGS.items() for key in keys}
    named = re.findall(
        r"`\[(source|target|clean|recipe|match|engine|limits|report)\] ([a-z_]+)", page.read_text("utf-8")
    )
    assert {pair for pair in named if pair not in known} == set()
    for toml in re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
        for section, tables in tomllib.loads(toml).items():
            for table in tables if isinstance(tables, list) else [tables]:
                for key, value in table.items():
                    settings_with(section, key, value)


def test_every_exit_code_has_a_row_and_a_section() -> None:
    kinds = [DedupError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    codes = {code for kind in kinds if isinstance(code := getattr(kind, "exit_code", None), int)}
    assert codes | {3} == EXIT_CODES
    table = {
        code for row in rows(DOCS / "reference" / "exit-codes.md") for code in re.findall(r"\d+", row[0])
    }
    page = (DOCS / "how-to" / "recover-from-exit-codes.md").read_text("utf-8")
    sections = {code for line in re.findall(r"^## (.*?):", page, re.MULTILINE) for code in line.split(", ")}
    assert sections >= set(map(str, EXIT_CODES))
    assert table == sections | {"0"}


def test_the_defaults_of_guards_are_those_of_the_settings() -> None:
    limits = settings_with("limits", "batch_mb", 16).limits
    page = DOCS / "how-to" / "recover-from-exit-codes.md"
    shown = {row[0].strip("`"): row[1] for row in rows(page) if row[0].startswith("`max_")}
    assert len(shown) == 5
    assert shown == {key: str(getattr(limits, key) or "none") for key in shown}


@pytest.mark.parametrize("page", LINKING, ids=name)
def test_files_and_modules_on_a_page_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    paths = re.findall(r"`((?:tests|scripts|dedup_job|docs|config)/[\w/.-]*)`", text)
    paths += [f"dedup_job/{path}" for path in re.findall(r"`((?:native|index)/\w+\.py)`", text)]
    modules = re.findall(r"python -m ((?:scripts|tests)[.\w]*\w)(?=[\s`])", text)
    paths += [f"{module.replace('.', '/')}.py" for module in modules if module != "scripts.NAME"]
    tests = {file.name for file in (ROOT / "tests").rglob("test_*.py")}
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert set(re.findall(r"`(test_\w+\.py)`", text)) <= tests


def test_every_command_is_in_some_how_to() -> None:
    text = "\n".join(page.read_text("utf-8") for page in (DOCS / "how-to").glob("*.md"))
    missing = [command for command in commands.commands if f"dedup-job {command}" not in text]
    assert missing == []


def test_a_page_has_a_title_of_its_own() -> None:
    titles = sorted(page.read_text("utf-8").splitlines()[0] for page in DOCS.rglob("*.md"))
    assert all(title.startswith("# ") for title in titles)
    assert [title for title, pages in groupby(titles) if len(list(pages)) > 1] == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_documented_line_makes_the_shell_complete_commands(shell: str) -> None:
    install = (DOCS / "how-to" / "install.md").read_text("utf-8")
    assert '"$(_DEDUP_JOB_COMPLETE=bash_source dedup-job)"' in install
    request = {"zsh": {"COMP_CWORD": "1"}, "fish": {"COMP_CWORD": "verif"}}[shell]

    def complete(instruction: str) -> str:
        variables = {
            "_DEDUP_JOB_COMPLETE": f"{shell}_{instruction}",
            "COMP_WORDS": "dedup-job verif",
            **request,
        }
        program = Path(sys.executable).with_name("dedup-job")
        done = subprocess.run(
            [program], env={**os.environ, **variables}, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert "_DEDUP_JOB_COMPLETE" in complete("source")
    assert "verify" in complete("complete")
