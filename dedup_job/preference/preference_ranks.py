"""Ranks: which of two matching records `[match] prefer` keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import nan
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.errors import BSONError
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument

from dedup_job.preference.id_order import TOP_BIT, is_nan, order_of_float, tie_key
from dedup_job.preference.preference_rule import LENGTH, PreferRule
from dedup_job.records import RAW, Unchecked
from dedup_job.text.fields import ABSENT, find_value, kind_of

Ranks = npt.NDArray[np.uint64]  # (n, rules)

# A missing value loses against every other value.
MISSING: Final = 0
# The rank of records that are never dropped, such as the target's own: no record is better.
BEST: Final = (1 << 64) - 1
# Orders that prefer the smaller value.
SMALLER_FIRST: Final = ("oldest", "ascending")

# The kind of a value that a record lacks.
NOTHING: Final = "nothing"
_RANK_BYTES: Final = 8


def rank_records(raws: Sequence[bytes], lengths: Sequence[int], rules: Sequence[PreferRule]) -> Ranks:
    """Return the ranks of records: of two records, the one with the greater row is better.

    Args:
        raws: n raw records.
        lengths: Characters of their cleaned texts; 0 for a record without a text.
        rules: The rules, the most important first.

    Returns:
        uint64, shape (n, rules); MISSING where a record lacks the value, or has one of another type.
    """
    ranks = np.zeros((len(raws), len(rules)), np.uint64)
    for place, rule in enumerate(rules):
        if rule.order == LENGTH:
            ranks[:, place] = np.array(lengths, np.uint64)
        else:
            ranks[:, place] = [_rank(_value_for(raw, rule), rule) for raw in raws]
    return ranks


def _value_for(raw: bytes, rule: PreferRule) -> Any:
    """Return the value that a rule compares; `ABSENT` if the record lacks it or it cannot be read."""
    try:
        return find_value(RawBSONDocument(raw, RAW), tuple((rule.field or "_id").split(".")))
    except (BSONError, IndexError, Unchecked):
        return ABSENT


def _rank(found: Any, rule: PreferRule) -> int:
    """Return the rank of a value by a rule, from 1 on; MISSING for a value that the rule cannot compare."""
    if not _is_wanted(found, rule):
        return MISSING
    if rule.wanted == "number":
        ordered = order_of_float(_as_float(found))
    else:
        # The first four bytes of an ObjectId are seconds since 1970; a date has milliseconds.
        time = int.from_bytes(found.binary[:4]) if isinstance(found, ObjectId) else int(found)
        ordered = max(1, TOP_BIT + time)
    # The greatest rank is left to records that are never dropped.
    ordered = min(ordered, BEST - 1)
    return BEST - ordered if rule.order in SMALLER_FIRST else ordered


def _is_wanted(found: Any, rule: PreferRule) -> bool:
    if rule.wanted == "ObjectId":
        return isinstance(found, ObjectId)
    if rule.wanted == "date":
        return isinstance(found, DatetimeMS)
    is_number = isinstance(found, (int, float, Decimal128)) and not isinstance(found, bool)
    return is_number and not is_nan(_as_float(found))


def _as_float(number: int | float | Decimal128) -> float:
    exact = number.to_decimal() if isinstance(number, Decimal128) else number
    return nan if is_nan(exact) else float(exact)


def best_first(ranks: Ranks, ids: Sequence[bytes]) -> npt.NDArray[np.intp]:
    """Return the rows of n records, the best first.

    Args:
        ranks: uint64, shape (n, rules).
        ids: Their raw ids.
    """
    ties = sorted(range(len(ids)), key=lambda row: tie_key(ids[row]))
    place = np.empty(len(ids), np.int64)
    place[ties] = np.arange(len(ids))
    # The last key counts most, and `lexsort` sorts upwards.
    order: npt.NDArray[np.intp] = np.lexsort([place, *(~ranks).T[::-1]])
    return order


def pack_rank(rank: npt.NDArray[np.uint64]) -> bytes:
    """Return a record's rank as bytes that sort like it."""
    return rank.astype(">u8").tobytes()


def unpack_ranks(packed: Iterable[bytes], rules: int) -> Ranks:
    """Return the ranks of records from their packed form, uint64 (n, rules)."""
    joined = b"".join(packed)
    return np.frombuffer(joined, ">u8").astype(np.uint64).reshape(-1, rules)


def preference_keys(ids: Sequence[bytes], ranks: Ranks | None, first: int) -> list[bytes]:
    """Return bytes for each record by which Spark sorts best first; empty bytes without `[match] prefer`.

    Reference records come before all others, in reading order.

    Args:
        ids: Raw ids of n records.
        ranks: uint64, shape (n, rules).
        first: `order` of the first record; the others count up from it.
    """
    if ranks is None:
        return [b""] * len(ids)
    # Inverted, as the greater rank is better, and big-endian, as bytes are compared from the first on.
    inverted = (~ranks).astype(">u8")
    is_reference = (ranks == BEST).all(axis=1).tolist()
    return [
        inverted[row].tobytes() + ((first + row).to_bytes(8) if is_reference[row] else tie_key(raw_id))
        for row, raw_id in enumerate(ids)
    ]


def ranks_in(keys: Sequence[bytes], rules: int) -> Ranks:
    """Return the ranks in preference keys: uint64, shape (n, rules)."""
    # Records that could not be fingerprinted have no rank: they get zeros, inverted.
    size = _RANK_BYTES * rules
    return ~unpack_ranks((key[:size] or b"\xff" * size for key in keys), rules)


def count_kinds(raws: Iterable[bytes], rule: PreferRule) -> Counter[str]:
    """Count what records have where a rule expects a value: `rule.wanted`, NOTHING, or another kind."""
    return Counter(_kind(_value_for(raw, rule), rule) for raw in raws)


def _kind(found: Any, rule: PreferRule) -> str:
    if found is ABSENT or found is None:
        return NOTHING
    if _is_wanted(found, rule):
        return rule.wanted
    return "text" if type(found) is str else kind_of(found)
