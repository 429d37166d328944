"""IDF: how much a term says, from the number of texts that hold it; kept as integers.

A table is a text file of `term idf` lines, the format of jieba's own `idf.txt`.  A term that is not in the
table gets the median of jieba's table, or the greatest value of a learned one: it is rarer than all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import isfinite, log
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.interning import Interned
from dedup_job.native.ragged import Ragged
from dedup_job.text.characters import joined

SCALE = 1024
HEADER = "# dedup-job idf"
SPACE, NEWLINE = b" \n"


@dataclass(frozen=True, slots=True)
class Idf:
    """Fixed-point inverse document frequencies: 1024 stands for 1.0.

    terms   those that have one of their own
    values  int64 (n + 1,), by the number of a term; the last is that of all other terms
    """

    terms: Interned
    values: npt.NDArray[np.int64]

    @classmethod
    def of(cls, terms: Sequence[str], idfs: npt.ArrayLike, unknown: int) -> Idf:
        """Put a table together; of a term that is in it twice the last entry counts."""
        interned = Interned()
        numbers, _ = interned.numbers(joined(terms))
        values = np.full(len(interned) + 1, unknown, np.int64)
        values[numbers] = idfs
        return cls(interned, values)

    def __call__(self, terms: Ragged) -> npt.NDArray[np.int64]:
        """Return the IDF of each term."""
        return self.values[self.terms.known(terms)]


def jieba_idf_path() -> Path:
    """Return where jieba keeps its IDF table."""
    package = find_spec("jieba")  # importing it takes 0.15 s
    if package is None or not package.submodule_search_locations:
        raise FileNotFoundError("jieba is not installed")
    return Path(package.submodule_search_locations[0]) / "analyse" / "idf.txt"


def read_idf(path: Path) -> Idf:
    """Read a table; raises ValueError, naming the line, when it is malformed."""
    raw = path.read_bytes()
    text = raw.decode("utf-8")
    terms, values = _columns(raw, text)
    if not terms:
        raise ValueError(f"{path}: no `term idf` line in it")
    try:
        scaled = np.rint(np.array(values, np.float64) * SCALE)
    except ValueError:
        scaled = np.array([np.nan])
    if not (np.isfinite(scaled).all() and all(map(str.strip, terms))):
        raise ValueError(f"{path}: line {_first_malformed(text)}: expected `term idf`")
    idfs = np.maximum(scaled, 1).astype(np.int64)
    unknown = idfs.max() if text.startswith(HEADER) else np.sort(idfs)[len(idfs) // 2]
    return Idf.of(terms, idfs, int(unknown))


def _columns(raw: bytes, text: str) -> tuple[Sequence[str], Sequence[str]]:
    """Return what stands before and behind the last space of each line, blank lines and comments left out.

    Where each line holds one space, as in jieba's table of 267,744, all are split at once.
    """
    codes = np.frombuffer(raw if raw.endswith(b"\n") else raw + b"\n", np.uint8)
    separators = codes[(codes == SPACE) | (codes == NEWLINE)]
    is_plain = (separators[::2] == SPACE).all() and (separators[1::2] == NEWLINE).all()
    fields = text.split() if is_plain else []
    if len(fields) == len(separators) > 0:
        return fields[::2], fields[1::2]
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith("# ")]
    parts = [line.rpartition(" ") for line in lines]
    return [term for term, _, _ in parts], [value for _, _, value in parts]


def _first_malformed(text: str) -> int:
    """Return the number of the first line that is no `term idf`."""
    for number, line in enumerate(text.split("\n"), 1):
        term, _, value = line.rpartition(" ")
        try:
            is_good = bool(term.strip()) and isfinite(float(value))
        except ValueError:
            is_good = False
        if line.strip() and not line.startswith("# ") and not is_good:
            return number
    raise AssertionError("every line is good")


def fixed(value: float) -> int:
    """Return a weight as a fixed-point integer, at least 1.

    >>> fixed(11.5)
    11776
    """
    return max(1, round(value * SCALE))


def learned_idf(frequencies: Counter[str], texts: int, at_least: int = 2) -> dict[str, float]:
    """Return smoothed IDF, 1 + ln((1 + n) / (1 + df)), of the terms that `at_least` so many texts hold.

    The formula is scikit-learn's `TfidfTransformer(smooth_idf=True)`.

    >>> learned_idf(Counter(the=3, rare=1), texts=3, at_least=1)["the"]
    1.0
    """
    return {
        term: 1 + log((1 + texts) / (1 + count))
        for term, count in sorted(frequencies.items())
        if count >= at_least
    }


def write_idf(path: Path, table: Mapping[str, float], texts: int) -> None:
    """Write a learned table, complete or not at all."""
    lines = [f"{HEADER} of {texts} texts", *(f"{term} {value:.6f}" for term, value in table.items())]
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(("\n".join(lines) + "\n").encode("utf-8"))
    partial.replace(path)
