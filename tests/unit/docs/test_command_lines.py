"""Every `dedup-job` command line of README, docs and examples parses."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from dedup_job.cli import commands

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "config").glob("*.toml")),
    *sorted((ROOT / "scripts" / "nightly").iterdir()),
]
CONTROL = {"|", "||", "&&", ";", ">", ">>", "2>", "2>>", "<", "&", ")", ";;"}
WORD = re.compile(r"^[\w./${}-]*dedup-job$")


def code_lines(page: Path) -> list[str]:
    """Return the lines of a page that hold code: blocks, indented lines, and code in a sentence."""
    text = page.read_text("utf-8")
    if page.suffix != ".md":
        return [re.sub(r"^# ?", "", line) for line in text.splitlines()]
    blocks = re.findall(r"^```(?:sh|console|text)?\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^    (\S.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.M), re.M)
    inline = re.findall(r"`(dedup-job [^`]+)`", text)
    joined = "\n".join(blocks).replace("\\\n", " ")
    return [*joined.splitlines(), *indented, *inline]


def invocations(line: str) -> list[list[str]]:
    """Return the arguments of each call of dedup-job in a line of shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # no shell: an apostrophe in some output
        return []
    found: list[list[str]] = []
    current: list[str] | None = None
    for number, word in enumerate(words):
        starts = number == 0 or words[number - 1] in CONTROL | {"do", "$", "--"} or "=" in words[number - 1]
        if WORD.match(word) and (starts or "/" in word or current is None):
            current = []
            found.append(current)
        elif word in CONTROL or (set(word) <= set("|&;<>()") and word):
            current = None
        elif current is not None:
            current.append(word)
    return [call for call in found if call and (call[0] in commands.commands or "-c" in call)]


def lines_with_commands() -> list[tuple[str, str]]:
    return [
        (str(page.relative_to(ROOT)), line)
        for page in PAGES
        for line in code_lines(page)
        if re.search(r"(^|[\s/$;|(])dedup-job +[a-z]", line) and invocations(line)
    ]


def parse(arguments: list[str]) -> None:
    """Parse a call, with all options that it requires."""
    name, *rest = arguments
    command = commands.commands[name]
    # -h would print the help and exit.
    command.make_context(name, rest, parent=click.Context(commands, info_name="dedup-job"))


@pytest.mark.parametrize(("page", "line"), lines_with_commands())
def test_a_documented_command_line_parses(
    page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in invocations(line):
        if set(arguments) & {"...", "COMMAND", "ID", "RUN", "FILE", "[OPTIONS]"}:
            continue
        for word in arguments:  # some options want a file that exists
            if re.search(r"\.(toml|csv|jsonl|txt)$", word):
                (tmp_path / Path(word).name).touch()
        arguments = [Path(word).name if word.startswith("/") else word for word in arguments]
        parse(arguments)


def test_there_are_command_lines_of_every_command() -> None:
    named = {call[0] for _, line in lines_with_commands() for call in invocations(line)}
    assert named >= set(commands.commands)


def test_a_wrong_line_would_be_found() -> None:
    (call,) = invocations("X=1 dedup-job report -c shop.toml --htlm page.html > out")
    with pytest.raises(click.NoSuchOption):
        parse(call)
