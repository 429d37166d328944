"""The Deduplicator: the job's decisions in memory, for texts that a program hands over."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Self, Unpack

import numpy as np
import numpy.typing as npt

from dedup_job.errors import ConfigError
from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.index.keepers import BatchTexts, KeeperRef, KeeperRefetch, Keepers
from dedup_job.library.keys import Key, key_of, raw_id
from dedup_job.library.keywords import Keywords, as_json, recipe_of
from dedup_job.library.snapshot import Saved, damaged, kept_texts, read, write
from dedup_job.native.arrays import Ragged, append_rows
from dedup_job.pipeline import job
from dedup_job.pipeline.worker_process import fingerprints_of
from dedup_job.records import Batch, Fingerprints, PlanTexts, RawIds, Verdict


class EnteredTexts:
    """Grows at the end."""

    def __init__(self, words: int, bands: int) -> None:
        """Make empty columns for fingerprints of so many words, and so many keys of bands."""
        self._count = 0
        self._bits = np.empty((0, words), np.uint64)
        self._near = np.empty(0, np.bool_)
        self._keys = np.empty((0, bands), np.uint32)
        self._digests = np.empty((0, 2), np.uint64)

    def __len__(self) -> int:
        return self._count

    def extend(self, prints: Fingerprints | PlanTexts, rows: npt.NDArray[np.intp]) -> None:
        """Add some of the rows."""
        self._bits = append_rows(self._bits, self._count, prints.bits[rows])
        self._near = append_rows(self._near, self._count, prints.has_fingerprint[rows])
        self._keys = append_rows(self._keys, self._count, prints.keys[rows])
        self._digests = append_rows(self._digests, self._count, prints.digests[rows])
        self._count += len(rows)

    def texts(self, ids: RawIds, is_kept: npt.NDArray[np.bool_]) -> PlanTexts:
        """Return all of them.

        ids      of the records that stand for them
        is_kept  bool (n,), for which of them one does
        """
        last = self._count
        return PlanTexts(
            ids, self._bits[:last], self._near[:last], self._keys[:last], self._digests[:last], is_kept
        )


BATCH = 1_000  # texts that are decided together,
BATCH_CHARACTERS = 1 << 20  # and characters, or a single text


@dataclass(frozen=True, slots=True)
class Match:
    """The keeper that stands for a text, and how near it is.

    keeper      the key that it was added with
    reason      "exact" for the same cleaned text, else "near"
    distance    bits in which the fingerprints differ; None where one of the two has none
    similarity  of the sets of shingles; None where texts are not compared (`min_similarity=0`)
    """

    keeper: Key
    reason: str
    distance: int | None
    similarity: float | None


class Deduplicator:
    """Keeps the first of each text and its near-duplicates, as a run of the job does.

    Texts are what a field of a record would hold, HTML or plain, and are cleaned alike.  Keys are str, int
    (of 64 bits), bytes, UUID or ObjectId.  A text that cannot be judged (empty, hidden, too long) is kept and
    stands for nothing.

    Settings are keywords with the names of `[clean]`, `[recipe]` and `[match]`; raises TypeError for another
    name, ConfigError for a value that cannot be used.  To make one takes a second or two: make one.

    Threads may share one: calls wait for one another, and `add_all` lets others in between its batches.
    Processes cannot share one.

    >>> pages = Deduplicator()
    >>> pages.add("a", "<p>The quick brown fox jumps over the lazy dog by the river bank.</p>")
    >>> pages.add("b", "The quick brown fox jumps over the lazy dog by the river bank.")
    Match(keeper='a', reason='exact', distance=0, similarity=1.0)
    >>> pages.find("The quick brown fox jumps over the lazy dog by the river banks!").reason
    'near'
    >>> list(pages)
    ['a']
    """

    def __init__(self, **settings: Unpack[Keywords]) -> None:
        self._settings = as_json(settings)
        self._recipe = recipe_of(self._settings)
        try:
            self._fingerprinter = Fingerprinter(self._recipe)
        except (OSError, ValueError) as error:
            raise ConfigError(str(error)) from None
        self._keepers = Keepers(self._recipe, sys.maxsize, _nowhere(self._fingerprinter))
        self._entered = EnteredTexts(self._recipe.bits // 64, self._recipe.matching.bands)
        self._kept: dict[Key, int] = {}  # the text that each stands for, by number; -1 for none
        self._lock = Lock()

    def __len__(self) -> int:
        """Records kept, those that could not be judged among them."""
        return len(self._kept)

    def __contains__(self, key: object) -> bool:
        """Return whether the record with this key is kept."""
        return key in self._kept

    def __iter__(self) -> Iterator[Key]:
        """Yield the keys of what is kept now, in the order in which it was kept."""
        return iter(list(self._kept))

    @property
    def digest(self) -> str:
        """The sha256 of all that decides; two with the same digest decide alike."""
        return self._recipe.digest

    def add(self, key: Key, text: str) -> Match | None:
        """Keep a text, or return the match because of which it is not kept.

        Raises ValueError where the key is kept already; TypeError for what is no key or no text.
        """
        return self.add_all([(key, text)]).get(key)

    def add_all(self, pairs: Iterable[tuple[Key, str]]) -> dict[Key, Match]:
        """Add many, in order, and return the matches of those that are not kept, by key: the fast way.

        The decisions are those of `add` for each in turn.  Raises what `add` does; what came some hundred
        texts before the wrong pair has been added then.
        """
        matches: dict[Key, Match] = {}
        for keys, texts in _batches(pairs):
            matches |= self._add(keys, texts)
        return matches

    def find(self, text: str) -> Match | None:
        """Return the match that a text would have if it were added, without adding it."""
        with self._lock:
            prints = fingerprints_of(self._fingerprinter, [_octets(text)])
            (verdict,) = job.decide_each(prints, self._recipe.matching, self._keepers).verdicts
        return _match(verdict)

    def remove(self, key: Key) -> None:
        """Let a kept text stand for nothing any more; raises KeyError where the key is not kept.

        What it stood for stays left out; another text like it is kept when it comes.  That it came is not
        forgotten: which texts are compared where very many are alike depends on all that came, so that the
        order in which texts come and go decides nothing else.  The key may be used again.
        """
        with self._lock:
            text = self._kept.pop(key)
            if text >= 0:
                self._keepers.mark_missing([KeeperRef(text, raw_id(key))])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all that it knows to a file, complete or not at all; raises OSError."""
        with self._lock:
            saved = self._saved()
        write(Path(path), saved)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return what was saved, with its settings; it goes on as if it had never been put away.

        Raises:
            OSError: the file cannot be read.
            StateError: the file is damaged, or another version wrote it.
            ConfigError: the same settings decide otherwise here: a file of words or an IDF table has changed,
                or another version of the segmenter is installed.
        """
        saved = read(Path(path))
        made = cls(**saved.settings)
        now = made._recipe.settings
        if now != saved.recipe:
            other = sorted(name for name in {*now, *saved.recipe} if now.get(name) != saved.recipe.get(name))
            raise ConfigError(f"{path}: made with another recipe: {', '.join(other)}; make it anew")
        made._keepers.load_plan(saved.texts)
        if made._keepers.texts != len(saved.texts):  # two of them have one digest
            raise damaged(Path(path))
        made._take(saved)
        return made

    def _add(self, keys: dict[Key, bytes], texts: list[bytes]) -> dict[Key, Match]:
        """Decide one batch."""
        with self._lock:
            for key in keys:
                if key in self._kept:
                    raise ValueError(f"{key!r} is kept already; remove it first, or give another key")
            batch = Batch(list(keys.values()), texts)
            prints = fingerprints_of(self._fingerprinter, texts)
            entered = self._keepers.add_texts(RawIds.of(batch.ids), prints)
            self._entered.extend(prints, np.flatnonzero(entered.is_new))
            matching = self._recipe.matching
            verdicts = job.decide(batch.ids, prints, entered.texts, matching, self._keepers).verdicts
            job.add_keepers(job.make_plan(batch, prints, verdicts), entered, prints, self._keepers)
            found = list(zip(keys, verdicts, entered.texts.tolist(), strict=True))
            self._kept.update((key, text) for key, verdict, text in found if verdict.match is None)
        return {key: match for key, verdict, _ in found if (match := _match(verdict))}

    def _saved(self) -> Saved:
        keys = RawIds.of(map(raw_id, self._kept))
        stands = np.fromiter(self._kept.values(), np.int64, len(self._kept))
        ids, is_kept = kept_texts(keys, stands, len(self._entered))
        standing = np.flatnonzero(is_kept)
        known = [known.sets for known in self._keepers.shingles(standing.tolist())]
        return Saved(
            settings=self._settings,
            recipe=self._recipe.settings,
            keys=keys,
            stands=stands,
            texts=self._entered.texts(ids, is_kept),
            shingles=Ragged.join(known) if known else Ragged.empty(0),
        )

    def _take(self, saved: Saved) -> None:
        """Take in what was saved, the keepers' texts left out."""
        self._entered.extend(saved.texts, np.arange(len(saved.texts)))
        standing = np.flatnonzero(saved.texts.is_kept)
        self._keepers.cache_shingles(standing, saved.shingles)
        is_first = np.zeros(len(saved.stands), np.bool_)
        is_first[np.unique(saved.stands, return_index=True)[1]] = True
        others = np.flatnonzero(~is_first & (saved.stands >= 0))
        again = BatchTexts(saved.stands[others], np.zeros(len(others), np.bool_))
        self._keepers.keep(again, np.ones(len(others), np.bool_), saved.keys.take(others))
        self._kept = dict(zip(map(key_of, saved.keys), saved.stands.tolist(), strict=True))


def _batches(pairs: Iterable[tuple[Key, str]]) -> Iterator[tuple[dict[Key, bytes], list[bytes]]]:
    """Yield raw ids by key, and texts in UTF-8; a key that comes again begins another batch."""
    ids: dict[Key, bytes] = {}
    texts: list[bytes] = []
    characters = 0
    for key, text in pairs:
        raw, octets = raw_id(key), _octets(text)
        if key in ids or len(ids) == BATCH or (ids and characters + len(text) > BATCH_CHARACTERS):
            yield ids, texts
            ids, texts, characters = {}, [], 0
        ids[key] = raw
        texts.append(octets)
        characters += len(text)
    if ids:
        yield ids, texts


def _octets(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"a text is a str, not a {type(text).__name__}")
    return text.encode("utf-8", "surrogatepass")  # half a character, which is no UTF-8, is found later


def _match(verdict: Verdict) -> Match | None:
    if verdict.match is None:
        return None
    match = verdict.match
    return Match(key_of(match.keeper), verdict.reason, match.distance, match.similarity)


def _nowhere(fingerprinter: Fingerprinter) -> KeeperRefetch:
    """Return older keepers of which none is found: all shingles are at hand."""
    return KeeperRefetch(lambda ids: (), fingerprinter)
