from __future__ import annotations

import numpy as np
import pytest

from dedup_job.native.arrays import Ragged
from dedup_job.spark.arrow_columns import ragged
from dedup_job.spark.decide_texts import COMPARED, similar

pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

SETS = {7: [1, 2, 3, 4], 9: [1, 2, 3], 1 << 40: [8, 9], 12: []}


def batch(orders: list[int], pairs: list[tuple[int, int]]) -> pa.RecordBatch:
    """Shingles of some texts, and pairs, as Spark brings them."""
    values = np.array([value for order in orders for value in SETS[order]], np.uint32)
    offsets = np.cumsum([0, *(len(SETS[order]) for order in orders)])
    shingles = ragged(Ragged(offsets, values)).to_pylist()
    rows = [{"order": order, "shingles": one} for order, one in zip(orders, shingles, strict=True)]
    rows += [{"text": text, "other": other, "distance": 5} for text, other in pairs]
    return pa.RecordBatch.from_pylist(rows[::-1], schema=COMPARED)


def test_pairs_find_the_shingles_of_their_texts_wherever_these_come() -> None:
    found = similar(
        [batch([7], [(7, 9), (9, 1 << 40)]), batch([1 << 40, 9, 7], [(12, 7)]), batch([12], [])], 0.7
    )
    assert found.to_pylist() == [{"text": 7, "other": 9, "distance": 5, "similarity": 0.75}]


def test_texts_without_pairs_give_nothing() -> None:
    assert len(similar([batch([7, 9], [])], 0.7)) == 0
    assert len(similar([], 0.7)) == 0
