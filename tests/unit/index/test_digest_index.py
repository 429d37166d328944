from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.index.digest_index import DigestIndex
from dedup_job.records import digests
from scripts.bench.index_memory import column_bytes

# Few values in each part, so that homes, tags and whole digests collide.
WORDS = st.tuples(*[st.sampled_from([0, 1, 2**31, 2**32 - 1])] * 3)


def as_digests(words: list[tuple[int, ...]], last: int = 1) -> np.ndarray:
    """Digests of these first 96 bits, all with the same last 32."""
    rows = [(*row, last) for row in words]
    return np.array(rows, np.uint32).reshape(-1, 4).view(np.uint64)


def found(index: DigestIndex, wanted: np.ndarray) -> list[int]:
    return index.find(wanted).tolist()


@given(st.lists(st.lists(WORDS, max_size=20), max_size=6), st.lists(WORDS, max_size=12))
def test_the_answer_is_that_of_a_dictionary(
    chunks: list[list[tuple[int, ...]]], wanted: list[tuple[int, ...]]
) -> None:
    index, known = DigestIndex(), dict[tuple[int, ...], int]()
    for chunk in chunks:
        new = [row not in known and row not in chunk[:place] for place, row in enumerate(chunk)]
        numbers, is_new = index.number(as_digests(chunk))
        for row in chunk:
            known.setdefault(row, len(known))
        assert numbers.tolist() == [known[row] for row in chunk]
        assert is_new.tolist() == new
        assert found(index, as_digests(wanted)) == [known.get(row, -1) for row in wanted]
    assert len(index) == len(known)


@pytest.mark.parametrize("bit", range(128))
def test_texts_whose_digests_differ_in_any_one_bit_are_two(bit: int) -> None:
    index = DigestIndex()
    texts = np.arange(1, 5, dtype=np.uint64).reshape(2, 2)
    texts[1] = texts[0]
    texts[1, bit // 64] ^= np.uint64(1 << bit % 64)
    numbers, _ = index.number(texts)
    assert numbers.tolist() == [0, 1]


def test_which_digests_agree_in_the_index_is_different_in_each_index() -> None:
    """Else a writer could make texts for which 96 bits agree, and try them out at home."""
    index, other = DigestIndex(), DigestIndex()
    # With 1 in the last 32 bits, the index adds the upper half of each factor to the first 96.
    fitting = tuple((7 - int(factor >> np.uint64(32))) % 2**32 for factor in index._factors)
    both = np.concatenate([as_digests([(7, 7, 7)], last=0), as_digests([fitting], last=1)])
    assert index.number(both)[0].tolist() == [0, 0]
    assert other.number(both)[0].tolist() == [0, 1]


def test_zeros_are_no_text() -> None:
    index = DigestIndex()
    numbers, is_new = index.number(np.array([[1, 2], [0, 0], [1, 2], [3, 4]], np.uint64))
    assert (numbers.tolist(), is_new.tolist()) == ([0, -1, 0, 1], [True, False, False, True])


def test_every_text_is_found_while_the_table_is_made_anew_again_and_again() -> None:
    texts = digests(b"%d" % number for number in range(20_000))
    index = DigestIndex()
    for first in range(0, 20_000, 500):
        index.number(texts[first : first + 500])
        assert found(index, texts[first : first + 600])[:500] == [*range(first, first + 500)]
    assert found(index, texts) == [*range(20_000)]
    assert found(index, digests([b"x", b"y"])) == [-1, -1]


def test_the_end_of_the_table_continues_at_its_beginning() -> None:
    """All of these have their home in the last slot."""
    texts = as_digests([(number, 2**32 - 1, number) for number in range(50)], last=0)
    index = DigestIndex()
    index.number(texts)
    assert found(index, texts) == [*range(50)]


@pytest.mark.parametrize("count", [1_000_000, 1_200_000, 1_400_000])
def test_a_text_takes_less_than_eighteen_bytes(count: int) -> None:
    index = DigestIndex()
    rows = np.random.default_rng(1).integers(0, 1 << 64, (count, 2), dtype=np.uint64)
    for first in range(0, count, 50_000):
        index.number(rows[first : first + 50_000])
    assert column_bytes(index) / count < 18


def test_nothing_is_made_anew_while_there_is_the_room_that_was_asked_for() -> None:
    texts = digests(b"%d" % number for number in range(20_000))
    index = DigestIndex()
    index.reserve(20_000)
    nbytes = column_bytes(index)
    for first in range(0, 20_000, 500):
        index.number(texts[first : first + 500])
    assert column_bytes(index) == nbytes
    assert found(index, texts) == [*range(20_000)]


def test_room_for_too_few_texts_does_no_harm() -> None:
    texts = digests(b"%d" % number for number in range(5_000))
    index = DigestIndex()
    index.reserve(10)
    index.number(texts)
    index.reserve(100)
    assert found(index, texts) == [*range(5_000)]
