from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.document import Ragged
from dedup_job.fingerprint.characters import encoded, offsets_of
from dedup_job.fingerprint.pieces import Pieces

BATCHES = st.lists(st.lists(st.text("ab中\U0001f600", min_size=1, max_size=4), max_size=40), max_size=4)


def given_as(pieces: Sequence[str]) -> Ragged:
    """Pieces as `segment.pieces` gives them, each followed by a space."""
    ended = [f"{piece} " for piece in pieces]
    return Ragged(offsets_of(ended), encoded("".join(ended)).copy())


@given(BATCHES)
def test_a_piece_has_its_number_from_when_it_is_first_met(batches: list[list[str]]) -> None:
    known, expected = Pieces(), dict[str, int]()
    for batch in batches:
        numbers, new = known.numbers(given_as(batch))
        assert new == "".join(f"{piece} " for piece in dict.fromkeys(batch) if piece not in expected)
        for piece in batch:
            expected.setdefault(piece, len(expected))
        assert numbers.tolist() == [expected[piece] for piece in batch]
    assert known.characters == sum(len(piece) + 1 for piece in expected)


def test_many_pieces_make_the_table_grow_and_keep_their_numbers() -> None:
    known, batch = Pieces(), [f"piece{number}" for number in range(10_000)]
    for start in range(0, len(batch), 1_000):
        known.numbers(given_as(batch[start : start + 1_000]))
    assert known.numbers(given_as(batch))[0].tolist() == list(range(len(batch)))


@given(st.lists(st.lists(st.integers(-2, 9), max_size=4), min_size=1, max_size=6), st.data())
def test_texts_have_the_rows_of_their_pieces(learned: list[list[int]], data: st.DataObject) -> None:
    """Rows below 0 are left out; pieces are learned in two parts."""
    known, middle = Pieces(), len(learned) // 2
    for part in (learned[:middle], learned[middle:]):
        rows = np.array([row for piece in part for row in (*piece, -9)], np.int64)
        known.learn(rows == -9, rows)
    texts = data.draw(st.lists(st.lists(st.integers(0, len(learned) - 1), max_size=5), max_size=4))
    offsets, rows = known.rows(offsets_of(texts), np.array([one for text in texts for one in text], np.int64))
    assert [rows[start:stop].tolist() for start, stop in pairwise(offsets)] == [
        [row for piece in text for row in learned[piece] if row >= 0] for text in texts
    ]
