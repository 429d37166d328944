"""Find what each record of a batch may be a duplicate of, and the worse keepers that it displaces.

Without `[match] prefer` the earlier of two matching records is kept.  With it every match points from the
better record to the worse one: a record is dropped if a better kept record matches it.  Ranks order all
records, so no cycle is possible, and exactly one set of records fits: the set that keep-first gives when all
records are sorted best first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.recipe import Matching
from dedup_job.index.judge import (
    MISSING_KEEPER,
    BatchNeighbours,
    BatchShingles,
    Judgement,
    NearTexts,
)
from dedup_job.index.keepers import KeeperRef, Keepers
from dedup_job.index.shingle_similarity import ShingleSets, set_sizes, similarities_at_least
from dedup_job.native.arrays import Flags, Numbers
from dedup_job.preference.id_order import tie_key
from dedup_job.preference.preference_ranks import BEST
from dedup_job.records import Fingerprints

AreBetter = Callable[[Numbers, Numbers], Flags]
"""Returns, for rows of records and numbers of texts with a keeper, which records are better than it."""


@dataclass(frozen=True, slots=True)
class FoundNeighbours:
    """Everything that decides a batch of n records.

    Attributes:
        neighbours: The neighbours of the records in order: the batch's own texts, and keepers that are not
            worse.
        own: int64, shape (m,), the numbers of the batch's texts, ascending.
        first_row: int64, shape (m,), the first row of the batch, in order, with each text.
        is_overtaken: bool, shape (m,), whether a record of the batch is better than the text's keeper.
        worse: int64, shape (p, 2), pairs of a text of the batch, by its place in `own`, and the number of a
            candidate whose keeper is worse.
    """

    neighbours: BatchNeighbours
    own: Numbers
    first_row: Numbers
    is_overtaken: Flags
    worse: Numbers

    def find_displaced(self, judgement: Judgement, matching: Matching, keepers: Keepers) -> list[KeeperRef]:
        """Return the keepers that must be decided again, because a better record of the batch is kept.

        Args:
            judgement: The judgement of the records, in order.
            matching: What counts as a duplicate.
            keepers: All records kept so far.
        """
        neighbours = self.neighbours
        is_kept = np.zeros(len(neighbours.texts), np.bool_)
        is_kept[neighbours.rows[(neighbours.rows >= 0) & (judgement.keeper < 0)]] = True
        pairs = self.worse[is_kept[np.searchsorted(neighbours.texts, self.own[self.worse[:, 0]])]]
        similarities = self._compare(pairs, matching.min_similarity, keepers)
        matching_texts = pairs[similarities >= matching.min_similarity, 1]
        displaced = np.unique(np.concatenate([self.own[self.is_overtaken], matching_texts]))
        return [KeeperRef(text, keepers.id(text)) for text in displaced.tolist()]

    def _compare(self, pairs: Numbers, least: float, keepers: Keepers) -> npt.NDArray[np.float64]:
        """Return the similarity of each pair; MISSING_KEEPER where a keeper's text is not available."""
        if not least:
            return np.ones(len(pairs))
        sets = self.neighbours.own.sets
        rows, others = self.first_row[pairs[:, 0]], pairs[:, 1]
        similarities = np.full(len(pairs), MISSING_KEEPER)
        is_own = np.isin(others, self.own)
        own_rows = self.first_row[np.searchsorted(self.own, others[is_own])]
        similarities[is_own] = similarities_at_least(sets, rows[is_own], sets, own_rows, least)
        similarities[~is_own] = compare(rows[~is_own], others[~is_own], sets, least, keepers)
        return similarities


