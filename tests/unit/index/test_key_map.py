from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from dedup_job.index import key_map
from dedup_job.index.key_map import KeyMap
from dedup_job.index.key_map_search import Hits, KeyRule, Queries, Simhashes
from scripts.bench.index_memory import column_bytes

ANY = 64


def equal_prints(count: int) -> Simhashes:
    return Simhashes(np.zeros((count, 1), np.uint64), np.ones(count, bool))


def found(whole: KeyMap, keys: np.ndarray, texts: np.ndarray, count: int) -> list[tuple[int, int]]:
    """(query, number) pairs."""
    room = Hits(np.empty(1_000_000, np.uint64), np.zeros(1, np.int64))
    whole.search(keys, Queries(texts, equal_prints(len(texts))), equal_prints(count), room)
    numbers = np.sort(room.numbers[: room.total[0]])
    return [(int(one) >> 40, int(one) & 0xFFFF_FFFF) for one in numbers]


def added(rule: KeyRule, keys: np.ndarray, batch: int) -> KeyMap:
    whole = KeyMap(rule)
    for start in range(0, len(keys), batch):
        some = keys[start : start + batch]
        whole.add(some, np.ones(len(some), bool))
    return whole


@pytest.mark.parametrize("batch", [100, 7_500, 300_000])
def test_keys_stay_what_they_are_while_buckets_are_split(batch: int) -> None:
    keys = np.random.default_rng(1).integers(0, 1 << 32, 300_000, dtype=np.uint32)
    keys[150_000:] = keys[:150_000]
    whole = added(KeyRule(ANY, max_texts=10, max_hits=10, load=1), keys, batch)
    assert len(whole._entries.directory) > 2**18
    pairs = set(found(whole, keys[150_000:], np.arange(150_000, 300_000), 300_000))
    assert all((row, row) in pairs for row in range(150_000))


@pytest.mark.parametrize("full", [0.5, 2])
def test_a_full_bucket_takes_places_from_those_behind_it(full: float) -> None:
    keys = np.random.default_rng(1).integers(0, 1 << 32, 20_000, dtype=np.uint32)
    keys[5_000:10_000] >>= np.uint32(4)  # crowded in a sixteenth of the buckets
    keys[10_000:] = keys[:10_000]
    with mock.patch.object(key_map, "FULL", full):
        whole = added(KeyRule(ANY, 10, 10, 32), keys, 50)
    pairs = found(whole, keys[10_000:], np.arange(10_000, 20_000), 20_000)
    assert {(row, row) for row in range(10_000)} <= set(pairs)
    assert len(pairs) < 10_010


def test_a_query_finds_its_key_among_any_number_that_differ_in_their_middle_alone() -> None:
    keys = np.arange(30_000, dtype=np.uint32) % 60 << np.uint32(8) | np.uint32(0x55_0000_07)
    whole = added(KeyRule(ANY, 1_000, 1_000, 1 << 20), keys, 1_000)
    assert len(whole._entries.directory) == 257
    assert found(whole, keys[:1], np.array([0]), 30_000) == [(0, row) for row in range(60, 30_000, 60)]


def test_numbers_are_right_where_a_key_is_crowded_and_few_texts_are_entered() -> None:
    """A map of few entries whose texts have numbers of many bits."""
    keys = np.full(500_000, 7, np.uint32)
    keys[-1] = 0xFFFF_FFFF
    whole = added(KeyRule(ANY, 3, 3, 32), keys, 100_000)
    assert found(whole, keys[-2:], np.array([499_998, 0]), 500_000) == [(0, 0), (0, 1), (0, 2), (1, 499_999)]
    assert column_bytes(whole) < 200_000


def test_a_text_without_a_key_takes_a_number_and_is_not_found() -> None:
    whole = KeyMap(KeyRule(ANY, 10, 10, 1))
    whole.add(np.array([7, 7, 7], np.uint32), np.array([True, False, True]))
    assert found(whole, np.array([7], np.uint32), np.array([2]), 3) == [(0, 0)]


def test_six_bytes_for_each_text_and_what_the_directory_takes() -> None:
    whole = KeyMap(KeyRule(ANY, 256, 32, 32))
    keys = np.random.default_rng(1).integers(0, 1 << 32, 3_000_000, dtype=np.uint32)
    for part in np.array_split(keys, 300):
        whole.add(part, np.ones(len(part), bool))
    assert column_bytes(whole) / 3_000_000 < 7
