"""Decide which records of a batch are unique, given the candidates of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.recipe import Matching
from dedup_job.index.keeper_of_each_text import Keepers
from dedup_job.index.similarity import ShingleSets, row_similarity, set_sizes, similarities_at_least
from dedup_job.native.numba_compile import compiled
from dedup_job.records import Fingerprints

Numbers = npt.NDArray[np.int64]
AreBetter = Callable[[Numbers, Numbers], npt.NDArray[np.bool_]]

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
    had_keeper: npt.NDArray[np.bool_]
    rows: Numbers
    near: NearTexts
    own: BatchShingles

    def judge(self, is_droppable: npt.NDArray[np.bool_], min_similarity: float) -> Judgement:
        """Judge the records in order.

        Args:
            is_droppable: bool, shape (n,), whether the record may be dropped.
            min_similarity: Least similarity of duplicates.
        """
        records = BatchRows(self.rows, is_droppable)
        # A copy: the judge marks the texts that get a keeper.
        has_keeper = self.had_keeper.copy()
        judgement: Judgement = judge(records, self.near, self.own, has_keeper, min_similarity)
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


def find_batch_neighbours(
    prints: Fingerprints, texts: Numbers, matching: Matching, keepers: Keepers
) -> BatchNeighbours:
    """Find everything that the records of a batch may be duplicates of.

    Candidates outside the batch are compared here; two texts of the batch only when the judge needs it.

    Args:
        prints: The records, n of them.
        texts: int64, shape (n,), the numbers of their texts; -1 for a record without a text.
        matching: What counts as a duplicate.
        keepers: All texts so far, including the batch's own.
    """
    own, first_row = np.unique(texts, return_index=True)
    own, first_row = own[own >= 0], first_row[own >= 0]
    # A text that has a keeper already is an exact duplicate: no candidates needed.
    is_open = ~keepers.have_keeper(own)
    candidates = keepers.candidates(own[is_open], prints.keys[first_row[is_open]])
    counts = np.diff(candidates.offsets)
    of_text, of_row = np.repeat(own[is_open], counts), np.repeat(first_row[is_open], counts)
    others = candidates.texts.astype(np.int64)
    is_own = are_in(own, others)
    # A text without a keeper gets one only in this batch, or never.
    is_possible = keepers.have_keeper(others) | is_own
    of_text, of_row, others = of_text[is_possible], of_row[is_possible], others[is_possible]
    is_elsewhere = ~is_own[is_possible]

    all_texts = np.union1d(own, others)
    rows = np.where(texts < 0, -1, np.searchsorted(all_texts, texts))
    own_rows = np.full(len(all_texts), -1)
    own_rows[np.searchsorted(all_texts, own)] = first_row
    sets = ShingleSets(prints.shingles.offsets, prints.shingles.values, keepers.group_words)
    similarities = np.full(len(others), np.nan)
    if matching.min_similarity:
        similarities[is_elsewhere] = compare(
            of_row[is_elsewhere], others[is_elsewhere], sets, matching.min_similarity, keepers
        )
    return BatchNeighbours(
        texts=all_texts,
        had_keeper=keepers.have_keeper(all_texts),
        rows=rows,
        near=NearTexts(
            # `of_text` ascends; `keepers.texts` is above every number and ends the last text's candidates.
            offsets=np.searchsorted(of_text, np.append(all_texts, keepers.texts)),
            texts=np.searchsorted(all_texts, others),
            distances=candidates.distances[is_possible].astype(np.int64),
            similarities=similarities,
        ),
        own=BatchShingles(own_rows, sets),
    )


def find_single_neighbours(
    prints: Fingerprints, matching: Matching, keepers: Keepers, are_better: AreBetter | None = None
) -> BatchNeighbours:
    """Find everything that each record would be a duplicate of if it alone came next; add no text.

    A record whose text has no keeper gets a text of its own here, numbered behind all others, which is
    nobody's candidate.

    Args:
        prints: The records.
        matching: What counts as a duplicate.
        keepers: All texts so far.
        are_better: Returns, for rows of records and numbers of texts with a keeper, which records are better
            than the keeper.  They are no duplicates of it.
    """
    numbers = keepers.find_texts(prints.digests)
    is_kept = numbers >= 0
    is_kept[is_kept] = keepers.have_keeper(numbers[is_kept])
    if are_better:
        kept = np.flatnonzero(is_kept)
        is_kept[kept] = ~are_better(kept, numbers[kept])
    is_open = prints.digests.any(axis=1) & ~is_kept
    open_rows = np.flatnonzero(is_open)
    queries = np.where(numbers < 0, keepers.texts, numbers)[open_rows]
    candidates = keepers.candidates_of(queries, prints.take(open_rows.tolist()))
    of_row, others = np.repeat(open_rows, np.diff(candidates.offsets)), candidates.texts.astype(np.int64)
    is_possible = keepers.have_keeper(others)
    if are_better:
        possible = np.flatnonzero(is_possible)
        is_possible[possible] = ~are_better(of_row[possible], others[possible])
    of_row, others = of_row[is_possible], others[is_possible]

    kept_texts = np.union1d(numbers[is_kept], others)
    rows = np.full(len(prints), -1)
    rows[is_kept] = np.searchsorted(kept_texts, numbers[is_kept])
    rows[open_rows] = len(kept_texts) + np.arange(len(open_rows))
    sets = ShingleSets(prints.shingles.offsets, prints.shingles.values, keepers.group_words)
    similarities = np.full(len(others), np.nan)
    if matching.min_similarity:
        similarities = compare(of_row, others, sets, matching.min_similarity, keepers)
    # Texts with a keeper have no candidates; the candidates of the open rows follow.
    no_candidates = np.zeros(len(kept_texts), np.int64)
    return BatchNeighbours(
        texts=np.append(kept_texts, keepers.texts + np.arange(len(open_rows))),
        had_keeper=np.arange(len(kept_texts) + len(open_rows)) < len(kept_texts),
        rows=rows,
        near=NearTexts(
            offsets=np.append(no_candidates, np.searchsorted(of_row, np.append(open_rows, len(prints)))),
            texts=np.searchsorted(kept_texts, others),
            distances=candidates.distances[is_possible].astype(np.int64),
            similarities=similarities,
        ),
        own=BatchShingles(np.append(np.full(len(kept_texts), -1), open_rows), sets),
    )


def are_in(ascending: Numbers, values: Numbers) -> npt.NDArray[np.bool_]:
    """Return which values are in a sorted array of numbers from 0 on."""
    places = np.searchsorted(ascending, values)
    # The appended -1 equals no value: it stands behind the array for values above its last number.
    is_in: npt.NDArray[np.bool_] = np.append(ascending, -1)[places] == values
    return is_in


def compare(
    rows: Numbers, others: Numbers, sets: ShingleSets, least: float, keepers: Keepers
) -> npt.NDArray[np.float64]:
    """Compare records with texts of keepers, some of the keepers' shingles at a time.

    Args:
        rows: int64, shape (p,), a row in `sets` for each pair.
        others: int64, shape (p,), the number of a text for each pair.
        sets: The shingles of the batch.
        least: Similarity from which exact values are needed.
        keepers: Where the shingles of the other texts come from.

    Returns:
        float64, shape (p,); MISSING_KEEPER where a keeper's shingles are not available.
    """
    similarities = np.full(len(rows), MISSING_KEEPER)
    # Most candidates of long texts are far from similar, and their shingles may have to be fetched.
    is_possible = keepers.can_be_similar(set_sizes(sets)[rows], others, least)
    similarities[~is_possible] = 0.0
    for known in keepers.shingles(np.unique(others[is_possible]).tolist()):
        order = np.argsort(known.texts)
        texts = known.texts[order]
        pairs = np.flatnonzero(are_in(texts, others))
        other_rows = order[np.searchsorted(texts, others[pairs])]
        other_sets = ShingleSets(known.sets.offsets, known.sets.values, keepers.group_words)
        similarities[pairs] = similarities_at_least(sets, rows[pairs], other_sets, other_rows, least)
    return similarities


class BatchRows(NamedTuple):
    """The n records of a batch.

    Attributes:
        text: int64, shape (n,), number of the record's text; -1 if it cannot be judged.
        is_droppable: bool, shape (n,), whether the record may be dropped.
    """

    text: Numbers
    is_droppable: npt.NDArray[np.bool_]


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
    rows: BatchRows,
    near: NearTexts,
    own: BatchShingles,
    has_keeper: npt.NDArray[np.bool_],
    min_similarity: float,
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
    near: NearTexts,
    own: BatchShingles,
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
                similarity = row_similarity(
                    own.sets, own.rows[text], own.sets, own.rows[other], min_similarity
                )
            if similarity < min_similarity:
                continue
        judgement.keeper[row], judgement.distance[row] = other, near.distances[place]
        judgement.similarity[row] = similarity
        return True
    return False
