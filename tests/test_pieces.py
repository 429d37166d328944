from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.fingerprint.pieces import Pieces
from dedup_job.text.characters import offsets_of


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
