"""Exempt records are unchecked, whatever the engine says of them; the others are left as they are."""

from __future__ import annotations

import numpy as np
import pytest

from dedup_job.errors import ConfigError
from dedup_job.mongo.ids import LONGEST_JUDGED
from dedup_job.native.arrays import Ragged
from dedup_job.pipeline.skip_restored_and_long_ids import LONGEST, skip_records
from dedup_job.records import Batch, Fingerprints, digests

RAWS = [bytes([n]) * 5 for n in range(4)]


def fingerprinted(batch: Batch) -> tuple[Batch, Fingerprints]:
    n = len(batch)
    shingles = Ragged(np.arange(n + 1), np.arange(n, dtype=np.uint32))
    yes, keys = np.ones(n, bool), np.full((n, 3), 5, np.uint32)
    bits, hashes = np.full((n, 2), 7, np.uint64), digests(batch.raws)
    return batch, Fingerprints(["", "", "empty", ""], bits, yes, keys, hashes, hashes, shingles, yes)


def prints_of(restored: set[bytes]) -> Fingerprints:
    batch = Batch([raw[:1] for raw in RAWS], RAWS)
    [(same, prints)] = skip_records([fingerprinted(batch)], restored.intersection)
    assert same is batch
    return prints


def test_a_restored_record_is_unchecked_and_has_no_fingerprint() -> None:
    prints = prints_of({b"\1", b"\2"})

    assert list(prints.reasons) == ["", "restored", "restored", ""]
    assert prints.has_fingerprint.tolist() == [True, False, False, True]
    assert prints.keys.tolist() == [[5] * 3, [0] * 3, [0] * 3, [5] * 3]
    assert prints.bits.tolist() == [[7, 7], [0, 0], [0, 0], [7, 7]]
    assert prints.hashes.tolist() == digests(RAWS).tolist()
    assert [row.tolist() for row in prints.shingles] == [[0], [], [], [3]]


def test_without_restored_records_nothing_changes() -> None:
    assert list(prints_of({b"\x09"}).reasons) == ["", "", "empty", ""]


def reason_of_an_id_of(size: int) -> str:
    batch = Batch([bytes(size), *(b"%d" % n for n in range(3))], RAWS)
    [(_, prints)] = skip_records([fingerprinted(batch)])
    return prints.reasons[0]


def test_a_record_with_a_long_id_is_unchecked_and_one_that_no_ledger_can_hold_ends_the_run() -> None:
    assert [reason_of_an_id_of(size) for size in (LONGEST_JUDGED, LONGEST_JUDGED + 1, LONGEST)] == [
        "",
        "long_id",
        "long_id",
    ]
    with pytest.raises(ConfigError, match=r"filter: a record has an _id of 7,340,033 bytes"):
        reason_of_an_id_of(LONGEST + 1)
