"""Inverse document frequencies (IDF) of terms, as fixed-point integers, and the files that hold them.

A table is a text file of `term idf` lines, the format of jieba's own `idf.txt`. A term that is not in the
table gets the median of jieba's table. Of a table made by `fit-idf` it gets the greatest value, because it is
rarer than all terms there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.jieba_to_segmenter_trie import jieba_folder
from dedup_job.fingerprint.term_hashes_and_tables import Hashes, Numbers, build_table, hash_strings, look_up

SCALE = 1024
# With a larger IDF, the weight of a term in a long text might not fit into 63 bits.
MOST = 1e9
HEADER = "# dedup-job idf"
Floats = npt.NDArray[np.float64]
NO_SEPARATORS = bytes(set(range(256)) - set(b" \n"))


@dataclass(frozen=True, slots=True)
class Idf:
    """Inverse document frequencies by term, in fixed point: 1024 is 1.0.

    Attributes:
        table: Of `build_table`: the IDF of each term of the table, by the term's hash.
        unknown: The IDF of all other terms.
    """

    table: Hashes
    unknown: int

    @classmethod
    def of(cls, terms: Sequence[str], idfs: npt.ArrayLike, unknown: int) -> Idf:
        """Build a table; the last entry wins for duplicate terms.

        Args:
            idfs: The fixed-point IDF of each term, at least 1.
            unknown: The IDF of all other terms.
        """
        return cls(build_table(hash_strings(terms, 64)[:, 0], np.array(idfs, np.int64)), unknown)

    def __call__(self, hashes: Hashes) -> Numbers:
        """Return the fixed-point IDF of each term, int64, by its 64-bit hash."""
        return look_up(hashes, self.table, self.unknown)

    def weights(self, kind: str) -> Idf:
        """Return a table that has the weight of each IDF in its place (see `TermRule.idf`)."""
        table = self.table.copy()
        is_term = table[:, 1] > 0
        table[is_term, 1] = idf_weights(table[is_term, 1].astype(np.int64), kind)
        return Idf(table, int(idf_weights(np.array([self.unknown]), kind)[0]))


def idf_weights(idfs: npt.NDArray[np.int64], kind: str) -> npt.NDArray[np.int64]:
    """Return the weight of each fixed-point IDF, in fixed point, rounded down.

    >>> [idf_weights(np.array([4 * 1024]), kind).item() for kind in ("full", "sqrt", "none")]
    [4096, 2048, 1024]
    """
    if kind == "none":
        return np.full_like(idfs, SCALE)
    if kind == "full":
        return idfs
    # Exact, as a floating-point number has 52 bits, and these products have fewer: see MOST.
    return np.sqrt(idfs * SCALE).astype(np.int64)


def jieba_idf_path() -> Path:
    """Return the path of jieba's IDF table.

    Raises:
        FileNotFoundError: If jieba is not installed.
    """
    return jieba_folder() / "analyse" / "idf.txt"


def read_idf(path: Path) -> Idf:
    """Read a table.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it has no term, or a line is malformed; the message names the line.
    """
    raw = path.read_bytes()
    terms, values = _split_at_once(raw) or _read_lines(path, raw)
    if not terms:
        raise ValueError(f"{path}: no `term idf` line in it")
    idfs = np.maximum(np.rint(values * SCALE), 1).astype(np.int64)
    unknown = idfs.max() if raw.startswith(HEADER.encode()) else np.sort(idfs)[len(idfs) // 2]
    return Idf.of(terms, idfs, int(unknown))


def _split_at_once(raw: bytes) -> tuple[Sequence[str], Floats] | None:
    """Return terms and values if each line has exactly one space; None for another or a malformed table."""
    # Jieba's table of 267,744 lines takes a quarter of the time that it takes line by line.
    separators = (raw if raw.endswith(b"\n") else raw + b"\n").translate(None, delete=NO_SEPARATORS)
    fields = raw.decode("utf-8").split()
    # A term may have white space in it that is no space.
    if len(fields) != len(separators) or separators != b" \n" * (len(fields) // 2):
        return None
    try:
        values = np.array(fields[1::2], np.float64)
    except ValueError:
        return None
    return (fields[::2], values) if ((values > 0) & (values <= MOST)).all() else None


def _read_lines(path: Path, raw: bytes) -> tuple[Sequence[str], Floats]:
    """Split each line at its last space; blank lines and comments are left out."""
    terms, values = [], []
    for number, line in enumerate(raw.decode("utf-8").split("\n"), 1):
        if not line.strip() or line.startswith("# "):
            continue
        term, _, value = line.rpartition(" ")
        try:
            values.append(float(value))
        except ValueError:
            values.append(nan)
        if not term.strip() or not 0 < values[-1] <= MOST:
            raise ValueError(
                f"{path}: line {number}: expected `term idf`, with an IDF above 0 and up to {MOST:,.0f}"
            )
        terms.append(term)
    return terms, np.array(values)


def format_idf(table: Mapping[str, float], texts: int) -> str:
    """Return the content of a table's file.

    Args:
        table: The IDF of each term.
        texts: The number of texts that the table was computed from.
    """
    lines = [f"{HEADER} of {texts} texts", *(f"{term} {value:.6f}" for term, value in table.items())]
    return "\n".join(lines) + "\n"
