"""A job between two collections of a test database, run in this process or as a command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection
from pymongo.database import Database

from dedup_job import config
from dedup_job.commands import verify
from dedup_job.commands.backfill_and_run import decide
from dedup_job.mongo.connect_and_retry import RetryPolicy
from dedup_job.mongo.retrying_collection import RetryingCollection
from dedup_job.pipeline.command_context import Context
from dedup_job.report.run_summary import RunSummary
from dedup_job.report.verify_result import VerifyResult
from tests.support.forked_commands import Forks
from tests.support.settings_toml import settings_toml
from tests.support.waiting import HANG_SECONDS

ROOT = Path(__file__).parents[2]
RAW: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)
PROGRAM = ("-m", "dedup_job")
LEDGER = ("head", "plans", "dropped", "exceptions", "runs", "overrides", "left")


def retrying(collection: Collection[Any]) -> RetryingCollection:
    """The collection as commands use it."""
    return RetryingCollection(collection, "the test", RetryPolicy())


@dataclass
class Job:
    """Source `pages`, target `unique`, and the settings of the job between them."""

    database: Database[Any]
    uri: str
    folder: Path
    forks: Callable[[], Forks] | None = None
    tables: dict[str, Any] = field(default_factory=dict)
    has_copies: bool = True

    def __post_init__(self) -> None:
        self.tables = self.tables or {
            "source": {"database": self.database.name, "collection": "pages", "fields": ["text"]},
            "target": {"database": self.database.name, "collection": "unique"},
            "limits": {
                "batch_records": 50,
                "allow_plaintext": "DEDUP_TEST_URI" in os.environ,
            },
            "engine": {"workers": 2},
        }

    @property
    def source(self) -> Collection[Any]:
        return self.database["pages"]

    @property
    def target(self) -> Collection[Any]:
        return self.database["unique"]

    def ledger(self, name: str) -> Collection[Any]:
        beside = "unique" if self.has_copies else "pages"
        return self.database[f"{beside}.dedup.{name}"]

    def without_copies(self) -> Job:
        """Return a job on the same source that copies nothing; its ledger is beside the source."""
        return replace(self, has_copies=False, tables=self.tables | {"target": {"copy": False}})

    def set(self, section: str, **values: Any) -> None:
        self.tables.setdefault(section, {}).update(values)

    @contextmanager
    def hasty(self) -> Iterator[None]:
        """Give up an unreachable server immediately; only for tests whose server is really gone."""
        limits = dict(self.tables["limits"])
        self.set("limits", connect_seconds=0.3, retry_seconds=0.5)
        try:
            yield
        finally:
            self.tables["limits"] = limits

    def context(self) -> Context:
        """The open connections of a command with these settings."""
        return Context(config.check_settings(self.tables, "test"))

    def decide(self, mode: str) -> RunSummary:
        with self.context() as context:
            return decide(context, mode, lambda plan: None)

    def verified(self) -> VerifyResult:
        """Return what `verify` says about everything."""
        with self.context() as context:
            return verify.verify(context, None, lambda number: None)

    def differences(self) -> dict[str, int]:
        """Return the number of differences that `verify` finds, by their kind."""
        return {one.kind: one.count for one in self.verified().differences}

    def config_file(self) -> Path:
        path = self.folder / "job.toml"
        path.write_text(settings_toml(self.tables), "utf-8")
        return path

    def command(
        self,
        *arguments: str,
        environment: dict[str, str] | None = None,
        program: tuple[str, ...] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a child of a warm process, or with its own `program` in a fresh interpreter.

        With `--json` the last line must have the exit code of the process.
        """
        ended = self._start(arguments, environment, program)
        if "--json" in arguments and (found := re.search(r'"exit_code": (\d+)}\n\Z', ended.stdout)):
            assert int(found[1]) == ended.returncode, ended.stdout
        return ended

    def _start(
        self,
        arguments: tuple[str, ...],
        environment: dict[str, str] | None,
        program: tuple[str, ...] | None,
    ) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "DEDUP_SOURCE_URI": self.uri, **(environment or {})}
        arguments = (*arguments, "-c", str(self.config_file()))
        if self.forks is not None and program is None:
            forks = self.forks()
            forks.start(arguments, environment)
            ended = forks.ended()
            return subprocess.CompletedProcess(arguments, ended.code, ended.printed, ended.said)
        return subprocess.run(
            [sys.executable, *(program or PROGRAM), *arguments],
            capture_output=True,
            text=True,
            env=environment,
            timeout=HANG_SECONDS,
            cwd=ROOT,
            check=False,
        )

    def outcome(self) -> tuple[dict[bytes, bytes], dict[Any, Any], dict[Any, Any]]:
        """Return the result of a run: the target's bytes, and the rows on dropped records and exceptions."""
        target = {document.raw[:64]: bytes(document.raw) for document in self.target.with_options(RAW).find()}
        return target, self.rows("dropped"), self.rows("exceptions")

    def hash(self) -> str:
        """Return a digest of the whole database, which any write changes."""
        digest: str = self.database.command("dbHash")["md5"]
        return digest

    def plans(self) -> list[dict[str, Any]]:
        """Return the plans of the ledger, without values that differ from run to run."""
        unstable = {"run", "at", "_id", "previous", "sha256"}
        return [
            {name: value for name, value in plan.items() if name not in unstable}
            for plan in self.ledger("plans").find(sort=[("_id", 1)])
        ]

    def rows(self, name: str) -> dict[Any, Any]:
        """Return the rows of a ledger collection by id, without values that differ from run to run."""
        return {
            repr(row.pop("_id")): {key: value for key, value in row.items() if key not in ("run", "at")}
            for row in self.ledger(name).find()
        }
