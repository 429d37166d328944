"""A deduplicator in a file: one numpy archive of columns, with the settings and the recipe's digest."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from dedup_job.errors import StateError
from dedup_job.native.ragged import Ragged
from dedup_job.plan import RawIds, Texts

FORMAT: Final = 2  # raised when the same column would hold something else


@dataclass(frozen=True, slots=True)
class Saved:
    """All that a deduplicator knows.

    settings  keywords that it was made with, as JSON values
    recipe    the recipe's settings, and `digest` that of them
    keys      raw ids of the k kept records, in the order in which they were kept
    stands    int64 (k,), the number of the text that each stands for; -1 for one that could not be judged
    texts     all n texts that were entered, in order; of those that a record stands for the first one's id
    shingles  of the texts that a record stands for, in the order of their numbers
    """

    settings: Mapping[str, Any]
    recipe: Mapping[str, Any]
    digest: str
    keys: RawIds
    stands: npt.NDArray[np.int64]
    texts: Texts
    shingles: Ragged

    def is_whole(self) -> bool:
        """Return whether the columns fit together."""
        texts, count = self.texts, len(self.texts.has_fingerprint)
        columns = (texts.ids, texts.bits, texts.keys, texts.digests, texts.is_kept)
        standing = np.unique(self.stands[self.stands >= 0])
        return (
            all(len(column) == count for column in columns)
            and len(self.keys) == len(self.stands)
            and np.array_equal(standing, np.flatnonzero(texts.is_kept))
            and len(self.shingles) == len(standing)
        )


def write(path: Path, saved: Saved) -> None:
    """Write a file, complete or not at all; raises OSError when it cannot be written."""
    header = {
        "format": FORMAT,
        "settings": dict(saved.settings),
        "recipe": dict(saved.recipe),
        "digest": saved.digest,
    }
    texts = saved.texts
    columns = {
        "header": np.frombuffer(json.dumps(header).encode(), np.uint8),
        "key_ends": saved.keys.offsets,
        "keys": saved.keys.values,
        "stands": saved.stands,
        "id_ends": texts.ids.offsets,
        "ids": texts.ids.values,
        "bits": texts.bits,
        "near": texts.has_fingerprint,
        "bands": texts.keys,
        "digests": texts.digests,
        "is_kept": texts.is_kept,
        "shingle_ends": saved.shingles.offsets,
        "shingles": saved.shingles.values,
    }
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        np.savez(file, **columns)  # type: ignore[arg-type]  # its stub takes a flag for all keywords
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def read(path: Path) -> Saved:
    """Read a file; raises OSError when it cannot be read, StateError when it is damaged or none of ours."""
    with path.open("rb") as file:
        try:
            saved = _saved(np.load(file))
        except (ValueError, KeyError, TypeError, AttributeError, EOFError, BadZipFile, zlib.error) as error:
            raise StateError(f"{path}: not a saved deduplicator of this version, or damaged") from error
    if not saved.is_whole():
        raise StateError(f"{path}: its columns do not fit together; it is damaged")
    return saved


def _saved(columns: Any) -> Saved:
    header = json.loads(columns["header"].tobytes())
    if header["format"] != FORMAT:
        raise ValueError
    texts = Texts(
        RawIds(columns["id_ends"], columns["ids"]),
        columns["bits"],
        columns["near"],
        columns["bands"],
        columns["digests"],
        columns["is_kept"],
    )
    return Saved(
        header["settings"],
        header["recipe"],
        header["digest"],
        RawIds(columns["key_ends"], columns["keys"]),
        columns["stands"],
        texts,
        Ragged(columns["shingle_ends"], columns["shingles"]),
    )
