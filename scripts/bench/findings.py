"""Count how many of the copies planted in a made-up collection a run has found.

A copy is found if it and its original were not both kept. A near copy counts if its similarity is at least
0.8, computed from the shingle sets of the two texts, for a random sample of near copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from pymongo import MongoClient

from scripts.bench.made_up import (
    EXACT,
    NEAR,
    ORIGINAL,
    Collection,
    Flags,
    Numbers,
    Planted,
    numbers_of,
    similarity,
)
from scripts.bench.measure import DATABASE

LEAST = 0.8
# Records checked together.
CHUNK = 1_000_000
# Pairs of texts in memory at the same time.
TEXTS = 1_000
BINS = (0.8, 0.85, 0.9, 1.0)


@dataclass(frozen=True, slots=True)
class Finding:
    """The number of planted records of one kind, and how many of them were found."""

    kind: str
    records: int
    found: int

    @property
    def share(self) -> float:
        """The share that was found; nan if none were planted."""
        return self.found / self.records if self.records else float("nan")


def kept_of(uri: str, count: int) -> Flags:
    """Return which of the first `count` records are in the target, reading its ids in one pass."""
    kept = np.zeros(count, np.bool_)
    with MongoClient[dict[str, Any]](uri) as client:
        for ids in client[DATABASE].unique.find_raw_batches({}, {"_id": 1}, batch_size=100_000):
            kept[numbers_of(cast(bytes, ids))] = True
    return kept


def findings(collection: Collection, kept: Flags, sample: int) -> list[Finding]:
    """Return the found near copies, the found exact copies, and the originals that were dropped."""
    return [*near_findings(collection, kept, sample), *whole_findings(collection, kept)]


def near_findings(collection: Collection, kept: Flags, sample: int) -> list[Finding]:
    """Return the found share in a sample of near copies, in total and by similarity."""
    parts = (numbers[planted.kinds == NEAR] for numbers, planted in chunks(collection, len(kept)))
    near = np.concatenate(list(parts))
    if len(near) > sample:
        near = np.random.default_rng(0).choice(near, sample, replace=False)
    origins = collection.planted(near).origins
    similarities, found = similarities_of(collection, near, origins), ~(kept[near] & kept[origins])

    def finding(name: str, least: float, limit: float) -> Finding:
        chosen = (similarities >= least) & (similarities < limit)
        return Finding(name, int(chosen.sum()), int((chosen & found).sum()))

    bins = zip(BINS[:-1], (*BINS[1:-1], 2.0), strict=True)
    return [
        finding(f"near, similarity {LEAST} and more", LEAST, 2.0),
        *(finding(f"of them {least} to {min(limit, 1.0)}", least, limit) for least, limit in bins),
        finding(f"planted below {LEAST}, which does not count", 0.0, LEAST),
    ]


def whole_findings(collection: Collection, kept: Flags) -> list[Finding]:
    """Return the found share of all exact copies, and the number of dropped originals."""
    exact, exact_found, originals, dropped = 0, 0, 0, 0
    for numbers, planted in chunks(collection, len(kept)):
        copies = planted.kinds == EXACT
        exact += int(copies.sum())
        exact_found += int((copies & ~(kept[numbers] & kept[planted.origins])).sum())
        originals += int((planted.kinds == ORIGINAL).sum())
        dropped += int(((planted.kinds == ORIGINAL) & ~kept[numbers]).sum())
    return [Finding("exact", exact, exact_found), Finding("no copies, dropped", originals, dropped)]


def chunks(collection: Collection, count: int) -> Iterator[tuple[Numbers, Planted]]:
    """Yield the numbers of the first `count` records and how they were made, a million at a time."""
    for first in range(0, count, CHUNK):
        numbers = np.arange(first, min(first + CHUNK, count))
        yield numbers, collection.planted(numbers)


def similarities_of(collection: Collection, first: Numbers, second: Numbers) -> npt.NDArray[np.float64]:
    """Return the similarity of each pair of records."""
    found = []
    for start in range(0, len(first), TEXTS):
        ones = collection.texts(first[start : start + TEXTS])
        others = collection.texts(second[start : start + TEXTS])
        found += [similarity(one, other) for one, other in zip(ones, others, strict=True)]
    return np.array(found, np.float64)
