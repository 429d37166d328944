from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.native.arrays import Ragged
from dedup_job.spark.arrow_columns import ragged
from dedup_job.spark.decision_stages import COMPARED, dropped, similar

Graph = list[tuple[int, int]]  # edges: the later text, the earlier one


def dropped_of(graph: Iterable[tuple[int, int]]) -> list[int]:
    columns = np.array(list(graph), np.int64).reshape(-1, 2)
    found: list[int] = dropped(columns[:, 0], columns[:, 1]).tolist()
    return found


def keep_first(graph: Graph) -> list[int]:
    """Keep-first as it is said: in order, a text is dropped when an earlier kept one matches it."""
    earlier: dict[int, list[int]] = {}
    for later, other in graph:
        earlier.setdefault(later, []).append(other)
    gone: set[int] = set()
    for text in sorted(earlier):
        if any(other not in gone for other in earlier[text]):
            gone.add(text)
    return sorted(gone)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).filter(lambda edge: edge[0] > edge[1])))
def test_the_independent_set_is_what_keep_first_keeps(graph: Graph) -> None:
    assert dropped_of(graph) == keep_first(graph)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ([(n + 1, n) for n in range(9)], [1, 3, 5, 7, 9]),
        ([(n, 0) for n in range(1, 6)], [1, 2, 3, 4, 5]),
        ([(9, n) for n in range(5)], [9]),
        ([(a, b) for a in range(6) for b in range(a)], [1, 2, 3, 4, 5]),
        ([], []),
    ],
    ids=["chain", "star around the first", "star around the last", "clique", "nothing"],
)
def test_what_is_dropped_of_a_shape(graph: Graph, expected: list[int]) -> None:
    assert dropped_of(graph) == expected == keep_first(graph)


@pytest.mark.long
def test_a_million_texts_are_settled_as_the_plain_loop_does() -> None:
    rng = np.random.default_rng(7)
    later = rng.integers(1, 1_000_000, 1_500_000) << 20
    earlier = (rng.random(1_500_000) * (later >> 20)).astype(np.int64) << 20
    found = dropped(later, earlier)
    assert found.tolist() == keep_first(list(zip(later.tolist(), earlier.tolist(), strict=True)))


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
