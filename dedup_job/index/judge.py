"""Decide which records of a batch are unique, given the candidates of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.index.shingle_similarity import ShingleSets, row_similarity
from dedup_job.native.arrays import Flags, Numbers
from dedup_job.native.numba_compile import compiled

# The similarity to a text whose keeper is missing, so that its shingles could not be fetched.
MISSING_KEEPER = -1.0


@dataclass(frozen=True, slots=True)
class BatchNeighbours:
    """Everything that decides a batch of n records.

    It concerns m texts: the batch's own and their candidates.  They are counted from 0 here, as in
    `judge`, in ascending order of their numbers.

    Attributes:
        texts: int64, shape (m,), their numbers among all texts.
        had_keeper: bool, shape (m,), whether a record was kept for the text before this batch.
        rows: int64, shape (n,), index of each record's text; -1 for a record without a text.
        near: The candidates of each text.
        own: The shingles of the batch.
    """

    texts: Numbers
    had_keeper: Flags
    rows: Numbers
    near: NearTexts
    own: BatchShingles

    def judge(self, is_droppable: Flags, min_similarity: float) -> Judgement:
        """Judge the records in order.

        Args:
            is_droppable: bool, shape (n,), whether the record may be dropped.
            min_similarity: Least similarity of duplicates.
        """
        # A copy: the judge marks the texts that get a keeper.
        has_keeper = self.had_keeper.copy()
        judgement: Judgement = judge(self.rows, is_droppable, self.near, self.own, has_keeper, min_similarity)
        return judgement

    def earlier_keepers_of(self, judgement: Judgement) -> Numbers:
        """Return the texts whose earlier keepers a judgement relies on, int64.

        Those are the keepers of duplicates, and keepers whose shingles could not be fetched: such a record is
        missing or changed, and another one may have this text.
        """
        is_relied_on = np.zeros(len(self.texts), np.bool_)
        is_relied_on[self.near.texts[self.near.similarities == MISSING_KEEPER]] = True
        is_relied_on[judgement.keeper[judgement.keeper >= 0]] = True
        texts: Numbers = self.texts[is_relied_on & self.had_keeper]
        return texts


class NearTexts(NamedTuple):
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


class BatchShingles(NamedTuple):
    """The shingles of a batch, by text.

    Attributes:
        rows: int64, shape (m,), row of each text in `sets`; -1 for a text that is not in the batch.
        sets: The shingle sets.
    """

    rows: Numbers
    sets: ShingleSets


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
    texts: Numbers,
    is_droppable: Flags,
    near: NearTexts,
    own: BatchShingles,
    has_keeper: Flags,
    min_similarity: float,
) -> Judgement:
    """Judge the records of a batch, in order.

    Worked example: text 0 has a keeper and the shingles {1, 2, 3}; text 1 has {1, 2, 3, 4} and the candidate
    0, text 2 has {7, 8} and no candidate, text 3 has {7, 8, 9, 10} and the candidate 2.  With
    `min_similarity` 0.7 and records with the texts 1, 2, 3 and 2, the keepers are 0, -1, -1 and 2.

    Args:
        texts: int64, shape (n,), number of each record's text; -1 if it cannot be judged.
        is_droppable: bool, shape (n,), whether the record may be dropped.
        near: The candidates of their texts.
        own: The shingles of their texts.
        has_keeper: bool, shape (m,), whether a record was kept for the text; set for texts of unique records.
        min_similarity: Least similarity of duplicates; with 0 the nearest candidate is taken without
            comparing.
    """
    n = len(texts)
    judgement = Judgement(np.full(n, -1), np.zeros(n, np.int64), np.full(n, np.nan))
    for row in range(n):
        text = texts[row]
        if text < 0:
            continue
        if is_droppable[row]:
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
    near: NearTexts,
    own: BatchShingles,
    has_keeper: Flags,
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
                similarity = row_similarity(
                    own.sets, own.rows[text], own.sets, own.rows[other], min_similarity
                )
            if similarity < min_similarity:
                continue
        judgement.keeper[row], judgement.distance[row] = other, near.distances[place]
        judgement.similarity[row] = similarity
        return True
    return False
