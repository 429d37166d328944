"""For each record of a batch, find better records that it may duplicate, and worse keepers that it displaces.

With `[match] prefer`, every match points from the better record to the worse one: a record is dropped if a
better kept record matches it.  Ranks order all records, so no cycle is possible, and exactly one set of
records fits: the set that keep-first gives when all records are sorted best first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.preference_ranks import BEST, best_first, tie_key
from dedup_job.fingerprint.recipe import Matching
from dedup_job.index.judge import (
    MISSING_KEEPER,
    BatchNeighbours,
    BatchShingles,
    Judgement,
    NearTexts,
    Numbers,
    are_in,
    compare,
)
from dedup_job.index.keeper_of_each_text import KeeperRef, Keepers
from dedup_job.index.similarity import ShingleSets, similarities_at_least
from dedup_job.records import Fingerprints

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RankedBatch:
    """The records of a batch, with everything that says which of them is better.

    Attributes:
        ids: Their raw ids, n of them.
        prints: Their fingerprints.
        ranks: uint64, shape (n, rules).
        texts: int64, shape (n,), the numbers of their texts; -1 for a record without a text.
    """

    ids: Sequence[bytes]
    prints: Fingerprints
    ranks: npt.NDArray[np.uint64]
    texts: Numbers


@dataclass(frozen=True, slots=True)
class BetterNeighbours:
    """Everything that decides a batch of n records, best first.

    Attributes:
        order: int64, shape (n,), the rows of the batch, best first.
        neighbours: The neighbours of the records in that order: the batch's own texts, and better keepers.
        own: int64, shape (m,), the numbers of the batch's texts, ascending.
        first_row: int64, shape (m,), a row of the batch with each text.
        is_overtaken: bool, shape (m,), whether a record of the batch is better than the text's keeper.
        worse: int64, shape (p, 2), pairs of a text of the batch, by its place in `own`, and the number of a
            candidate whose keeper is worse.
    """

    order: npt.NDArray[np.intp]
    neighbours: BatchNeighbours
    own: Numbers
    first_row: Numbers
    is_overtaken: Flags
    worse: Numbers

    def find_displaced(
        self, judgement: Judgement, prints: Fingerprints, matching: Matching, keepers: Keepers
    ) -> list[KeeperRef]:
        """Return the keepers that must be decided again, because a better record of the batch is kept.

        Args:
            judgement: The judgement of the records, in `order`.
            prints: The fingerprints of the batch.
            matching: What counts as a duplicate.
            keepers: All records kept so far.
        """
        neighbours = self.neighbours
        is_kept = np.zeros(len(neighbours.texts), np.bool_)
        is_kept[neighbours.rows[(neighbours.rows >= 0) & (judgement.keeper < 0)]] = True
        pairs = self.worse[is_kept[np.searchsorted(neighbours.texts, self.own[self.worse[:, 0]])]]
        similarities = self._compare(pairs, prints, matching.min_similarity, keepers)
        matching_texts = pairs[similarities >= matching.min_similarity, 1]
        displaced = np.unique(np.concatenate([self.own[self.is_overtaken], matching_texts]))
        return [KeeperRef(text, keepers.id(text)) for text in displaced.tolist()]

    def _compare(
        self, pairs: Numbers, prints: Fingerprints, least: float, keepers: Keepers
    ) -> npt.NDArray[np.float64]:
        """Return the similarity of each pair; MISSING_KEEPER where a keeper's text is not available."""
        if not least:
            return np.ones(len(pairs))
        sets = ShingleSets(prints.shingles.offsets, prints.shingles.values, keepers.group_words)
        rows, others = self.first_row[pairs[:, 0]], pairs[:, 1]
        similarities = np.full(len(pairs), MISSING_KEEPER)
        is_own = are_in(self.own, others)
        own_rows = self.first_row[np.searchsorted(self.own, others[is_own])]
        similarities[is_own] = similarities_at_least(sets, rows[is_own], sets, own_rows, least)
        similarities[~is_own] = compare(rows[~is_own], others[~is_own], sets, least, keepers)
        return similarities


