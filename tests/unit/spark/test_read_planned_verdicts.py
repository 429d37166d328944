from __future__ import annotations

import pytest

from dedup_job.errors import StateError
from dedup_job.spark.read_planned_verdicts import chunks, rows, so_far

pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

NEAR = [{"distance": 255, "other": 0, "similarity": 0.9, "is_kept": True, "id": b"a", "turn": 0}]

FIELDS = {"distance": pa.int64(), "other": pa.int64(), "similarity": pa.float64(), "is_kept": pa.bool_()}
MATCHES = pa.list_(pa.struct([*FIELDS.items(), ("id", pa.binary()), ("turn", pa.int64())]))


def table(*names: str) -> pa.Table:
    """What is expected of records with these names: `a` is kept, others are near it, `z` has no text."""
    orders = [ord(name) - ord("a") for name in names]
    columns = {
        "order": pa.array(orders, pa.int64()),
        "id": pa.array([name.encode() for name in names], pa.binary()),
        "text": pa.array(
            [None if name == "z" else order for name, order in zip(names, orders, strict=True)], pa.int64()
        ),
        "is_kept": pa.array([None if name == "z" else name == "a" for name in names], pa.bool_()),
        "turn": pa.array(orders, pa.int64()),
        "best_turn": pa.array(orders, pa.int64()),
        "best": pa.array([name.encode() for name in names], pa.binary()),
        "phase": pa.array([1] * len(names), pa.int64()),
        "preference": pa.array([b""] * len(names), pa.binary()),
        "matches": pa.array([None if name in "az" else NEAR for name in names], MATCHES),
        "reason": pa.array(["empty" if name == "z" else "" for name in names], pa.string()),
        "partial": pa.array([name == "z" for name in names]),
        "near": pa.array([True] * len(names), pa.bool_()),
    }
    for name, width in (("bits", 8), ("keys", 36), ("digest", 16), ("hash", 16)):
        columns[name] = pa.array([bytes(width)] * len(names), pa.binary())
    return pa.table(columns)


def names(tables: object) -> list[list[bytes]]:
    return [rows(one).ids for one in tables]  # type: ignore[attr-defined, misc]


def test_rows_are_cut_into_equal_pieces_wherever_files_end() -> None:
    files = [table("a", "b", "c"), table(), table("d"), table("e", "f", "g", "h")]
    assert names(chunks(files, 3)) == [[b"a", b"b", b"c"], [b"d", b"e", b"f"], [b"g", b"h"]]
    assert names(chunks([], 3)) == []


def test_rows_say_what_the_file_says() -> None:
    read = rows(table("a", "b", "z"))
    assert read.text.tolist() == [0, 1, -1]
    assert read.are_unique().tolist() == [True, False, False]
    assert [len(near) for near in read.near] == [0, 1, 0]
    assert (read.bits.shape, read.keys.shape, read.digests.shape) == ((3, 1), (3, 9), (3, 2))


def test_what_a_ledger_holds_is_gone_over_and_what_came_otherwise_is_noted() -> None:
    files = iter([table("a", "b"), table("c", "d"), table("e", "z")])
    decided = [([b"a", b"b"], {b"b"}), ([b"d"], set[bytes]())]
    deviations, rest = so_far(decided, files)
    assert deviations.standing == {0: None, 1: b"b"}
    assert names(rest) == [[], [b"e", b"z"]]


def test_a_ledger_that_holds_nothing_leaves_all() -> None:
    deviations, rest = so_far([], iter([table("a")]))
    assert not deviations.standing
    assert names(rest) == [[b"a"]]


def test_a_ledger_that_holds_something_else_is_not_gone_on_with() -> None:
    with pytest.raises(StateError, match="--engine local"):
        so_far([([b"other"], set())], iter([table("a", "b")]))
