from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.index.key_map_buckets import clear_first_mark, first_mark, match_tags, repeat_tag
from dedup_job.native.numba_compile import compiled

BYTES = st.integers(0, 255)


@compiled
def places(word: np.uint64, tag: int, fixed: int) -> list[int]:
    marks, found = match_tags(word, repeat_tag(tag), repeat_tag(fixed)), [np.int64(0) for _ in range(0)]
    while marks:
        found.append(first_mark(marks))
        marks = clear_first_mark(marks)
    return found


@given(st.lists(BYTES, min_size=8, max_size=8), BYTES, BYTES, st.lists(st.integers(0, 8), max_size=8))
def test_tags_are_alike_that_differ_in_one_bit_and_in_no_fixed_one(
    tags: list[int], tag: int, fixed: int, near: list[int]
) -> None:
    for place, bit in enumerate(near):
        tags[place] = tag ^ (1 << bit & 0xFF)
    word = np.array(tags, np.uint8).view("<u8")[0]
    expected = [
        place for place, one in enumerate(tags) if (one ^ tag).bit_count() <= 1 and (one ^ tag) & fixed == 0
    ]
    assert places(word, tag, fixed) == expected


def test_the_example_of_tags_that_are_alike() -> None:
    assert places(np.uint64(0x00_11_10_31_91_12_D1_F1), 0x11, 1) == [3, 4, 6]