def find_batch_neighbours(
    prints: Fingerprints,
    texts: Numbers,
    order: npt.NDArray[np.intp],
    matching: Matching,
    keepers: Keepers,
    are_better: AreBetter | None = None,
) -> FoundNeighbours:
    """Find everything that the records of a batch may be duplicates of, and the keepers that they displace.

    Candidates outside the batch are compared here; two texts of the batch only when the judge needs it.

    Args:
        prints: The records, n of them.
        texts: int64, shape (n,), the numbers of their texts; -1 for a record without a text.
        order: int64, shape (n,), the rows in the order in which they are judged.
        matching: What counts as a duplicate.
        keepers: All texts so far, including the batch's own.
        are_better: Whether records are better than keepers; None without `[match] prefer`.
    """
    # In order, so that the first row with a text is its first or best record.
    own, place = np.unique(texts[order], return_index=True)
    first_row = order[place][own >= 0]
    own = own[own >= 0]
    has_keeper = keepers.have_keeper(own)
    is_overtaken = _overtake(first_row, own, has_keeper, are_better)
    # The other texts with a keeper need no candidates: their records are exact duplicates.
    is_open = ~has_keeper | is_overtaken

    candidates = keepers.candidates(own[is_open], prints.keys[first_row[is_open]])
    of = np.repeat(np.flatnonzero(is_open), np.diff(candidates.offsets))
    others = candidates.texts
    has_keeper = keepers.have_keeper(others)
    is_worse = _overtake(first_row[of], others, has_keeper, are_better)
    # A text without a keeper gets one only in this batch, or never.  Of two texts of the batch, the judge
    # finds the one that is kept first.
    is_near = np.isin(others, own[is_open]) | (has_keeper & ~is_worse)

    near_of, near = of[is_near], others[is_near]
    all_texts = np.union1d(own, near)
    own_rows = np.full(len(all_texts), -1)
    own_rows[np.searchsorted(all_texts, own)] = first_row
    had_keeper = keepers.have_keeper(all_texts)
    had_keeper[np.searchsorted(all_texts, own[is_overtaken])] = False
    sets = ShingleSets(prints.shingles.offsets, prints.shingles.values, keepers.group_words)
    similarities = np.full(len(near), np.nan)
    is_elsewhere = ~np.isin(near, own)
    similarities[is_elsewhere] = compare(
        first_row[near_of[is_elsewhere]], near[is_elsewhere], sets, matching.min_similarity, keepers
    )
    in_order = texts[order]
    neighbours = BatchNeighbours(
        texts=all_texts,
        had_keeper=had_keeper,
        rows=np.where(in_order < 0, -1, np.searchsorted(all_texts, in_order)),
        near=NearTexts(
            # `own[near_of]` ascends; `keepers.texts` is above every number and ends the last text's
            # candidates.
            offsets=np.searchsorted(own[near_of], np.append(all_texts, keepers.texts)),
            texts=np.searchsorted(all_texts, near),
            distances=candidates.distances[is_near],
            similarities=similarities,
        ),
        own=BatchShingles(own_rows, sets),
    )
    worse = np.stack([of[is_worse], others[is_worse]], axis=1)
    return FoundNeighbours(neighbours, own, first_row, is_overtaken, worse)


def _overtake(rows: Numbers, texts: Numbers, has_keeper: Flags, are_better: AreBetter | None) -> Flags:
    """Return for each pair whether the record is better than the keeper of the text, if it has one."""
    is_better = np.zeros(len(rows), np.bool_)
    if are_better is not None:
        is_better[has_keeper] = are_better(rows[has_keeper], texts[has_keeper])
    return is_better


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
        are_better: Whether records are better than keepers, and so no duplicates of them.
    """
    numbers = keepers.find_texts(prints.digests)
    is_kept = numbers >= 0
    is_kept[is_kept] = keepers.have_keeper(numbers[is_kept])
    is_kept &= ~_overtake(np.arange(len(prints)), numbers, is_kept, are_better)
    is_open = prints.digests.any(axis=1) & ~is_kept
    open_rows = np.flatnonzero(is_open)
    queries = np.where(numbers < 0, keepers.texts, numbers)[open_rows]
    candidates = keepers.candidates_of(queries, prints.take(open_rows.tolist()))
    of_row, others = np.repeat(open_rows, np.diff(candidates.offsets)), candidates.texts
    is_possible = keepers.have_keeper(others)
    is_possible &= ~_overtake(of_row, others, is_possible, are_better)
    of_row, others = of_row[is_possible], others[is_possible]

    kept_texts = np.union1d(numbers[is_kept], others)
    rows = np.full(len(prints), -1)
    rows[is_kept] = np.searchsorted(kept_texts, numbers[is_kept])
    rows[open_rows] = len(kept_texts) + np.arange(len(open_rows))
    sets = ShingleSets(prints.shingles.offsets, prints.shingles.values, keepers.group_words)
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
            distances=candidates.distances[is_possible],
            similarities=similarities,
        ),
        own=BatchShingles(np.append(np.full(len(kept_texts), -1), open_rows), sets),
    )


def compare(
    rows: Numbers, others: Numbers, sets: ShingleSets, least: float, keepers: Keepers
) -> npt.NDArray[np.float64]:
    """Compare records with texts of keepers, some of the keepers' shingles at a time.

    Args:
        rows: int64, shape (p,), a row in `sets` for each pair.
        others: int64, shape (p,), the number of a text for each pair.
        sets: The shingles of the batch.
        least: Similarity from which exact values are needed; 0 to compare nothing.
        keepers: Where the shingles of the other texts come from.

    Returns:
        float64, shape (p,); MISSING_KEEPER where a keeper's shingles are not available, and NaN if nothing is
        compared.
    """
    if not least:
        return np.full(len(rows), np.nan)
    similarities = np.full(len(rows), MISSING_KEEPER)
    # Most candidates of long texts are far from similar, and their shingles may have to be fetched.
    is_possible = keepers.can_be_similar(set_sizes(sets)[rows], others, least)
    similarities[~is_possible] = 0.0
    for known in keepers.shingles(np.unique(others[is_possible]).tolist()):
        order = np.argsort(known.texts)
        texts = known.texts[order]
        pairs = np.flatnonzero(np.isin(others, texts))
        other_rows = order[np.searchsorted(texts, others[pairs])]
        other_sets = ShingleSets(known.sets.offsets, known.sets.values, keepers.group_words)
        similarities[pairs] = similarities_at_least(sets, rows[pairs], other_sets, other_rows, least)
    return similarities


def outrank_keepers(
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
