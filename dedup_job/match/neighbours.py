"""Neighbours of the records of a batch: the texts that each of them may be a duplicate of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.document import Fingerprints
from dedup_job.fingerprint.recipe import Matching
from dedup_job.match.judge import Judgement, Near, Own, Rows, judge
from dedup_job.match.keepers import Keepers
from dedup_job.match.similarity import Sets, similarities_from

Numbers = npt.NDArray[np.int64]

GONE = -1.0  # the similarity to a text whose record is gone


@dataclass(frozen=True, slots=True)
class Neighbours:
    """All that a batch of n records is judged by; the m texts in it are counted from 0 here, as in `judge`.

    texts  int64 (m,), their numbers among all texts, ascending: those of the batch and what they may match
    stood  bool (m,), whether a record stood for the text before this batch
    rows   int64 (n,), which of them each record has; -1 for none
    """

    texts: Numbers
    stood: npt.NDArray[np.bool_]
    rows: Numbers
    near: Near
    own: Own

    def judged(self, is_droppable: npt.NDArray[np.bool_], min_similarity: float) -> Judgement:
        """Judge the records in their order."""
        rows = Rows(self.rows, is_droppable)
        judgement: Judgement = judge(rows, self.near, self.own, self.stood.copy(), min_similarity)
        return judgement

    def relied_on(self, judgement: Judgement) -> Numbers:
        """Return the texts that stood before and are relied on, int64: by a match, or by an absence of one.

        That is where shingles could not be had, of a record that is gone: another one may have this text.
        """
        is_relied = np.zeros(len(self.texts), np.bool_)
        is_relied[self.near.texts[self.near.similarities == GONE]] = True
        is_relied[judgement.keeper[judgement.keeper >= 0]] = True
        texts: Numbers = self.texts[is_relied & self.stood]
        return texts


class _Pairs(NamedTuple):
    """Texts of the batch and their candidates.

    rows    int64 (p,), the row of the text
    others  int64 (p,), the number of the candidate
    """

    rows: Numbers
    others: Numbers


def neighbours_of_batch(
    prints: Fingerprints, texts: Numbers, matching: Matching, keepers: Keepers
) -> Neighbours:
    """Find all that the records may be duplicates of, and compare them with what is not in the batch itself.

    texts  int64 (n,), the numbers of their texts; -1 for a record without one
    """
    own, first = np.unique(texts, return_index=True)
    own, first = own[own >= 0], first[own >= 0]
    is_open = ~keepers.standing(own)
    found = keepers.candidates(own[is_open], prints.keys[first[is_open]])
    counts = np.diff(found.offsets)
    of_text, of_row = np.repeat(own[is_open], counts), np.repeat(first[is_open], counts)
    others = found.texts.astype(np.int64)
    is_own = _are_in(own, others)
    may_stand = keepers.standing(others) | is_own
    of_text, of_row, others = of_text[may_stand], of_row[may_stand], others[may_stand]
    is_elsewhere = ~is_own[may_stand]

    all_texts = np.union1d(own, others)
    rows = np.where(texts < 0, -1, np.searchsorted(all_texts, texts))
    of_batch = np.full(len(all_texts), -1)
    of_batch[np.searchsorted(all_texts, own)] = first
    sets = Sets(prints.shingles.offsets, prints.shingles.values)
    similarities = np.full(len(others), np.nan)
    if matching.min_similarity:
        pairs = _Pairs(of_row[is_elsewhere], others[is_elsewhere])
        similarities[is_elsewhere] = _similarities(pairs, sets, matching.min_similarity, keepers)
    return Neighbours(
        texts=all_texts,
        stood=keepers.standing(all_texts),
        rows=rows,
        near=Near(
            offsets=np.searchsorted(of_text, np.append(all_texts, keepers.texts)),
            texts=np.searchsorted(all_texts, others),
            distances=found.distances[may_stand].astype(np.int64),
            similarities=similarities,
        ),
        own=Own(of_batch, sets),
    )


def neighbours_of_each(prints: Fingerprints, matching: Matching, keepers: Keepers) -> Neighbours:
    """Find all that the records would be duplicates of if each of them, alone, came next; enter none.

    A record whose text does not stand has a text of its own here, behind all others, which nothing finds.
    """
    known = keepers.numbers(prints.digests)
    stands = known >= 0
    stands[stands] = keepers.standing(known[stands])
    is_open = prints.digests.any(axis=1) & ~stands
    asked = np.flatnonzero(is_open)
    texts = np.where(known < 0, keepers.texts, known)
    found = keepers.candidates_of(texts[asked], prints.take(asked.tolist()))
    of_row, others = np.repeat(asked, np.diff(found.offsets)), found.texts.astype(np.int64)
    may_stand = keepers.standing(others)
    of_row, others = of_row[may_stand], others[may_stand]

    standing = np.union1d(known[stands], others)
    rows = np.full(len(prints), -1)
    rows[stands] = np.searchsorted(standing, known[stands])
    rows[asked] = len(standing) + np.arange(len(asked))
    sets = Sets(prints.shingles.offsets, prints.shingles.values)
    similarities = np.full(len(others), np.nan)
    if matching.min_similarity:
        similarities = _similarities(_Pairs(of_row, others), sets, matching.min_similarity, keepers)
    return Neighbours(
        texts=np.append(standing, keepers.texts + np.arange(len(asked))),
        stood=np.arange(len(standing) + len(asked)) < len(standing),
        rows=rows,
        near=Near(
            offsets=np.append(
                np.zeros(len(standing), np.int64), np.searchsorted(of_row, np.append(asked, len(prints)))
            ),
            texts=np.searchsorted(standing, others),
            distances=found.distances[may_stand].astype(np.int64),
            similarities=similarities,
        ),
        own=Own(np.append(np.full(len(standing), -1), asked), sets),
    )


def _are_in(ascending: Numbers, values: Numbers) -> npt.NDArray[np.bool_]:
    """Tell which values are among others that are sorted."""
    places = np.searchsorted(ascending, values)
    found: npt.NDArray[np.bool_] = np.append(ascending, -1)[places] == values
    return found


def _similarities(pairs: _Pairs, sets: Sets, least: float, keepers: Keepers) -> npt.NDArray[np.float64]:
    """Compare each pair, float64 (p,), some of the keepers' shingles at a time; GONE where there are none."""
    similarities = np.full(len(pairs.rows), GONE)
    for known in keepers.shingles(np.unique(pairs.others).tolist()):
        order = np.argsort(known.texts)
        texts = known.texts[order]
        here = np.flatnonzero(_are_in(texts, pairs.others))
        places = order[np.searchsorted(texts, pairs.others[here])]
        others = Sets(known.sets.offsets, known.sets.values)
        similarities[here] = similarities_from(sets, pairs.rows[here], others, places, least)
    return similarities
