"""Keepers: every different text so far, and the kept records that stand for it."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.document import Fingerprints
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.match.column import extended, with_room
from dedup_job.match.index import Candidates, Index
from dedup_job.match.keeper_ids import Ids
from dedup_job.match.recent import RecentShingles, Shingles
from dedup_job.match.search import Prints, Queries
from dedup_job.match.texts import TextIndex
from dedup_job.native.ragged import Ragged
from dedup_job.plan import RawIds, Texts
from dedup_job.text.characters import offsets_of

Fetch = Callable[[Sequence[bytes]], Iterable[Mapping[bytes, bytes]]]
Numbers = npt.NDArray[np.int64]

PIECE_BYTES = 8 << 20  # of shingles at hand that are looked at together
DRAWS = 8  # texts drawn for each keeper of a sample


class Refetched(NamedTuple):
    """The ids of some records that were fetched again, and their fingerprints."""

    ids: Sequence[bytes]
    prints: Fingerprints


@dataclass(frozen=True, slots=True)
class OlderKeepers:
    """How the shingles of older keepers are had again: fetch the records, fingerprint them once more.

    fetch  yields the records that exist of some ids, by id, in pieces that fit into memory; of each record
           what its text is in
    """

    fetch: Fetch
    fingerprint: Callable[[Sequence[bytes]], Fingerprints]

    def refetched(self, ids: Sequence[bytes]) -> Iterator[Refetched]:
        """Yield these keepers in pieces, those that are gone left out."""
        return (Refetched(list(found), self.fingerprint(list(found.values()))) for found in self.fetch(ids))


class Known(NamedTuple):
    """The shingles of some texts: row i of `sets` are those of `texts[i]`."""

    texts: Numbers
    sets: Ragged


class Entered(NamedTuple):
    """The texts of n records.

    texts   int64 (n,), their numbers; -1 where there is none to judge
    is_new  bool (n,), whether the text came for the first time
    """

    texts: Numbers
    is_new: npt.NDArray[np.bool_]


class Standing(NamedTuple):
    """A kept record and the text that it stands for, by number.

    An adopted record that is gone from the target may come again from the source, with another text.
    """

    text: int
    id: bytes


class Keepers:
    """Texts are numbered in the order in which they first came, those of dropped records too.

    What a key finds depends on how many texts have it, kept or not.  So a text is entered before it is
    decided on, and `keep` says afterwards which records were kept.
    """

    def __init__(self, recipe: Recipe, cache_bytes: int, older: OlderKeepers) -> None:
        """Make an empty set.

        The shingles of recent keepers are held within `cache_bytes`; those of others come from `older`.
        """
        self._texts = TextIndex()
        self._index = Index(recipe.bits, recipe.matching)
        self._ids = Ids()  # of the record that a text first came with
        self._is_kept = np.empty(0, np.bool_)
        self._others: dict[int, list[bytes]] = {}  # kept records of a text, where they are not just the first
        self._kept = 0
        self._recent = RecentShingles(cache_bytes)
        self._older = older
        self._gone: set[Standing] = set()
        self._past = 0  # texts that plans of the ledger had

    def __len__(self) -> int:
        """Records kept."""
        return self._kept

    @property
    def nbytes(self) -> int:
        """Bytes held, the shingles of recent keepers left out."""
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, int]:
        """Bytes held by each part."""
        return {
            **self._index.parts,
            "texts": self._texts.nbytes,
            "ids": self._ids.nbytes + self._is_kept.nbytes,
        }

    @property
    def texts(self) -> int:
        """Different texts."""
        return len(self._index)

    @property
    def summary(self) -> str:
        """How many texts there are, for people."""
        return f"{self.texts:,} different texts, {len(self):,} records kept"

    def reserve(self, texts: int) -> None:
        """Have room for about so many texts in all: nothing is made anew while they come."""
        self._texts.reserve(texts)
        self._index.reserve(texts)
        self._ids.reserve(texts)
        self._is_kept = with_room(self._is_kept, texts)

    def enter(self, ids: RawIds, prints: Fingerprints | Texts) -> Entered:
        """Number the texts of some records; new texts are entered."""
        entered = self._add(ids, prints)
        self._index.fill_maps()
        return entered

    def _add(self, ids: RawIds, prints: Fingerprints | Texts) -> Entered:
        numbers, is_new = self._texts.number(prints.digests)
        new = np.flatnonzero(is_new)
        self._index.add(
            prints.bits.take(new, axis=0), prints.has_fingerprint[new], prints.keys.take(new, axis=0)
        )
        self._ids.extend(ids.take(new))
        self._is_kept = extended(self._is_kept, self.texts - len(new), np.zeros(len(new), np.bool_))
        return Entered(numbers, is_new)

    def keep(self, entered: Entered, is_kept: npt.NDArray[np.bool_], ids: Sequence[bytes] | RawIds) -> None:
        """Let those of the records that were kept, bool (n,), stand for their texts."""
        firsts = entered.texts[is_kept & entered.is_new]
        self._is_kept[firsts] = True
        self._kept += len(firsts)
        for row in np.flatnonzero(is_kept & ~entered.is_new).tolist():
            self._keep_another(int(entered.texts[row]), ids[row])

    def _keep_another(self, text: int, raw_id: bytes) -> None:
        """Let a record stand for a text that an earlier one came with first, be that one kept or not."""
        kept = self._others.get(text) or ([self._ids[text]] if self._is_kept[text] else [])
        again = Standing(text, raw_id)
        if again in self._gone:  # it comes after those that were kept meanwhile
            self._gone.remove(again)
            kept = [other for other in kept if other != raw_id]
            self._kept -= 1
        elif kept[:1] == [raw_id]:  # it was adopted, and is in the source, too
            return
        kept.append(raw_id)
        self._others[text] = kept
        self._is_kept[text] = True
        self._kept += 1

    def restore(self, texts: Texts) -> None:
        """Take in what a plan that was carried out has decided."""
        self.keep(self._add(texts.ids, texts), texts.is_kept, texts.ids)
        self._past = self.texts

    def remember(self, texts: Numbers, shingles: Ragged) -> None:
        """Have the shingles of these keepers at hand."""
        self._recent.put(texts.tolist(), shingles)

    def candidates(self, texts: Numbers, keys: npt.NDArray[np.uint32]) -> Candidates:
        """Return the candidates of each of these among all texts, kept or not, later ones too."""
        return self._index.candidates(texts, keys)

    def numbers(self, digests: npt.NDArray[np.uint64]) -> Numbers:
        """Return the number of the text with each of these digests, int64 (n,); -1 where none has come."""
        return self._texts.find(digests)

    def candidates_of(self, texts: Numbers, prints: Fingerprints) -> Candidates:
        """Return the candidates of texts that need not have been entered; those have the next number.

        texts  int64 (n,), the numbers of the texts of these records
        """
        return self._index.candidates_of(
            Queries(texts, Prints(prints.bits, prints.has_fingerprint)), prints.keys
        )

    def shingles(self, texts: Iterable[int]) -> Iterator[Known]:
        """Yield the shingles of these keepers, some megabytes at a time: all of them may be too much at once.

        One that is gone or has another text now is left out.
        """
        texts = list(dict.fromkeys(texts))
        missing = dict.fromkeys(Standing(text, self.id(text)) for text in texts if text not in self._recent)
        yield from self._at_hand(texts)
        yield from self._looked_up(missing)

    def _at_hand(self, texts: Iterable[int]) -> Iterator[Known]:
        some: dict[int, Shingles] = {}
        nbytes = 0
        for text in texts:
            if (shingles := self._recent.get(text)) is None:
                continue
            some[text] = shingles
            nbytes += shingles.nbytes
            if nbytes >= PIECE_BYTES:
                yield _joined(some)
                some, nbytes = {}, 0
        if some:
            yield _joined(some)

    def outdated(self, standings: Collection[Standing]) -> set[Standing]:
        """Return those whose record is gone or has another text now."""
        missing = dict.fromkeys(standings)
        for _ in self._looked_up(missing):
            pass
        return set(missing)

    def _looked_up(self, missing: dict[Standing, None]) -> Iterator[Known]:
        """Yield the shingles of these in pieces; what is left of them is gone or has another text now."""
        refetched = self._older.refetched([one.id for one in missing]) if missing else ()
        yield from map(partial(self._known_again, missing), refetched)

    def _known_again(self, missing: dict[Standing, None], refetched: Refetched) -> Known:
        """Return the shingles of those that have the texts they had; these are missing no more."""
        numbers = self._texts.find(refetched.prints.digests).tolist()
        again = list(map(Standing, numbers, refetched.ids))
        rows = [row for row, standing in enumerate(again) if standing in missing]
        known = Known(
            np.array([numbers[row] for row in rows], np.int64), refetched.prints.shingles.take(rows)
        )
        self._recent.put(known.texts.tolist(), known.sets)
        for row in rows:
            del missing[again[row]]
        return known

    def has_seen(self, standing: Standing) -> bool:
        """Return whether the record was kept, or its text looked up, since the past was taken in."""
        text = standing.text
        return text not in self._others and (text >= self._past or text in self._recent)

    def forget(self, standings: Iterable[Standing]) -> None:
        """Let these records stand for these texts no more: they are gone, or have other texts now."""
        self._gone.update(standings)

    @property
    def gone(self) -> int:
        """Records that were kept and stand for nothing any more."""
        return len(self._gone)

    def standing(self, texts: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """Tell for which of these texts a record stands."""
        stands: npt.NDArray[np.bool_] = self._is_kept[texts]
        if self._gone:
            for place in np.flatnonzero(stands).tolist():
                text = int(texts[place])
                stands[place] = Standing(text, self.id(text)) not in self._gone
        return stands

    def id(self, text: int) -> bytes:
        """Return the raw id of the first record that stands for a text; of the first one where none does."""
        kept = self._others.get(text)
        if kept is None:
            return self._ids[text]
        return next((raw_id for raw_id in kept if Standing(text, raw_id) not in self._gone), kept[0])

    def sample(self, count: int) -> list[bytes]:
        """Return the ids of about so many keepers, taken at random; they decide nothing."""
        drawn = random.sample(range(self.texts), min(DRAWS * count, self.texts))
        return list(islice((self.id(text) for text in drawn if self._is_kept[text]), count))

    def newest(self, count: int) -> list[bytes]:
        """Return the ids of about the last so many keepers, in order."""
        last = range(max(0, self.texts - DRAWS * count), self.texts)
        return [self.id(text) for text in last if self._is_kept[text]][-count:]


def _joined(some: Mapping[int, Shingles]) -> Known:
    sets = list(some.values())
    return Known(np.array(list(some)), Ragged(offsets_of(sets), np.concatenate(sets)))
