"""Example plans in the ledger's format."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
from bson import encode
from bson.binary import Binary
from bson.code import Code
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp
from hypothesis import strategies as st

from dedup_job.ledger.plan_format import PlanId, StoredPlan
from dedup_job.mongo.ids import document
from dedup_job.records import UNIQUE, Action, KeeperMatch, Plan, Verdict

VALUES: list[Any] = [
    None, True, 7, Int64(7), 7.0, float("nan"), Decimal128("7"), "", "文", "a\0b", ObjectId(b"0" * 12),
    datetime(2026, 1, 2, tzinfo=UTC), Timestamp(1, 2), b"bytes", Binary(b"x", 128), Regex("a", "i"),
    Code("f"), Code("f", {"a": 1}), MinKey(), MaxKey(), {}, {"$gt": ""}, {"a": {"b": [1]}},
]  # fmt: skip
UNUSUAL = [
    b"\x0e_id\0\x02\0\0\0a\0",
    b"\x06_id\0",
    b"\x0c_id\0\x02\0\0\0a\0" + bytes(12),
    b"\x02_id\0\x02\0\0\0\xff\0",
]
IDS = st.sampled_from([*(encode({"_id": one}) for one in VALUES), *map(document, UNUSUAL)])
# A similarity is a fraction of two counts, so that is what must come back.
JACCARDS = st.none() | st.tuples(st.integers(0, 5_000), st.integers(1, 5_000)).map(
    lambda pair: min(pair) / max(pair)
)
MATCHES = st.builds(KeeperMatch, IDS, st.none() | st.integers(0, 254), JACCARDS)
VERDICTS = st.one_of(
    st.just(UNIQUE),
    st.builds(Verdict, st.just(Action.DUPLICATE), st.sampled_from(["exact", "near"]), MATCHES),
    st.builds(
        Verdict,
        st.sampled_from([Action.UNCHECKED, Action.REFUSED]),
        st.sampled_from(["empty", "not_text:list", "poison", "文"]),
    ),
)
PLAN_IDS = st.builds(PlanId, st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 99))
TIMES = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)).map(
    lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000)
)


@st.composite
def stored_plans(draw: st.DrawFn) -> StoredPlan:
    verdicts = draw(st.lists(VERDICTS, min_size=1, max_size=8))
    n, words = len(verdicts), draw(st.sampled_from([1, 2]))

    def column(width: int) -> np.ndarray:
        values = draw(st.lists(st.integers(0, 2**64 - 1), min_size=n * width, max_size=n * width))
        return np.array(values, np.uint64).reshape(n, width)

    bands = draw(st.integers(0, 3))
    keys = draw(st.lists(st.integers(0, 2**32 - 1), min_size=n * bands, max_size=n * bands))
    plan = Plan(
        ids=draw(st.lists(IDS, min_size=n, max_size=n)),
        verdicts=verdicts,
        bits=column(words),
        has_fingerprint=np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool),
        keys=np.array(keys, np.uint32).reshape(n, bands),
        digests=column(2),
        hashes=column(2),
        ranks=column(rules) if (rules := draw(st.integers(0, 2))) else None,
        displaced=draw(st.lists(IDS, max_size=3)) if rules else [],
    )
    previous = draw(st.none() | PLAN_IDS)
    return StoredPlan(
        draw(PLAN_IDS),
        previous,
        "20260101T000000-abcd",
        draw(st.sampled_from(["run", "backfill", "replace"])),
        draw(TIMES),
        plan,
    )


def example() -> StoredPlan:
    column = np.arange(4, dtype=np.uint64).reshape(2, 2)
    verdicts = [UNIQUE, Verdict(Action.DUPLICATE, "near", KeeperMatch(encode({"_id": 1}), 3, 0.5))]
    ids, keys = [encode({"_id": 1}), encode({"_id": 2})], np.array([[1], [2]], np.uint32)
    plan = Plan(ids, verdicts, column[:, :1], np.ones(2, bool), keys, column, column)
    return StoredPlan(PlanId(5, 2), PlanId(4, 2), "run", "run", datetime(2026, 1, 2, tzinfo=UTC), plan)
