"""Save a deduplicator to a file: a line of JSON, the columns end to end, and a checksum of both.

The JSON header has each size once, and `_layout` derives the shape of every column from the sizes, so the
columns cannot contradict each other.  The file stores no types, offsets or compression, so a damaged file
cannot have wrong ones.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from bson.errors import BSONError

from dedup_job.errors import ConfigError, StateError
from dedup_job.library.arguments import as_json, deciding_of, key_of, raw_id
from dedup_job.native.arrays import Ragged
from dedup_job.records import PlanTexts, RawIds
from dedup_job.report.output_files import is_special, replacing
from dedup_job.within.group_separation import GROUP_WORDS

# Raised when the contents of a column change.
FORMAT: Final = 2
CHECKSUM: Final = hashlib.blake2b
CHECKSUM_BYTES: Final = CHECKSUM().digest_size
# Longest header; limits how much of a file without a line break is read.
HEADER_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a deduplicator.

    Attributes:
        settings: The keywords it was created with, as JSON values.
        recipe: The settings of its recipe.
        keys: Raw ids of the k kept records, in the order they were added.
        text_numbers: int64, shape (k,), number of each kept record's text; -1 for a text that cannot be
            compared.
        texts: All n distinct texts that were added, in order; its `ids` and `is_kept` are the results of
            `kept_texts`.
        shingles: Shingle sets of the texts that have a keeper, ordered by number.
    """

    settings: Mapping[str, Any]
    recipe: Mapping[str, Any]
    keys: RawIds
    text_numbers: npt.NDArray[np.int64]
    texts: PlanTexts
    shingles: Ragged


class _Sizes(NamedTuple):
    """The sizes that determine the shapes of all columns.

    Attributes:
        texts: Number of distinct texts.
        kept_texts: Number of texts that have a keeper.
        keys: Number of kept records.
        key_bytes: Bytes of all their raw ids.
        shingles: Shingles in all sets.
        words: 64-bit words in a fingerprint, from the recipe.
        bands: Band keys of a text, from the recipe.
    """

    texts: int
    kept_texts: int
    keys: int
    key_bytes: int
    shingles: int
    words: int
    bands: int


