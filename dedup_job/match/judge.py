"""Decide which records of one batch are unique, given the candidates of each; compiled.

Records are judged in order, because a record is a keeper for others only if it is kept itself.  The texts
that matter for a batch are numbered from 0 in order of first arrival, so of two equally near
texts the lower number is the earlier one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.match.similarity import Sets, Shingles, similarity_from
from dedup_job.native.compiled import compiled

Numbers = npt.NDArray[np.int64]


class Rows(NamedTuple):
    """The n records of a batch.

    Attributes:
        text: int64, shape (n,), number of the record's text; -1 if it cannot be judged.
        is_droppable: bool, shape (n,), whether the record may be dropped.
    """

    text: Numbers
    is_droppable: npt.NDArray[np.bool_]


class Near(NamedTuple):
    """The candidates of m texts, nearest and earliest first; text t has rows offsets[t] to offsets[t + 1].

    Attributes:
        offsets: int64, shape (m + 1,).
        texts: int64, numbers of the candidates.
        distances: int64, Hamming distances.
        similarities: float64; NaN for two texts of the batch, which are compared only when necessary.
    """

    offsets: Numbers
    texts: Numbers
    distances: Numbers
    similarities: npt.NDArray[np.float64]


class Own(NamedTuple):
    """The shingles of a batch, by text.

    Attributes:
        rows: int64, shape (m,), row of each text in `sets`; -1 for a text that is not in the batch.
        sets: The shingle sets.
    """

    rows: Numbers
    sets: Sets


class Judgement(NamedTuple):
    """The results for n records.

    Attributes:
        keeper: int64, shape (n,), text of the record's keeper, which may be its own text; -1 for a unique
            record.
        distance: int64, shape (n,), Hamming distance from the keeper.
        similarity: float64, shape (n,), similarity to the keeper; NaN where the texts were not compared.
    """

    keeper: Numbers
    distance: Numbers
    similarity: npt.NDArray[np.float64]


@compiled
def judge(
    rows: Rows, near: Near, own: Own, has_keeper: npt.NDArray[np.bool_], min_similarity: float
) -> Judgement:
    """Judge the records of a batch, in order.

    Worked example: text 0 has a keeper and the shingles {1, 2, 3}; text 1 has {1, 2, 3, 4} and the candidate
    0, text 2 has {7, 8} and no candidate, text 3 has {7, 8, 9, 10} and the candidate 2.  With
    `min_similarity` 0.7 and records with the texts 1, 2, 3 and 2, the keepers are 0, -1, -1 and 2.

    Args:
        rows: The records.
        near: The candidates of their texts.
        own: The shingles of their texts.
        has_keeper: bool, shape (m,), whether a record was kept for the text; set for texts of unique records.
        min_similarity: Least similarity of duplicates; with 0 the nearest candidate is taken without
            comparing.
    """
    n = len(rows.text)
    judgement = Judgement(np.full(n, -1), np.zeros(n, np.int64), np.full(n, np.nan))
    for row in range(n):
        text = rows.text[row]
        if text < 0:
            continue
        if rows.is_droppable[row]:
            if has_keeper[text]:
                judgement.keeper[row], judgement.similarity[row] = text, 1.0
                continue
            if _match_nearest(row, text, near, own, has_keeper, min_similarity, judgement):
                continue
        has_keeper[text] = True
    return judgement


@compiled
def _match_nearest(
    row: int,
    text: int,
    near: Near,
    own: Own,
    has_keeper: npt.NDArray[np.bool_],
    min_similarity: float,
    judgement: Judgement,
) -> bool:
    """Write the nearest candidate that has a keeper and is similar enough; return whether there is one."""
    for place in range(near.offsets[text], near.offsets[text + 1]):
        other = near.texts[place]
        if not has_keeper[other]:
            continue
        similarity = near.similarities[place]
        if min_similarity > 0:
            if np.isnan(similarity):
                similarity = similarity_from(_shingles(own, text), _shingles(own, other), min_similarity)
            if similarity < min_similarity:
                continue
        judgement.keeper[row], judgement.distance[row] = other, near.distances[place]
        judgement.similarity[row] = similarity
        return True
    return False


@compiled
def _shingles(own: Own, text: int) -> Shingles:
    row = own.rows[text]
    return own.sets.values[own.sets.offsets[row] : own.sets.offsets[row + 1]]
