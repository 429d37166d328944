"""Ids as the records have them: an index has one NaN for all of them, a record the one that it was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pymongo.collection import Collection

from dedup_job.document import RAW
from dedup_job.mongo.client import Patience, named_errors
from dedup_job.mongo.ids import has_nan, id_of, plain_nans, portions, selector

NOT_OF_THE_INDEX = {"_id": 1, "-": 1}  # a field that is asked for makes the server look at the record


def stored_ids(
    collection: Collection[Any], what: str, patience: Patience, ids: Sequence[bytes]
) -> list[bytes]:
    """Return ids that came from the index as the records have them, in the same order."""
    records = collection.with_options(codec_options=RAW)
    stored: dict[bytes, bytes] = {}
    for some in portions(filter(has_nan, ids)):
        condition = selector(some)
        with named_errors(what):
            found = patience(lambda: list(records.find(condition, NOT_OF_THE_INDEX)))  # noqa: B023
        stored |= {plain_nans(raw_id): raw_id for raw_id in (id_of(bytes(one.raw)) for one in found)}
    return [stored.get(raw_id, raw_id) for raw_id in ids] if stored else list(ids)
