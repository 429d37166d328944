"""Stage files in the work folder, so that a killed backfill resumes after its last complete stage."""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dedup_job.errors import ConfigError, Stopped
from dedup_job.signals import SHUTDOWN
from dedup_job.spark.session import named_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_A_FILE = 20_000  # of a stage with folders, which the driver reads file by file
FORMAT = 3  # raised when the same stage would hold something else

log = logging.getLogger("dedup_job")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is known of a whole stage.

    about     what its records come from, and by which recipe they are fingerprinted
    snapshot  which reading of the source it is of
    rows      in its files
    files     sha256 of the files' names and lengths
    schema    of its columns, as Spark's JSON: files without rows say nothing of it
    notes     what the stage itself had to say
    """

    stage: str
    about: Mapping[str, Any]
    snapshot: str
    rows: int
    files: str
    schema: str
    notes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stage:
    """A whole stage: its files as a table, and its manifest."""

    table: DataFrame
    manifest: Manifest


class Work:
    """The folder of a backfill's stages."""

    def __init__(self, spark: SparkSession, folder: str, about: Mapping[str, Any]) -> None:
        """Look into the folder; `about` is what all stages must come from.

        Raises ConfigError when they come from something else.
        """
        self._spark, self._folder = spark, folder.rstrip("/")
        self._about = {"format": FORMAT, **about}
        self._snapshot: str | None = None
        for name in ("records", "done"):
            if found := self._manifest(name):
                self._check(found)

    @property
    def is_done(self) -> bool:
        """Whether what the folder holds was carried out."""
        done, first = self._manifest("done"), self._manifest("records")
        return done is not None and first is not None and done.snapshot == first.snapshot

    def first(
        self, name: str, make: Callable[[], tuple[DataFrame, Mapping[str, Any]]], undone: str | None
    ) -> Stage:
        """Return the stage that all others come from; made where it is not whole, or is done with.

        undone  when a run was taken back last: what was read before that is done with, too
        """
        found = None if self.is_done else self._whole(name)
        if found is not None and found.manifest.notes["undone"] == undone:
            self._snapshot = found.manifest.snapshot
            return found
        self._snapshot = secrets.token_hex(8)
        table, notes = make()
        return self._made(name, lambda: table, {**notes, "undone": undone})

    def stage(self, name: str, make: Callable[[], DataFrame], by: str | None = None) -> Stage:
        """Return a stage; it is made where it is not whole, or of another reading of the source.

        by  a column to have folders by
        """
        found = self._whole(name)
        if found is not None and found.manifest.snapshot == self._snapshot:
            return found
        return self._made(name, make, {}, by)

    def path(self, name: str) -> str:
        """Return where something of this name is."""
        return f"{self._folder}/{name}"

    def end(self) -> None:
        """Note that all was carried out."""
        self._note(Manifest("done", self._about, str(self._snapshot), 0, "", "", {}))

    def _made(
        self, name: str, make: Callable[[], DataFrame], notes: Mapping[str, Any], by: str | None = None
    ) -> Stage:
        began = time.monotonic()
        log.info("stage begins", extra={"fields": {"stage": name}})
        with named_errors(name):
            rows = self._unless_stopped(lambda: self._write(name, make, notes, by))
        numbers = {"stage": name, "rows": rows, "seconds": round(time.monotonic() - began, 1)}
        log.info("stage is whole", extra={"fields": numbers})
        found = self._whole(name)
        assert found is not None
        return found

    def _write(
        self, name: str, make: Callable[[], DataFrame], notes: Mapping[str, Any], by: str | None
    ) -> int:
        """Make a stage's files, and its manifest when they are whole; returns the rows."""
        self._spark.sparkContext.setJobDescription(name)
        table = make()
        writer = table.write.mode("overwrite")
        if by:
            writer = writer.partitionBy(by).option("maxRecordsPerFile", ROWS_A_FILE)
        writer.parquet(self.path(name))
        rows, files = self._contents(name)
        self._note(Manifest(name, self._about, str(self._snapshot), rows, files, table.schema.json(), notes))
        return rows

    def _unless_stopped(self, work: Callable[[], int]) -> int:
        """Do what takes long in another thread, so that a signal is seen meanwhile: it cancels the work."""
        worker = ThreadPoolExecutor(1, "stage")
        try:
            return SHUTDOWN.result(worker.submit(work))
        except Stopped:
            self._spark.sparkContext.cancelAllJobs()
            raise
        finally:
            worker.shutdown(wait=False)

    def _whole(self, name: str) -> Stage | None:
        from pyspark.sql.types import StructType

        manifest = self._manifest(name)
        if manifest is None:
            return None
        with named_errors(name):
            if self._contents(name) != (manifest.rows, manifest.files):
                return None
            schema = StructType.fromJson(json.loads(manifest.schema))
            return Stage(self._spark.read.schema(schema).parquet(self.path(name)), manifest)

    def _contents(self, name: str) -> tuple[int, str]:
        """Return the rows of a stage, and the digest of its files' names and lengths; nothing for none."""
        from pyspark.errors import AnalysisException

        path = self.path(name)
        try:
            listed = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(path)
            files = [
                (row.path.removeprefix(path), row.length) for row in listed.select("path", "length").collect()
            ]
            rows = self._spark.read.parquet(path).count()
        except AnalysisException:
            return 0, ""
        names = sorted((file.rpartition("/")[2], length) for file, length in files)
        return rows, hashlib.sha256(json.dumps(names).encode()).hexdigest()

    def _manifest(self, name: str) -> Manifest | None:
        from pyspark.errors import AnalysisException

        try:
            with_text = self._spark.read.text(self.path(f"{name}.manifest"), wholetext=True).collect()
            return Manifest(**json.loads(with_text[0].value)) if with_text else None
        except (AnalysisException, ValueError, TypeError):
            return None

    def _note(self, manifest: Manifest) -> None:
        text = json.dumps(asdict(manifest), sort_keys=True)
        table = self._spark.createDataFrame([(text,)], "value string").coalesce(1)
        table.write.mode("overwrite").text(self.path(f"{manifest.stage}.manifest"))

    def _check(self, found: Manifest) -> None:
        now = json.loads(json.dumps(self._about))
        others = sorted(name for name in now if found.about.get(name) != now[name])
        if others:
            raise ConfigError(
                f"[engine] work: {self._folder} holds stages of another {' and '.join(others)}; "
                "name another folder, or remove this one"
            )
