from __future__ import annotations

import numpy as np

from dedup_job.match._found import Found
from dedup_job.match.keymap import KeyMap, Prints, Rule

ANY = 64


def equal_prints(count: int) -> Prints:
    return Prints(np.zeros((count, 1), np.uint64), np.ones(count, bool))


def found(whole: KeyMap, keys: np.ndarray, texts: np.ndarray, count: int) -> list[tuple[int, int]]:
    """(query, number) pairs."""
    room = Found(np.empty(1_000_000, np.uint64), np.zeros(1, np.int64))
    whole.search(keys, texts, equal_prints(count), room)
    numbers = np.sort(room.numbers[: room.total[0]])
    return [(int(one) >> 40, int(one) & 0xFFFF_FFFF) for one in numbers]


def test_keys_stay_what_they_are_while_buckets_are_split() -> None:
    keys = np.random.default_rng(1).integers(0, 1 << 32, 300_000, dtype=np.uint32)
    keys[150_000:] = keys[:150_000]
    whole = KeyMap(Rule(distance=ANY, listed=10, found=10, load=1))
    for start in range(0, 300_000, 7_500):
        whole.add(keys[start : start + 7_500], np.ones(7_500, bool))
    assert whole.buckets == 2**19
    queries = np.arange(150_000, 300_000)
    pairs = set(found(whole, keys[150_000:], queries, 300_000))
    assert all((row, row) in pairs for row in range(150_000))


def test_a_text_without_a_key_takes_a_number_and_is_not_found() -> None:
    whole = KeyMap(Rule(ANY, 10, 10, 1))
    whole.add(np.array([7, 7, 7], np.uint32), np.array([True, False, True]))
    assert found(whole, np.array([7], np.uint32), np.array([2]), 3) == [(0, 0)]


def test_six_bytes_for_each_text_and_what_the_directory_takes() -> None:
    whole = KeyMap(Rule(ANY, 256, 32, 32))
    keys = np.random.default_rng(1).integers(0, 1 << 32, 3_000_000, dtype=np.uint32)
    for part in np.array_split(keys, 300):
        whole.add(part, np.ones(len(part), bool))
    assert whole.nbytes / 3_000_000 < 7
