"""How many of the copies that were planted in a made-up collection a run has found.

A copy is found when it and its original were not both kept.  A near copy counts when its similarity is 0.8
and more; that is computed from the two texts, by sets of shingles, for a random sample of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from pymongo import MongoClient

from scripts.made_up import EXACT, NEAR, ORIGINAL, Collection, Flags, Numbers, Planted, numbers_of, similarity
from scripts.measure import DATABASE

LEAST = 0.8
CHUNK = 1_000_000  # records looked at together
TEXTS = 1_000  # pairs of texts held together
BINS = (0.8, 0.85, 0.9, 1.0)


@dataclass(frozen=True, slots=True)
class Finding:
    """So many records of a kind, and how many of them were found."""

    kind: str
    records: int
    found: int

    @property
    def share(self) -> float:
        """The share that was found; nan where there was nothing to find."""
        return self.found / self.records if self.records else float("nan")


def kept_of(uri: str, count: int) -> Flags:
    """Return which of so many records the target holds; its ids are read in one pass."""
    kept = np.zeros(count, np.bool_)
    with MongoClient[dict[str, Any]](uri) as client:
        for ids in client[DATABASE].unique.find_raw_batches({}, {"_id": 1}, batch_size=100_000):
            kept[numbers_of(cast(bytes, ids))] = True
    return kept


def findings(collection: Collection, kept: Flags, sample: int) -> list[Finding]:
    """Return what was found of the near copies, of the exact ones, and what was dropped beside them."""
    return [*near_findings(collection, kept, sample), *whole_findings(collection, kept)]


def near_findings(collection: Collection, kept: Flags, sample: int) -> list[Finding]:
    """Return what was found of so many near copies, in all and by similarity."""
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
    """Return what was found of all exact copies, and how many originals were dropped."""
    exact, exact_found, originals, dropped = 0, 0, 0, 0
    for numbers, planted in chunks(collection, len(kept)):
        copies = planted.kinds == EXACT
        exact += int(copies.sum())
        exact_found += int((copies & ~(kept[numbers] & kept[planted.origins])).sum())
        originals += int((planted.kinds == ORIGINAL).sum())
        dropped += int(((planted.kinds == ORIGINAL) & ~kept[numbers]).sum())
    return [Finding("exact", exact, exact_found), Finding("no copies, dropped", originals, dropped)]


def chunks(collection: Collection, count: int) -> Iterator[tuple[Numbers, Planted]]:
    """Yield the numbers of so many records, and what they are, a million at a time."""
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