def find_better_neighbours(batch: RankedBatch, matching: Matching, keepers: Keepers) -> BetterNeighbours:
    """Find the better keepers that the records of a batch may be duplicates of, and the worse keepers.

    Args:
        batch: The records.
        matching: What counts as a duplicate.
        keepers: All texts so far, including the batch's own.
    """
    prints, texts = batch.prints, batch.texts
    order = best_first(batch.ranks, batch.ids)
    # In order of rank, so that the first row with a text is its best record.
    own, place = np.unique(texts[order], return_index=True)
    best_row = order[place][own >= 0]
    own = own[own >= 0]
    has_keeper = keepers.have_keeper(own)
    is_overtaken = np.zeros(len(own), np.bool_)
    kept = np.flatnonzero(has_keeper)
    is_overtaken[kept] = are_better(batch.ids, batch.ranks, best_row[kept], own[kept], keepers)
    # The other texts with a keeper need no candidates: their records are exact duplicates.
    is_open = ~has_keeper | is_overtaken

    candidates = keepers.candidates(own[is_open], prints.keys[best_row[is_open]])
    of = np.repeat(np.flatnonzero(is_open), np.diff(candidates.offsets))
    others = candidates.texts.astype(np.int64)
    other_has_keeper = keepers.have_keeper(others)
    is_worse = np.zeros(len(others), np.bool_)
    kept = np.flatnonzero(other_has_keeper)
    is_worse[kept] = are_better(batch.ids, batch.ranks, best_row[of[kept]], others[kept], keepers)
    is_own_open = are_in(own[is_open], others)
    # Of two texts of the batch, the judge finds the one that is kept first, which is the better one.
    is_near = is_own_open | (other_has_keeper & ~is_worse)

    near_of, near = of[is_near], others[is_near]
    all_texts = np.union1d(own, near)
    own_rows = np.full(len(all_texts), -1)
    own_rows[np.searchsorted(all_texts, own)] = best_row
    had_keeper = keepers.have_keeper(all_texts)
    had_keeper[np.searchsorted(all_texts, own[is_overtaken])] = False
    sets = ShingleSets(prints.shingles.offsets, prints.shingles.values, keepers.group_words)
    similarities = np.full(len(near), np.nan)
    if matching.min_similarity:
        is_elsewhere = ~are_in(own, near)
        similarities[is_elsewhere] = compare(
            best_row[near_of[is_elsewhere]], near[is_elsewhere], sets, matching.min_similarity, keepers
        )
    in_order = texts[order]
    neighbours = BatchNeighbours(
        texts=all_texts,
        had_keeper=had_keeper,
        rows=np.where(in_order < 0, -1, np.searchsorted(all_texts, in_order)),
        near=NearTexts(
            offsets=np.searchsorted(own[near_of], np.append(all_texts, keepers.texts)),
            texts=np.searchsorted(all_texts, near),
            distances=candidates.distances[is_near].astype(np.int64),
            similarities=similarities,
        ),
        own=BatchShingles(own_rows, sets),
    )
    worse = np.stack([of[is_worse], others[is_worse]], axis=1)
    return BetterNeighbours(order, neighbours, own, best_row, is_overtaken, worse)


def are_better(
    ids: Sequence[bytes], ranks: npt.NDArray[np.uint64], rows: Numbers, texts: Numbers, keepers: Keepers
) -> Flags:
    """Return for each pair whether the record is better than the keeper of the text.

    Args:
        ids: Raw ids of n records.
        ranks: uint64, shape (n, rules), their ranks.
        rows: int64, shape (p,), the record of each pair.
        texts: int64, shape (p,), numbers of texts that have a keeper.
        keepers: All records kept so far.
    """
    ranks, others = ranks[rows], keepers.ranks_of(texts)
    is_better, is_equal = np.zeros(len(rows), np.bool_), np.ones(len(rows), np.bool_)
    for rule in range(ranks.shape[1]):
        is_better |= is_equal & (ranks[:, rule] > others[:, rule])
        is_equal &= ranks[:, rule] == others[:, rule]
    # Records that are never dropped are not displaced either.
    for pair in np.flatnonzero(is_equal & (others[:, 0] != BEST)).tolist():
        own, other = ids[int(rows[pair])], keepers.id(int(texts[pair]))
        is_better[pair] = own != other and tie_key(own) < tie_key(other)
    return is_better
