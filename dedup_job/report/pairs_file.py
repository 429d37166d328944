"""A file of pairs: every duplicate with its keeper, one line each, written while a run is observed."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from dedup_job.errors import StorageFull, UsageError
from dedup_job.mongo.ids import extended
from dedup_job.records import Batch, Plan
from dedup_job.report.terminal import format_id, to_json_line

# `evaluate` reads the first three.
COLUMNS = ("keeper", "duplicate", "similarity", "distance", "reason")


class PairsFile:
    """A .csv or .jsonl file of pairs.

    Attributes:
        count: Number of pairs written so far.

    Raises:
        UsageError: If the file cannot be created, or has another suffix.
        StorageFull: If the file cannot be written, from any method.
    """

    def __init__(self, path: Path) -> None:
        suffix = path.suffix.lower()
        if suffix not in (".csv", ".jsonl"):
            raise UsageError(f"{path}: pairs are written to a .csv or a .jsonl file")
        self._path, self._is_csv, self.count = path, suffix == ".csv", 0
        try:
            self._file = path.open("w", encoding="utf-8", newline="")
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
        if self._is_csv:
            self._write([COLUMNS])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._raise_storage_full():
            self._file.close()

    def observe(self, _: Batch, plan: Plan) -> None:
        """Write the pairs of a batch."""
        # A table has ids as the command line takes them, JSON has them as JSON values.
        show = format_id if self._is_csv else lambda value: value
        rows = [
            (
                show(extended(match.keeper)),
                show(extended(raw_id)),
                None if match.similarity is None else round(match.similarity, 4),
                match.distance,
                verdict.reason,
            )
            for raw_id, verdict in zip(plan.ids, plan.verdicts, strict=True)
            if (match := verdict.match) is not None
        ]
        self._write(rows)
        self.count += len(rows)

    def _write(self, rows: Sequence[Sequence[Any]]) -> None:
        with self._raise_storage_full():
            if self._is_csv:
                csv.writer(self._file, lineterminator="\n").writerows(rows)
            else:
                self._file.writelines(
                    f"{to_json_line(dict(zip(COLUMNS, row, strict=True)))}\n" for row in rows
                )

    @contextmanager
    def _raise_storage_full(self) -> Iterator[None]:
        """Raise an OSError as StorageFull, which names the file."""
        try:
            yield
        except OSError as error:
            raise StorageFull(f"{self._path} cannot be written: {error.strerror}") from error
