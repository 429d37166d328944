"""Stage files in the work folder, so that a killed backfill resumes after its last complete stage.

Their names contain the snapshot, a random name of one reading of the source, and are unique for each writing.
The ledger stores, under the lease, which snapshot counts.  So another backfill with the same folder, or a
process that wakes after it has lost the lease, cannot mix its files with these.
"""

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

from dedup_job.errors import DedupError, Stopped
from dedup_job.signals import SHUTDOWN
from dedup_job.spark.spark_errors import named_errors
from dedup_job.spark.work_folder import escape_wildcards

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Rows per file of a partitioned stage, which the driver reads file by file.
ROWS_A_FILE = 20_000
# Raised when the contents of a stage change, so that stages of an older version are refused.
FORMAT = 6

log = logging.getLogger("dedup_job")


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of a complete stage.

    Attributes:
        about: Everything that the stages depend on: source, filter, recipe.
        place: Name of the folder with its files.
        rows: Number of rows in its files.
        files: SHA-256 of the names and lengths of its files.
        schema: Spark's JSON schema; a stage without rows may have no file to read it from.
        notes: Further values of the stage itself.
    """

    about: Mapping[str, Any]
    place: str
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
    """The stages of one snapshot in the work folder: for each its files, and a manifest.

    The manifest is written last.  A stage is complete if its files match its manifest.
    """

    def __init__(
        self,
        spark: SparkSession,
        folder: str,
        snapshot: str,
        about: Mapping[str, Any],
        check_held: Callable[[], object],
    ) -> None:
        """Set where the stages are; reads nothing.

        Args:
            spark: The session.
            folder: A path or URL that the driver and all executors reach.
            snapshot: Name of the reading of the source that the stages are made from.
            about: Everything that the stages depend on.
            check_held: Raises LeaseHeld if another run has taken the lease.
        """
        self._spark, self.folder, self.snapshot = spark, folder.rstrip("/"), snapshot
        # As it comes back from a manifest: tuples are lists there.
        self._about = json.loads(json.dumps({"format": FORMAT, **about}))
        self._check_held = check_held

    def find(self, name: str) -> Stage | None:
        """Return a stage; None if it is missing, incomplete, or made from other inputs."""
        manifest = self._manifest(name)
        if manifest is None or manifest.about != self._about:
            return None
        with named_errors(name, self.folder):
            is_whole = self._contents(manifest.place) == (manifest.rows, manifest.files)
            return self._open(manifest) if is_whole else None

    def stage(self, name: str, make: Callable[[], DataFrame], by: str | None = None) -> Stage:
        """Return a stage; make it if it is not complete.

        Args:
            name: Name of the stage.
            make: Returns the table of the stage.
            by: Column to partition the files by, one folder for each value.
        """
        return self.find(name) or self.make(name, make, {}, by)

    def path(self, name: str) -> str:
        """Return the path of a file or folder with this name in the work folder."""
        return f"{self.folder}/{name}"

    def remove(self) -> None:
        """Delete all files of this snapshot."""
        jvm: Any = self._spark._jvm
        pattern = jvm.org.apache.hadoop.fs.Path(escape_wildcards(self.folder) + f"/*-{self.snapshot}*")
        with named_errors("records", self.folder):
            files = pattern.getFileSystem(self._spark.sparkContext._jsc.hadoopConfiguration())
            for found in files.globStatus(pattern) or ():
                files.delete(found.getPath(), True)

    def make(
        self, name: str, make: Callable[[], DataFrame], notes: Mapping[str, Any], by: str | None = None
    ) -> Stage:
        """Make a stage, log its rows and seconds, and return it.

        Raises:
            LeaseHeld: If another run has taken the lease, which then may have deleted these files.
        """
        began = time.monotonic()
        log.info("stage begins", extra={"fields": {"stage": name}})
        try:
            with named_errors(name, self.folder):
                manifest = self._unless_stopped(lambda: self._write(name, make, notes, by))
                stage = self._open(manifest)
        except DedupError:
            self._check_held()
            raise
        numbers = {"stage": name, "rows": manifest.rows, "seconds": round(time.monotonic() - began, 1)}
        log.info("stage is whole", extra={"fields": numbers})
        return stage

    def _write(
        self, name: str, make: Callable[[], DataFrame], notes: Mapping[str, Any], by: str | None
    ) -> Manifest:
        """Write a stage's files, then its manifest, and return the manifest."""
        self._spark.sparkContext.setJobDescription(name)
        place, table = f"{name}-{self.snapshot}-{secrets.token_hex(4)}", make()
        writer = table.write
        if by:
            writer = writer.partitionBy(by).option("maxRecordsPerFile", ROWS_A_FILE)
        writer.parquet(self.path(place))
        rows, files = self._contents(place)
        manifest = Manifest(self._about, place, rows, files, table.schema.json(), notes)
        self._check_held()
        text = json.dumps(asdict(manifest), sort_keys=True)
        note = self._spark.createDataFrame([(text,)], "value string").coalesce(1)
        note.write.mode("overwrite").text(self.path(f"{name}-{self.snapshot}.manifest"))
        return manifest

    def _unless_stopped(self, work: Callable[[], Manifest]) -> Manifest:
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

    def _open(self, manifest: Manifest) -> Stage:
        """Return the stage of a manifest."""
        from pyspark.sql.types import StructType

        schema = StructType.fromJson(json.loads(manifest.schema))
        path = escape_wildcards(self.path(manifest.place))
        return Stage(self._spark.read.schema(schema).parquet(path), manifest)

    def _contents(self, place: str) -> tuple[int, str]:
        """Return the number of rows in a folder, and the digest of its files; (0, "") without files.

        The digest is of the names and lengths: contents would have to be read again.
        """
        from pyspark.errors import AnalysisException

        path = escape_wildcards(self.path(place))
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
                path = escape_wildcards(self.path(f"{name}-{self.snapshot}.manifest"))
                with_text = self._spark.read.text(path, wholetext=True).collect()
                return Manifest(**json.loads(with_text[0].value)) if with_text else None
            except (AnalysisException, ValueError, TypeError):
                return None
