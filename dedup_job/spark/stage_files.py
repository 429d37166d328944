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
from dedup_job.spark.spark_errors import named_errors
from dedup_job.spark.work_folder import escape_wildcards

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Rows per file of a partitioned stage, which the driver reads file by file.
ROWS_A_FILE = 20_000
# Raised when the contents of a stage change, so that stages of an older version are refused.
FORMAT = 5

log = logging.getLogger("dedup_job")


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of a complete stage.

    Attributes:
        stage: Name of the stage.
        about: Everything that the stages depend on: source, filter, recipe.
        snapshot: Identifies the scan of the source that the stage was made from.
        rows: Number of rows in its files.
        files: SHA-256 of the names and lengths of its files.
        schema: Spark's JSON schema; a stage without rows may have no file to read it from.
        notes: Further values of the stage itself.
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
    """A complete stage: its files as a table, and its manifest."""

    table: DataFrame
    manifest: Manifest


class Work:
    """The work folder of a backfill: the files and manifest of each stage.

    The manifest is written last.  A stage is complete if its files match its manifest.
    """

    def __init__(self, spark: SparkSession, folder: str, about: Mapping[str, Any]) -> None:
        """Open the folder, and check the stages that are already in it.

        Args:
            spark: The session.
            folder: A path or URL that the driver and all executors reach.
            about: Everything that the stages depend on.

        Raises:
            ConfigError: If the folder has stages with another `about`.
        """
        self._spark, self.folder = spark, folder.rstrip("/")
        self._about = {"format": FORMAT, **about}
        self._snapshot: str | None = None
        for name in ("records", "done"):
            if found := self._manifest(name):
                self._check(found)

    @property
    def is_done(self) -> bool:
        """Whether all verdicts in the folder are committed."""
        done, first = self._manifest("done"), self._manifest("records")
        return done is not None and first is not None and done.snapshot == first.snapshot

    def first(
        self, name: str, make: Callable[[], tuple[DataFrame, Mapping[str, Any]]], undone: str | None
    ) -> Stage:
        """Return the stage that all others are made from; reuse it if it is complete and still valid.

        Args:
            name: Name of the stage.
            make: Returns the table of the stage, and notes for its manifest.
            undone: Time of the last undo. A stage from before it is made again.
        """
        found = None if self.is_done else self._whole(name)
        if found is not None and found.manifest.notes["undone"] == undone:
            self._snapshot = found.manifest.snapshot
            return found
        self._snapshot = secrets.token_hex(8)
        table, notes = make()
        return self._made(name, lambda: table, {**notes, "undone": undone})

    def stage(self, name: str, make: Callable[[], DataFrame], by: str | None = None) -> Stage:
        """Return a stage; reuse it if it is complete and was made from the same scan of the source.

        Args:
            name: Name of the stage.
            make: Returns the table of the stage.
            by: Column to partition the files by, one folder for each value.
        """
        found = self._whole(name)
        if found is not None and found.manifest.snapshot == self._snapshot:
            return found
        return self._made(name, make, {}, by)

    def path(self, name: str) -> str:
        """Return the path of a file or folder with this name in the work folder."""
        return f"{self.folder}/{name}"

    def end(self) -> None:
        """Note that all verdicts are committed; a later backfill does not reuse these stages."""
        with named_errors("done", self.folder):
            self._note(Manifest("done", self._about, str(self._snapshot), 0, "", "", {}))

    def _made(
        self, name: str, make: Callable[[], DataFrame], notes: Mapping[str, Any], by: str | None = None
    ) -> Stage:
        """Make a stage, log its rows and seconds, and return it."""
        began = time.monotonic()
        log.info("stage begins", extra={"fields": {"stage": name}})
        with named_errors(name, self.folder):
            rows = self._unless_stopped(lambda: self._write(name, make, notes, by))
        numbers = {"stage": name, "rows": rows, "seconds": round(time.monotonic() - began, 1)}
        log.info("stage is whole", extra={"fields": numbers})
        found = self._whole(name)
        assert found is not None
        return found

    def _write(
        self, name: str, make: Callable[[], DataFrame], notes: Mapping[str, Any], by: str | None
    ) -> int:
        """Write a stage's files, then its manifest, and return the number of rows."""
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
        """Run Spark's work in another thread; a shutdown request cancels it.

        A call into Java does not return for a signal, so the main thread must not make it.
        """
        worker = ThreadPoolExecutor(1, "stage")
        try:
            return SHUTDOWN.result(worker.submit(work))
        except Stopped:
            self._spark.sparkContext.cancelAllJobs()
            raise
        finally:
            worker.shutdown(wait=False)

    def _whole(self, name: str) -> Stage | None:
        """Return a stage, or None if it is missing or its files do not match its manifest."""
        from pyspark.sql.types import StructType

        manifest = self._manifest(name)
        if manifest is None:
            return None
        with named_errors(name, self.folder):
            if self._contents(name) != (manifest.rows, manifest.files):
                return None
            schema = StructType.fromJson(json.loads(manifest.schema))
            return Stage(self._spark.read.schema(schema).parquet(escape_wildcards(self.path(name))), manifest)

    def _contents(self, name: str) -> tuple[int, str]:
        """Return the number of rows of a stage, and the digest of its files; (0, "") without files.

        The digest is of the names and lengths: contents would have to be read again.
        """
        from pyspark.errors import AnalysisException

        path = escape_wildcards(self.path(name))
        try:
            # Listed by Spark, not by Python: the folder may be on HDFS or S3.
            listed = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(path)
            files = [(row.path, row.length) for row in listed.select("path", "length").collect()]
            rows = self._spark.read.parquet(path).count()
        except AnalysisException:
            return 0, ""
        # Without folders: a URL and a path of the same file may be spelled differently.
        names = sorted((file.rpartition("/")[2], length) for file, length in files)
        return rows, hashlib.sha256(json.dumps(names).encode()).hexdigest()

    def _manifest(self, name: str) -> Manifest | None:
        """Read a manifest; return None if it is missing, incomplete or of another version."""
        from pyspark.errors import AnalysisException

        with named_errors(name, self.folder):
            try:
                path = escape_wildcards(self.path(f"{name}.manifest"))
                with_text = self._spark.read.text(path, wholetext=True).collect()
                return Manifest(**json.loads(with_text[0].value)) if with_text else None
            except (AnalysisException, ValueError, TypeError):
                return None

    def _note(self, manifest: Manifest) -> None:
        """Write a manifest."""
        text = json.dumps(asdict(manifest), sort_keys=True)
        table = self._spark.createDataFrame([(text,)], "value string").coalesce(1)
        table.write.mode("overwrite").text(self.path(f"{manifest.stage}.manifest"))

    def _check(self, found: Manifest) -> None:
        """Raise ConfigError if a stage depends on other inputs than this backfill."""
        # Through JSON, as the manifest was: tuples are lists there.
        now = json.loads(json.dumps(self._about))
        others = sorted(name for name in now if found.about.get(name) != now[name])
        if others:
            raise ConfigError(
                f"[engine] work: {self.folder} holds stages of another {' and '.join(others)}; "
                "name another folder, or remove this one"
            )
