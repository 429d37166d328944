"""A table that a command writes row by row, to a .csv, .jsonl or .parquet file."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from dedup_job.errors import StorageFull, UsageError
from dedup_job.mongo.ids import extended
from dedup_job.report.output_files import check_file, replacing
from dedup_job.report.terminal_text import format_id, to_json_line

# A reader of Parquet loads a row group at a time, and so does the writer.
ROWS_OF_A_GROUP = 100_000

Row = Sequence[Any]
WriteRows = Callable[[Sequence[Row]], object]


class TableFile:
    """A table in a file, which appears under its name only when it is complete.

    Use it in a `with` statement: if the block fails, nothing is left, and an older file of the name stays.

    Attributes:
        count: Number of rows so far.

    Raises:
        UsageError: If the file cannot be created, or has another suffix.
        StorageFull: If the file cannot be written, from any method.
    """

    def __init__(self, path: Path, columns: Mapping[str, type], option: str) -> None:
        """Create the file.

        Args:
            path: The file; its suffix says the format.
            columns: Name and type of each column: `str`, `int` or `float`.
            option: The option that names the file, for messages.
        """
        suffix = path.suffix.lower()
        if suffix not in OPENERS:
            raise UsageError(f"{path}: name a .csv, a .jsonl or a .parquet file")
        if suffix == ".parquet" and find_spec("pyarrow") is None:
            raise UsageError(
                f"{path}: a .parquet file needs pyarrow, which is not installed; run pip install "
                "'dedup-job[spark]', or name a .csv or a .jsonl file"
            )
        check_file(path, option)
        self._is_json, self.count = suffix == ".jsonl", 0
        self._path, self._stack = path, ExitStack()
        with self._raise_storage_full():
            # The stack closes the file before it takes the place of the older one.
            written = self._stack.enter_context(replacing(path))
            self._write_rows = OPENERS[suffix](written, columns, self._stack)

    def show_id(self, raw_id: bytes) -> Any:
        """Return an id as the table has it: a JSON value, or a text as the command line takes it."""
        shown = extended(raw_id)
        return shown if self._is_json else format_id(shown)

    def write(self, rows: Sequence[Row]) -> None:
        """Write some rows, with a value for each column."""
        with self._raise_storage_full():
            self._write_rows(rows)
        self.count += len(rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        with self._raise_storage_full():
            self._stack.__exit__(*raised)

    @contextmanager
    def _raise_storage_full(self) -> Iterator[None]:
        """Raise an OSError as StorageFull, which names the file."""
        try:
            yield
        except OSError as error:
            raise StorageFull(f"{self._path} cannot be written: {error.strerror}") from error


def _open_csv(path: Path, columns: Mapping[str, type], stack: ExitStack) -> WriteRows:
    file = stack.enter_context(path.open("w", encoding="utf-8", newline=""))
    table = csv.writer(file, lineterminator="\n")
    table.writerow(columns)
    return table.writerows


def _open_json_lines(path: Path, columns: Mapping[str, type], stack: ExitStack) -> WriteRows:
    file = stack.enter_context(path.open("w", encoding="utf-8"))

    def write(rows: Sequence[Row]) -> None:
        file.writelines(f"{to_json_line(dict(zip(columns, row, strict=True)))}\n" for row in rows)

    return write


def _open_parquet(path: Path, columns: Mapping[str, type], stack: ExitStack) -> WriteRows:
    table = _ParquetRows(path, columns)
    stack.callback(table.close)
    return table.write


class _ParquetRows:
    def __init__(self, path: Path, columns: Mapping[str, type]) -> None:
        # Loaded for this format alone: it takes 40 MB.
        import pyarrow as pa
        from pyarrow import parquet

        kinds = {str: pa.string(), int: pa.int64(), float: pa.float64()}
        self._schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
        self._writer = parquet.ParquetWriter(path, self._schema)
        self._table, self._rows = pa.table, list[Row]()

    def write(self, rows: Sequence[Row]) -> None:
        self._rows += rows
        if len(self._rows) >= ROWS_OF_A_GROUP:
            self._write_group()

    def close(self) -> None:
        if self._rows:
            self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        columns = [list(column) for column in zip(*self._rows, strict=True)]
        self._writer.write_table(self._table(columns, schema=self._schema))
        self._rows = []


OPENERS: dict[str, Callable[[Path, Mapping[str, type], ExitStack], WriteRows]] = {
    ".csv": _open_csv,
    ".jsonl": _open_json_lines,
    ".parquet": _open_parquet,
}
