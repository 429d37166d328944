"""Keepers: every distinct text so far, and the kept record of each."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.recipe import Recipe
from dedup_job.index.candidate_index import CandidateIndex, Candidates
from dedup_job.index.digest_index import DigestIndex
from dedup_job.index.keeper_ids import KeeperIds
from dedup_job.index.key_map_search import Queries, Simhashes
from dedup_job.index.shingle_cache import ShingleCache
from dedup_job.index.shingle_similarity import Shingles, ShingleSets, Sizes, set_sizes
from dedup_job.native.arrays import Flags, Numbers, Ragged, append_rows, ensure_capacity
from dedup_job.records import Fingerprints, PlanTexts, RawIds
from dedup_job.text.code_points import offsets_of

Fetch = Callable[[Sequence[bytes]], Iterable[Mapping[bytes, bytes]]]

# Bytes of cached shingles that are yielded together.
PIECE_BYTES = 8 << 20
# Texts drawn for each keeper of a sample: most texts have a keeper, but not all.
DRAWS_PER_KEEPER = 8


@dataclass(frozen=True, slots=True)
class KeeperRefetch:
    """Re-fetches and re-fingerprints keepers whose shingles are no longer cached.

    Attributes:
        fetch: Yields the records that exist for some ids, by id, in pieces that fit into memory; a record has
            only the fields that its text is made of.
        fingerprint: Fingerprints raw records.
    """

    fetch: Fetch
    fingerprint: Callable[[Sequence[bytes]], Fingerprints]

    def refetch(self, ids: Sequence[bytes]) -> Iterator[tuple[Sequence[bytes], Fingerprints]]:
        """Yield the ids of the keepers that still exist, and their fingerprints, in pieces."""
        for records in self.fetch(ids):
            yield list(records), self.fingerprint(list(records.values()))


# For keepers whose shingles all stay in memory.
NOTHING_OLDER = KeeperRefetch(lambda ids: (), lambda raws: Fingerprints.join([]))


class KnownShingles(NamedTuple):
    """The shingles of some texts.

    Attributes:
        texts: int64, shape (n,), numbers of the texts.
        sets: Their shingle sets; row i has those of `texts[i]`.
    """

    texts: Numbers
    sets: Ragged


class BatchTexts(NamedTuple):
    """The texts of n records.

    Attributes:
        texts: int64, shape (n,), their numbers; -1 where there is none to judge.
        is_new: bool, shape (n,), whether the record is the first with its text.
    """

    texts: Numbers
    is_new: Flags


class KeeperRef(NamedTuple):
    """A kept record, together with the number of the text it was kept for.

    Both, because a record that was adopted from the target and then deleted there may come again from the
    source, with another text.
    """

    text: int
    id: bytes


class Keepers:
    """All distinct texts so far, numbered in order of first arrival, and their keepers.

    The candidates of a text depend on how many texts have its keys, kept or not.  So each batch's texts are
    added before the batch is decided, and `keep` says afterwards which records were kept.
    """

    def __init__(self, recipe: Recipe, cache_bytes: int, older: KeeperRefetch = NOTHING_OLDER) -> None:
        """Create an empty set.

        Args:
            recipe: The recipe of the fingerprints.
            cache_bytes: Memory for the shingles of recent keepers.
            older: Where the shingles of other keepers come from.
        """
        # Words of the group before the shingles of each text.
        self.group_words = recipe.group_words
        self._texts = DigestIndex()
        self._index = CandidateIndex(recipe.bits, recipe.matching)
        # The record that each text first came with, and whether the text has a keeper.
        self._ids = KeeperIds()
        self._is_kept = np.empty(0, np.bool_)
        # Size of each text's shingle set; 0 for a text of the ledger whose shingles this run has not seen.
        self._sizes = np.empty(0, np.uint16)
        # All kept records of a text, where they are not just the record it first came with: rarely needed.
        self._others: dict[int, list[bytes]] = {}
        self._kept = 0
        self._recent = ShingleCache(cache_bytes)
        self._older = older
        self._missing: set[KeeperRef] = set()
        # Texts in plans of the ledger, which other runs have decided.
        self._texts_before = 0
        # With `[match] prefer`: the rank of each text's keeper, and the number of the plan that kept it.
        self._ranks = np.empty((0, len(recipe.matching.prefer)), np.uint64)
        self._plan_numbers = np.empty(0, np.uint32)

    def __len__(self) -> int:
        """Return the number of kept records."""
        return self._kept

    @property
    def texts(self) -> int:
        """Number of distinct texts."""
        return len(self._index)

    @property
    def summary(self) -> dict[str, int]:
        """The number of different texts, and of kept records."""
        return {"texts": self.texts, "kept": len(self)}

    def reserve(self, texts: int) -> None:
        """Make room for about this many texts in all, so that nothing is rebuilt while they come."""
        self._texts.reserve(texts)
        self._index.reserve(texts)
        self._ids.reserve(texts)
        self._is_kept = ensure_capacity(self._is_kept, texts)
        self._sizes = ensure_capacity(self._sizes, texts)
        if self.has_ranks:
            self._ranks = ensure_capacity(self._ranks, texts)
            self._plan_numbers = ensure_capacity(self._plan_numbers, texts)

    def add_texts(self, ids: RawIds, prints: Fingerprints | PlanTexts) -> BatchTexts:
        """Add the texts of some records, and return their numbers."""
        entered = self._add(ids, prints)
        self._index.fill_maps()
        return entered

    def _add(self, ids: RawIds, prints: Fingerprints | PlanTexts) -> BatchTexts:
        numbers, is_new = self._texts.number(prints.digests)
        new = np.flatnonzero(is_new)
        self._index.add(
            prints.bits.take(new, axis=0), prints.has_fingerprint[new], prints.keys.take(new, axis=0)
        )
        self._ids.extend(ids.take(new))
        before = self.texts - len(new)
        self._is_kept = append_rows(self._is_kept, before, np.zeros(len(new), np.bool_))
        known = self._sizes_of(prints.shingles)[new] if isinstance(prints, Fingerprints) else 0
        self._sizes = append_rows(self._sizes, before, np.full(len(new), known, np.uint16))
        return BatchTexts(numbers, is_new)

    def _sizes_of(self, sets: Ragged) -> Sizes:
        return set_sizes(ShingleSets(sets.offsets, sets.values, self.group_words))

    def can_be_similar(self, sizes: Sizes, texts: Numbers, least: float) -> Flags:
        """Return which pairs of a shingle set and a text may be similar, as far as their sizes tell.

        The similarity of two sets is at most the size of the smaller one divided by that of the larger one.

        Args:
            sizes: `set_sizes`, shape (p,), of the set of each pair.
            texts: int64, shape (p,), the number of the text of each pair.
            least: Least similarity.

        Returns:
            bool, shape (p,).
        """
        others = self._sizes[texts]
        most = np.minimum(sizes, others) / np.maximum(np.maximum(sizes, others), 1)
        can_be: Flags = (others == 0) | (most >= least)
        return can_be

    def keep(self, entered: BatchTexts, is_kept: Flags, ids: Sequence[bytes] | RawIds) -> None:
        """Make records the keepers of their texts.

        Args:
            entered: The texts of n records.
            is_kept: bool, shape (n,), which of the records were kept.
            ids: The records' raw ids.
        """
        first = entered.texts[is_kept & entered.is_new]
        self._is_kept[first] = True
        self._kept += len(first)
        for row in np.flatnonzero(is_kept & ~entered.is_new).tolist():
            self._keep_another(int(entered.texts[row]), ids[row])

    def _keep_another(self, text: int, raw_id: bytes) -> None:
        """Make a record a keeper of a text with which an earlier record came, kept or not."""
        kept = self._kept_of(text)
        keeper = KeeperRef(text, raw_id)
        if keeper in self._missing:
            # It was deleted and is kept again: now it comes after the records kept in between.
            self._missing.remove(keeper)
            kept = [other for other in kept if other != raw_id]
            self._kept -= 1
        elif kept[:1] == [raw_id]:
            # It was adopted from the target, and the source has it, too: counted already.
            return
        kept.append(raw_id)
        self._others[text] = kept
        self._is_kept[text] = True
        self._kept += 1

    def _kept_of(self, text: int) -> list[bytes]:
        """Return the raw ids of the kept records of a text."""
        return self._others.get(text) or ([self._ids[text]] if self._is_kept[text] else [])

    def load_plan(self, texts: PlanTexts, number: int = 0) -> Numbers:
        """Load the decisions of a finished plan.

        Args:
            texts: The plan's records.
            number: Number of the plan.

        Returns:
            The numbers of the texts, int64 (n,).
        """
        entered = self._add(texts.ids, texts)
        self.keep(entered, texts.is_kept, texts.ids)
        if self.has_ranks and len(texts):
            assert texts.ranks is not None
            self.rank(entered.texts[texts.is_kept], texts.ranks[texts.is_kept], number)
        self._texts_before = self.texts
        return entered.texts

    @property
    def has_ranks(self) -> bool:
        """Whether keepers have ranks, by `[match] prefer`."""
        return bool(self._ranks.shape[1])

    def rank(self, texts: Numbers, ranks: npt.NDArray[np.uint64], number: int) -> None:
        """Store the ranks of the keepers of n texts, and the plan that kept them.

        A reference record may be kept for a text that has a keeper already; the better one then represents
        the text.

        Args:
            texts: int64, shape (n,), numbers of the texts.
            ranks: uint64, shape (n, rules).
            number: Number of the plan.
        """
        self._ranks = ensure_capacity(self._ranks, self.texts)
        self._plan_numbers = ensure_capacity(self._plan_numbers, self.texts)
        for row, text in enumerate(texts.tolist() if self._others else ()):
            if text in self._others and tuple(ranks[row]) > tuple(self._ranks[text]):
                newest = self._others[text].pop()
                self._others[text].insert(0, newest)
        self._ranks[texts], self._plan_numbers[texts] = ranks, number

    def ranks_of(self, texts: Numbers) -> npt.NDArray[np.uint64]:
        """Return the ranks of these texts' keepers, uint64 (n, rules)."""
        ranks: npt.NDArray[np.uint64] = self._ranks[texts]
        return ranks

    def plan_number(self, text: int) -> int:
        """Return the number of the plan that kept a text's keeper."""
        return int(self._plan_numbers[text])

    def release(self, keeper: KeeperRef) -> None:
        """Make a record a keeper no longer; the opposite of `keep`."""
        kept = self._kept_of(keeper.text)
        if keeper.id not in kept:
            return
        self._kept -= 1
        self._others[keeper.text] = [raw_id for raw_id in kept if raw_id != keeper.id]
        if not self._others[keeper.text]:
            del self._others[keeper.text]
            self._is_kept[keeper.text] = False

    def refetch(self, ids: Sequence[bytes]) -> Iterator[tuple[Sequence[bytes], Fingerprints]]:
        """Fetch and fingerprint keepers again, in pieces; those that are missing are left out."""
        return self._older.refetch(ids)

    def cache_shingles(self, texts: Numbers, shingles: Ragged) -> None:
        """Cache the shingles of these keepers."""
        self._recent.put(texts.tolist(), shingles)

    def candidates(self, texts: Numbers, keys: npt.NDArray[np.uint32]) -> Candidates:
        """Find the candidates of texts among all other texts, kept or not, later ones included.

        Args:
            texts: int64, shape (n,), their numbers.
            keys: uint32, shape (n, bands), their band keys.
        """
        return self._index.candidates(texts, keys)

    def find_texts(self, digests: npt.NDArray[np.uint64]) -> Numbers:
        """Return the number of the text with each of these digests, int64 (n,); -1 for an unknown text."""
        return self._texts.find(digests)

    def candidates_of(self, texts: Numbers, prints: Fingerprints) -> Candidates:
        """Find the candidates of records whose texts need not have been added.

        Args:
            texts: int64, shape (n,), numbers of the records' texts; a new text has the number `self.texts`.
            prints: The n records.
        """
        return self._index.candidates_of(
            Queries(texts, Simhashes(prints.bits, prints.has_fingerprint)), prints.keys
        )

    def shingles(self, texts: Iterable[int]) -> Iterator[KnownShingles]:
        """Yield the shingles of these texts' keepers, some megabytes at a time: all may not fit into memory.

        Keepers that are missing from the target or were changed there are left out.
        """
        texts = list(dict.fromkeys(texts))
        uncached = dict.fromkeys(KeeperRef(text, self.id(text)) for text in texts if text not in self._recent)
        yield from self._cached(texts)
        yield from self._refetched(uncached)

    def _cached(self, texts: Iterable[int]) -> Iterator[KnownShingles]:
        """Yield the shingles of those texts that are cached."""
        piece: dict[int, Shingles] = {}
        nbytes = 0
        for text in texts:
            if (shingles := self._recent.get(text)) is None:
                continue
            piece[text] = shingles
            nbytes += shingles.nbytes
            if nbytes >= PIECE_BYTES:
                yield _join(piece)
                piece, nbytes = {}, 0
        if piece:
            yield _join(piece)

    def find_outdated(self, keepers: Collection[KeeperRef]) -> set[KeeperRef]:
        """Re-fetch keepers, and return those that are missing from the target or were changed there."""
        unconfirmed = dict.fromkeys(keepers)
        for _ in self._refetched(unconfirmed):
            pass
        return set(unconfirmed)

    def _refetched(self, unconfirmed: dict[KeeperRef, None]) -> Iterator[KnownShingles]:
        """Yield the shingles of keepers in pieces, and cache them.

        Keepers that still have their texts are removed from `unconfirmed`; the others remain in it.
        """
        if not unconfirmed:
            return
        for ids, prints in self._older.refetch([keeper.id for keeper in unconfirmed]):
            numbers = self._texts.find(prints.digests).tolist()
            present = list(map(KeeperRef, numbers, ids))
            rows = [row for row, keeper in enumerate(present) if keeper in unconfirmed]
            texts = np.array([numbers[row] for row in rows], np.int64)
            known = KnownShingles(texts, prints.shingles.take(rows))
            self._sizes[texts] = self._sizes_of(known.sets)
            self._recent.put(known.texts.tolist(), known.sets)
            for row in rows:
                del unconfirmed[present[row]]
            yield known

    def is_checked(self, keeper: KeeperRef) -> bool:
        """Return whether this run kept the record or has re-fetched it, so that its text needs no check."""
        text = keeper.text
        return text not in self._others and (text >= self._texts_before or text in self._recent)

    def mark_missing(self, keepers: Iterable[KeeperRef]) -> None:
        """Mark keepers as missing: deleted from the target, or changed there."""
        self._missing.update(keepers)

    @property
    def missing_count(self) -> int:
        """Number of records that were kept and are now missing or changed."""
        return len(self._missing)

    def have_keeper(self, texts: npt.NDArray[np.integer]) -> Flags:
        """Return which of these texts have a keeper that is not missing, bool (n,)."""
        has_keeper: Flags = self._is_kept[texts]
        if self._missing:
            for row in np.flatnonzero(has_keeper).tolist():
                text = int(texts[row])
                has_keeper[row] = KeeperRef(text, self.id(text)) not in self._missing
        return has_keeper

    def id(self, text: int) -> bytes:
        """Return the raw id of a text's first keeper that is not missing, or of its first record."""
        kept = self._others.get(text)
        if kept is None:
            return self._ids[text]
        return next((raw_id for raw_id in kept if KeeperRef(text, raw_id) not in self._missing), kept[0])

    def sample(self, count: int) -> list[bytes]:
        """Return the ids of about `count` random keepers; no decision depends on them."""
        drawn = random.sample(range(self.texts), min(DRAWS_PER_KEEPER * count, self.texts))
        return list(islice((self.id(text) for text in drawn if self._is_kept[text]), count))

    def newest(self, count: int) -> list[bytes]:
        """Return the ids of about the last `count` keepers, in order."""
        last = range(max(0, self.texts - DRAWS_PER_KEEPER * count), self.texts)
        return [self.id(text) for text in last if self._is_kept[text]][-count:]


def _join(shingles: Mapping[int, Shingles]) -> KnownShingles:
    """Return the shingles of texts, given by number, in one array."""
    sets = list(shingles.values())
    return KnownShingles(np.array(list(shingles)), Ragged(offsets_of(sets), np.concatenate(sets)))
