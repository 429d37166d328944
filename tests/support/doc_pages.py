"""Run a page of the docs: its settings, commands and mongosh snippets, in the order of the page."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from scripts.bench.load_sample import load
from scripts.dev.local_mongod import LocalMongod
from scripts.dev.run_tutorial import RUN_ID, prepare_folder
from tests.support.job import ROOT
from tests.support.settings_toml import settings_toml
from tests.support.waiting import HANG_SECONDS
from tests.support.warm_program import WarmProgram

SAMPLE = ROOT / "docs" / "sample" / "pages.jsonl"
NEW_PAGES = ROOT / "docs" / "sample" / "new-pages.jsonl"
# A fenced block, some indented lines (an output), or a whole command within a sentence.
PART = re.compile(
    r"^```(?P<kind>\w*)\n(?P<code>.*?)^```$"
    r"|(?P<output>(?:^ {4}[^\n]*\n(?:\n(?= {4}))?)+)"
    r"|`(?P<command>dedup-job [^`]*\s-c\s[^`]*)`",
    re.DOTALL | re.MULTILINE,
)
# The functions of mongosh that pages use. They collect commands, which are sent afterwards.
MONGOSH = """
const sent = [];
let database = "shop";
const send = command => { sent.push({database, command}); };
const passwordPrompt = () => "secret";
const db = {
  createRole: ({role, ...rest}) => send({createRole: role, ...rest}),
  grantRolesToUser: (user, roles) => send({grantRolesToUser: user, roles}),
  createUser: ({user, ...rest}) => send({createUser: user, ...rest}),
  createView: (name, source, pipeline) => send({create: name, viewOn: source, pipeline}),
  currentOp: filter => { database = "admin"; send({currentOp: 1, ...filter}); },
  pages: {createIndex: key => send({createIndexes: "pages", indexes: [{key, name: "index of the page"}]})},
  pages_archive: {aggregate: pipeline => send({aggregate: "pages_archive", pipeline, cursor: {}})},
};
"""


@dataclass(frozen=True)
class Part:
    """A part of a page: `sh`, `toml`, `js` or another language, or `output`."""

    kind: str
    text: str


def parts(page: str) -> Iterator[Part]:
    """Yield what can be run, and the outputs, in the order of the page."""
    for found in PART.finditer(page):
        if found["output"]:
            yield Part("output", re.sub(r"^ {4}", "", found["output"], flags=re.MULTILINE))
        elif found["command"]:
            yield Part("sh", found["command"].replace("\n", " ") + "\n")
        else:
            yield Part(found["kind"], found["code"])


@dataclass
class Desk:
    """A folder with `shop.toml`, and the database `shop` with the records of the tutorial."""

    server: LocalMongod
    client: MongoClient[dict[str, Any]]
    program: WarmProgram
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.environment = prepare_folder(self.folder)
        self.environment["PATH"] = f"{self.program.folder}:{self.environment['PATH']}"
        self.client.drop_database("shop")
        for user in self.client.admin.command("usersInfo", filter={"user": {"$ne": "root"}})["users"]:
            self.client.admin.command("dropUser", user["user"])
        self.client.admin.command("dropAllRolesFromDatabase")
        load(SAMPLE, self.server.uri)
        self.apply(
            '[source]\ndatabase = "shop"\ncollection = "pages"\nfields = ["body"]\n'
            '[target]\ndatabase = "shop"\ncollection = "pages_unique"\n[engine]\nworkers = 1\n'
        )

    def apply(self, toml: str) -> None:
        """Change settings; the file is written anew."""
        for section, values in tomllib.loads(toml).items():
            table = self.settings.get(section)
            self.settings[section] = table | values if isinstance(table, dict) else values
        (self.folder / "shop.toml").write_text(settings_toml(self.settings), "utf-8")

    def run(self, script: str, typed: str = "") -> str:
        """Run lines of shell, and return their output.

        Args:
            script: The lines. Every command must end with exit code 0. The newest run takes the place of
                a run that they name.
            typed: What a person types at the terminal, which is standard input.

        Raises:
            AssertionError: If a command fails.
        """
        script = RUN_ID.sub(lambda _: self._newest_run(), script)
        # `init` never overwrites a file.
        script = re.sub(r"^dedup-job init", "rm -f shop.toml; dedup-job init", script, flags=re.MULTILINE)
        keyboard, terminal = os.openpty()
        try:
            os.write(keyboard, typed.encode())
            done = subprocess.run(
                ["bash", "-e", "-x", "-o", "pipefail", "-c", script],
                stdin=terminal,
                cwd=self.folder,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=2 * HANG_SECONDS,
                check=False,
            )
        finally:
            os.close(keyboard)
            os.close(terminal)
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        # The terminal shows what is typed, and its newline.
        return (done.stdout + done.stderr).replace(f"{self.folder}/", "").replace("[y/N]: ", "[y/N]:\n")

    def run_js(self, code: str) -> None:
        """Run a snippet of mongosh: the server's JavaScript evaluates it, and the commands follow."""
        body = re.sub(r"^use (\w+)$", r'database = "\1"', code, flags=re.MULTILINE)
        function = {"body": f"function() {{ {MONGOSH}\n{body}\nreturn sent }}", "args": [], "lang": "js"}
        (found,) = self.client.admin.aggregate(
            [{"$documents": [{}]}, {"$project": {"sent": {"$function": function}}}]
        )
        assert found["sent"]
        for each in found["sent"]:
            self.client[each["database"]].command(each["command"])

    def _newest_run(self) -> str:
        runs = [row for name in self._ledgers() for row in self.client["shop"][name].find()]
        return str(max(runs, key=lambda row: row["_id"])["_id"])

    def _ledgers(self) -> list[str]:
        return self.client["shop"].list_collection_names(filter={"name": {"$regex": r"\.dedup\.runs$"}})


def run_page(
    page: str, desk: Desk, prepare: Callable[[], None], typed: str, skip: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """Run a page, and yield each output on it with everything that the commands above it printed.

    Args:
        page: The text of the page.
        desk: Where it runs.
        prepare: Called before the first command; the settings above it are in force.
        typed: What a person types in each block of commands.
        skip: Says whether a line of shell is left out.
    """
    printed = ""
    is_prepared = False
    for part in parts(page):
        if part.kind == "toml":
            desk.apply(part.text)
        elif part.kind == "js":
            desk.run_js(part.text)
        elif part.kind == "sh":
            lines = part.text.replace("\\\n", " ").splitlines()
            if not is_prepared:
                prepare()
            is_prepared = True
            printed += desk.run("\n".join(line for line in lines if not skip(line)), typed)
        elif part.kind == "output":
            yield part.text, printed