def _layout(sizes: _Sizes) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the dtype and the shape of each column, in the order of the file."""
    return {
        "key_ends": ("<i8", (sizes.keys + 1,)),
        "keys": ("u1", (sizes.key_bytes,)),
        "text_numbers": ("<i8", (sizes.keys,)),
        "bits": ("<u8", (sizes.texts, sizes.words)),
        "has_fingerprint": ("?", (sizes.texts,)),
        "bands": ("<u4", (sizes.texts, sizes.bands)),
        "digests": ("<u8", (sizes.texts, 2)),
        "shingle_ends": ("<i8", (sizes.kept_texts + 1,)),
        "shingles": ("<u4", (sizes.shingles,)),
    }


def kept_texts(
    keys: RawIds, text_numbers: npt.NDArray[np.int64], count: int
) -> tuple[RawIds, npt.NDArray[np.bool_]]:
    """Find the first keeper of each text.

    Args:
        keys: Raw ids of the k kept records.
        text_numbers: int64, shape (k,), number of each record's text; -1 for none.
        count: Number of texts.

    Returns:
        The raw id of each text's first keeper, and bool, shape (count,), whether the text has a keeper.
        A text without a keeper gets an arbitrary id.
    """
    # `np.unique` returns the first index of each number, so this is the first keeper.
    kept, first = np.unique(text_numbers, return_index=True)
    kept, first = kept[kept >= 0], first[kept >= 0]
    is_kept = np.zeros(count, np.bool_)
    is_kept[kept] = True
    row = np.zeros(count, np.intp)
    row[kept] = first
    return keys.take(row) if len(keys) else RawIds.of(b"" for _ in row), is_kept


def write(path: Path, saved: Snapshot) -> None:
    """Write a file atomically.

    Raises:
        OSError: If the file cannot be written.
    """
    texts = saved.texts
    columns: dict[str, npt.NDArray[Any]] = {
        "key_ends": saved.keys.offsets,
        "keys": saved.keys.values,
        "text_numbers": saved.text_numbers,
        "bits": texts.bits,
        "has_fingerprint": texts.has_fingerprint,
        "bands": texts.keys,
        "digests": texts.digests,
        "shingle_ends": saved.shingles.offsets,
        "shingles": saved.shingles.values,
    }
    header = {
        "format": FORMAT,
        "settings": dict(saved.settings),
        "recipe": dict(saved.recipe),
        "sizes": {
            "texts": len(texts),
            "kept_texts": len(saved.shingles),
            "keys": len(saved.keys),
            "key_bytes": len(saved.keys.values),
            "shingles": len(saved.shingles.values),
        },
    }
    checksum = CHECKSUM()
    with replacing(path) as written, written.open("wb") as file:
        line = json.dumps(header).encode() + b"\n"
        for part in [memoryview(line), *map(_octets, columns.values())]:
            file.write(part)
            checksum.update(part)
        file.write(checksum.digest())
        file.flush()
        if not is_special(path):
            os.fsync(file.fileno())


def read(path: Path) -> Snapshot:
    """Read a file, and check everything in it.

    Raises:
        OSError: If the file cannot be read.
        StateError: If the file is damaged, or was not written by this version.
    """
    with path.open("rb") as file:
        try:
            return _saved(file)
        except (ValueError, TypeError, KeyError, RecursionError, BSONError, ConfigError) as error:
            raise damaged(path) from error


def damaged(path: Path) -> StateError:
    """Return the error to raise for a damaged file."""
    return StateError(f"{path}: not a saved deduplicator of this version, or damaged")


def _saved(file: BufferedReader) -> Snapshot:
    """Read and check an open file; raises ValueError and other errors of parsing if it is damaged."""
    size = os.fstat(file.fileno()).st_size
    line = file.readline(min(size, HEADER_BYTES))
    header = json.loads(line)
    _require(header["format"] == FORMAT, "it has this format")
    settings, recipe = as_json(header["settings"]), dict(header["recipe"])
    # Checks the values only: a file that a setting names may have changed, but this file is not damaged then.
    deciding_of(settings)
    sizes = _Sizes(**header["sizes"], words=recipe["bits"] // 64, bands=recipe["matching.bands"])
    _require(all(type(count) is int and count >= 0 for count in sizes), "sizes are natural numbers")
    layout = _layout(sizes)
    nbytes = sum(np.dtype(kind).itemsize * prod(shape) for kind, shape in layout.values())
    # Checked before memory is allocated: damaged sizes could ask for terabytes.
    _require(len(line) + nbytes + CHECKSUM_BYTES == size, "the sizes match the file")
    columns = {name: np.empty(shape, kind) for name, (kind, shape) in layout.items()}
    checksum = CHECKSUM(line)
    for column in columns.values():
        file.readinto(_octets(column))
        checksum.update(_octets(column))
    _require(file.read(CHECKSUM_BYTES) == checksum.digest(), "the checksum is right")
    _check(columns, GROUP_WORDS if settings.get("within") else 0)
    keys = RawIds(columns["key_ends"], columns["keys"])
    ids, is_kept = kept_texts(keys, columns["text_numbers"], sizes.texts)
    texts = PlanTexts(
        ids, columns["bits"], columns["has_fingerprint"], columns["bands"], columns["digests"], is_kept
    )
    shingles = Ragged(columns["shingle_ends"], columns["shingles"])
    return Snapshot(settings, recipe, keys, columns["text_numbers"], texts, shingles)


def _check(columns: Mapping[str, npt.NDArray[Any]], group_words: int) -> None:
    """Check the values that other code relies on; compiled code does not check its input.

    Whether two texts have the same digest is not checked here: the index finds that out faster.
    """
    key_ends, shingle_ends = columns["key_ends"], columns["shingle_ends"]
    _require(_are_ends(key_ends, columns["keys"]), "the ends of keys ascend to the last byte")
    _require(_are_ends(shingle_ends, columns["shingles"]), "the ends of shingles ascend to the last one")
    _require(
        _ascends_in_rows(shingle_ends, columns["shingles"], group_words), "the shingles of a text ascend"
    )
    _require((columns["has_fingerprint"].view(np.uint8) <= 1).all(), "a flag is 0 or 1")
    _require(columns["digests"].any(axis=1).all(), "each text has a digest")
    text_numbers, texts = columns["text_numbers"], len(columns["digests"])
    _require(((text_numbers >= -1) & (text_numbers < texts)).all(), "a kept record has an existing text")
    _require(
        len(np.unique(text_numbers[text_numbers >= 0])) == len(shingle_ends) - 1,
        "each kept text has shingles",
    )
    keys = list(RawIds(key_ends, columns["keys"]))
    _require(len(set(keys)) == len(keys), "no key comes twice")
    _require(all(raw_id(key_of(raw)) == raw for raw in keys), "keys are written as `raw_id` does")


def _require(holds: object, rule: str) -> None:
    """Raise ValueError with the violated rule, unless the rule holds."""
    if not holds:
        raise ValueError(f"not so: {rule}")


def _are_ends(offsets: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> bool:
    """Return whether offsets divide all of `values` into rows."""
    # Compared, not subtracted: a difference of damaged offsets can overflow.
    ascends = (offsets[1:] >= offsets[:-1]).all()
    return bool(ascends and offsets[0] == 0 and offsets[-1] == len(values))


def _ascends_in_rows(offsets: npt.NDArray[np.int64], values: npt.NDArray[Any], header: int) -> bool:
    """Return whether the values of each row are strictly ascending, behind `header` words of each row."""
    if not (np.diff(offsets) >= header).all():
        return False
    is_more = np.ones(len(values) + 1, np.bool_)
    is_more[1:-1] = values[1:] > values[:-1]
    # The first value of a row is compared with no other.
    is_more[offsets] = True
    for place in range(1, header + 1):
        is_more[offsets[:-1] + place] = True
    return bool(is_more.all())


def _octets(column: npt.NDArray[Any]) -> memoryview:
    """Return the bytes of a column, as a view if the column is contiguous."""
    return np.ascontiguousarray(column).ravel().view(np.uint8).data
