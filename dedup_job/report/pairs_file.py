"""Pairs in a file: every duplicate with its keeper, a line each, written while a run is observed."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

from dedup_job.document import Batch, Match, Verdict
from dedup_job.errors import StorageFull, UsageError
from dedup_job.mongo.shown_ids import extended
from dedup_job.plan import Plan
from dedup_job.report.terminal import id_text, json_line

COLUMNS = ("keeper", "duplicate", "similarity", "distance", "reason")  # `evaluate` reads the first three


class PairsFile:
    """A file of pairs, .csv or .jsonl; `count` says how many there are so far.

    Raises UsageError where it cannot be made, StorageFull when it cannot be written any more.
    """

    def __init__(self, path: Path) -> None:
        written = WRITTEN.get(path.suffix.lower())
        if written is None:
            raise UsageError(f"{path}: pairs are written to a .csv or a .jsonl file")
        self._path, self._written, self.count = path, written, 0
        try:
            self._file = path.open("w", encoding="utf-8", newline="")
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
        if written is _as_csv:
            with self._named():
                csv.writer(self._file, lineterminator="\n").writerow(COLUMNS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._named():
            self._file.close()

    def observe(self, _: Batch, plan: Plan) -> None:
        """Write the pairs of a batch."""
        rows = [
            _row(raw_id, verdict, verdict.match)
            for raw_id, verdict in zip(plan.ids, plan.verdicts, strict=True)
            if verdict.match is not None
        ]
        self._write(rows)
        self.count += len(rows)

    def _write(self, rows: Sequence[Sequence[Any]]) -> None:
        with self._named():
            self._written(self._file, rows)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageFull(f"{self._path} cannot be written: {error.strerror}") from error


def _row(raw_id: bytes, verdict: Verdict, match: Match) -> tuple[Any, ...]:
    """Return a pair as the columns have it, ids as JSON values."""
    similarity = None if match.similarity is None else round(match.similarity, 4)
    return extended(match.keeper), extended(raw_id), similarity, match.distance, verdict.reason


def _as_csv(file: IO[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write lines of a table; ids as the command line takes them."""
    lines = csv.writer(file, lineterminator="\n")
    lines.writerows((id_text(keeper), id_text(one), *rest) for keeper, one, *rest in rows)


def _as_jsonl(file: IO[str], rows: Sequence[Sequence[Any]]) -> None:
    file.writelines(f"{json_line(dict(zip(COLUMNS, row, strict=True)))}\n" for row in rows)


WRITTEN: Mapping[str, Callable[[IO[str], Sequence[Sequence[Any]]], None]] = {
    ".csv": _as_csv,
    ".jsonl": _as_jsonl,
}
