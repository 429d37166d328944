"""The Deduplicator: decides in memory which texts of a program are unique, as the job does for records."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Self, Unpack

import numpy as np
import numpy.typing as npt

from dedup_job.errors import ConfigError
from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.index.keepers import BatchTexts, KeeperRef, Keepers
from dedup_job.library.arguments import Key, Keywords, as_json, group_of, key_of, raw_id, recipe_of
from dedup_job.library.snapshot import Snapshot, damaged, kept_texts, read, write
from dedup_job.native.arrays import Ragged, append_rows
from dedup_job.pipeline import job
from dedup_job.pipeline.worker_tasks import fingerprints_of
from dedup_job.records import Batch, Fingerprints, PlanTexts, RawIds, Verdict


class EnteredTexts:
    """The columns of all distinct texts so far, needed to save a deduplicator."""

    def __init__(self, words: int, bands: int) -> None:
        """Create empty columns.

        Args:
            words: 64-bit words in a fingerprint.
            bands: Band keys of a text.
        """
        self._count = 0
        self._bits = np.empty((0, words), np.uint64)
        self._near = np.empty(0, np.bool_)
        self._keys = np.empty((0, bands), np.uint32)
        self._digests = np.empty((0, 2), np.uint64)

    def __len__(self) -> int:
        return self._count

    def extend(self, prints: Fingerprints | PlanTexts, rows: npt.NDArray[np.intp]) -> None:
        """Append some of the rows of `prints`."""
        self._bits = append_rows(self._bits, self._count, prints.bits[rows])
        self._near = append_rows(self._near, self._count, prints.has_fingerprint[rows])
        self._keys = append_rows(self._keys, self._count, prints.keys[rows])
        self._digests = append_rows(self._digests, self._count, prints.digests[rows])
        self._count += len(rows)

    def texts(self, ids: RawIds, is_kept: npt.NDArray[np.bool_]) -> PlanTexts:
        """Return the columns of all n texts.

        Args:
            ids: Raw id of each text's keeper, as `kept_texts` returns them.
            is_kept: bool, shape (n,), whether the text has a keeper.
        """
        last = self._count
        return PlanTexts(
            ids, self._bits[:last], self._near[:last], self._keys[:last], self._digests[:last], is_kept
        )


# Texts that are decided together: at most this many, with at most this many characters, or a single text.
BATCH = 1_000
BATCH_CHARACTERS = 1 << 20


@dataclass(frozen=True, slots=True)
class Match:
    """A duplicate's keeper, and how near the two texts are.

    Attributes:
        keeper: The key that the kept text was added with.
        reason: "exact" if the cleaned texts are equal, otherwise "near".
        distance: Hamming distance of the fingerprints; None if one of the texts has no fingerprint.
        similarity: Jaccard similarity of the shingle sets; None if texts are not compared
            (`min_similarity=0`).
    """

    keeper: Key
    reason: str
    distance: int | None
    similarity: float | None


class Deduplicator:
    """Keeps the first text of each group of duplicates, with the same decisions as a run of the job.

    A text is HTML or plain text, like the field of a record, and is cleaned in the same way.  A key is a str,
    a 64-bit int, bytes, a UUID or an ObjectId.  A text that cannot be compared (empty, hidden or too long) is
    kept, and never matches another text.

    Creating a deduplicator takes a second or two, so create it once and share it.  It is thread-safe: calls
    wait for each other, and `add_all` lets other calls run between its batches.  Processes cannot share it.

    Args:
        **settings: Settings of `[clean]`, `[recipe]` and `[match]`, by name; see `Keywords`.

    Raises:
        TypeError: If there is no setting with this name.
        ConfigError: If a value is invalid, or a file that a setting names cannot be read.

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
        # The cache has no size limit, so it has the shingles of all keepers.
        self._keepers = Keepers(self._recipe, sys.maxsize)
        self._entered = EnteredTexts(self._recipe.bits // 64, self._recipe.matching.bands)
        # By key, the number of its text; -1 for a text that cannot be compared.
        self._kept: dict[Key, int] = {}
        self._lock = Lock()
        self._within = self._recipe.reader.fields.within

    def __len__(self) -> int:
        """Return the number of kept texts, including texts that could not be compared."""
        return len(self._kept)

    def __contains__(self, key: object) -> bool:
        """Return whether the text with this key is kept."""
        return key in self._kept

    def __iter__(self) -> Iterator[Key]:
        """Yield the keys of the kept texts, in the order they were added."""
        # A copy: another thread may add texts during the iteration.
        return iter(list(self._kept))

    @property
    def digest(self) -> str:
        """The SHA-256 of the recipe; deduplicators with the same digest make the same decisions."""
        return self._recipe.digest

    def add(self, key: Key, text: str, group: object = None) -> Match | None:
        """Add a text: keep it, or return the kept text that it is a duplicate of.

        Args:
            key: The caller's key for the text.
            text: HTML or plain text.
            group: With `within`, the value of its field, or a tuple with a value for each of its fields: only
                texts of equal groups match.

        Returns:
            None if the text is unique and is kept now, otherwise its match.

        Raises:
            ValueError: If a text with this key is kept already, or the key or group cannot be stored.
            TypeError: If the key or the text has the wrong type.
        """
        return self.add_all([(key, text, group)]).get(key)

    def add_all(self, pairs: Iterable[tuple[Key, str] | tuple[Key, str, object]]) -> dict[Key, Match]:
        """Add many texts in order, much faster than one `add` for each, with the same decisions.

        Args:
            pairs: Keys and texts, and the groups if there are any.

        Returns:
            The matches of the duplicates, by key; a key that is not in the result was kept.  If a key occurs
            again, the last of its texts counts.

        Raises:
            ValueError: As in `add`. Texts of earlier batches (1,000 texts each) have been added by then.
            TypeError: As in `add`, or if an item has not two or three values.
        """
        matches: dict[Key, Match] = {}
        for keys, texts in _batches(pairs, self._within):
            found = self._add(keys, texts)
            # The text that came first with a key may have been dropped, and this one kept.
            for key in matches.keys() & keys.keys():
                del matches[key]
            matches |= found
        return matches

    def find(self, text: str, group: object = None) -> Match | None:
        """Return the match that `add` would return for a text, without adding the text."""
        octets = group_of(group, self._within) + _octets(text)
        with self._lock:
            prints = fingerprints_of(self._fingerprinter, [octets])
            (verdict,) = job.decide_each(prints, self._recipe.matching, self._keepers).verdicts
        return _match(verdict)

    def remove(self, key: Key) -> None:
        """Remove a kept text: later texts are no longer compared with it, and its key may be used again.

        Duplicates dropped because of it earlier stay dropped; the next similar text is kept.  The text still
        counts for the limits on crowded keys: these depend on all texts that were ever added, so that
        removals cannot change which other texts are compared.

        Raises:
            KeyError: If no text with this key is kept.
        """
        with self._lock:
            text = self._kept.pop(key)
            if text >= 0:
                self._keepers.mark_missing([KeeperRef(text, raw_id(key))])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the deduplicator to a file, atomically.

        Raises:
            OSError: If the file cannot be written.
        """
        # Written without the lock: the saved columns are copies, or rows that never change again.
        with self._lock:
            saved = self._saved()
        write(Path(path), saved)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a saved deduplicator, with its settings; it makes the same decisions as before saving.

        Raises:
            OSError: If the file cannot be read.
            StateError: If the file is damaged, or was written by another version.
            ConfigError: If the same settings now give another recipe: a word list or IDF table has changed,
                or another version of the segmenter is installed.
        """
        saved = read(Path(path))
        made = cls(**saved.settings)
        now = made._recipe.settings
        if now != saved.recipe:
            other = sorted(name for name in {*now, *saved.recipe} if now.get(name) != saved.recipe.get(name))
            raise ConfigError(f"{path}: made with another recipe: {', '.join(other)}; save it again")
        made._keepers.load_plan(saved.texts)
        # The index gives texts with equal digests one number.
        if made._keepers.texts != len(saved.texts):
            raise damaged(Path(path))
        made._take(saved)
        return made

    def _add(self, keys: dict[Key, bytes], texts: list[bytes]) -> dict[Key, Match]:
        """Decide one batch.

        Args:
            keys: Raw ids by key, in order.
            texts: The texts in UTF-8, in the same order; with groups, the digest of each text's group first.

        Returns:
            The matches of the duplicates, by key.
        """
        with self._lock:
            # All keys are checked before anything is added, so a batch is added whole or not at all.
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

    def _saved(self) -> Snapshot:
        """Return everything that a file needs to hold."""
        keys = RawIds.of(map(raw_id, self._kept))
        text_numbers = np.fromiter(self._kept.values(), np.int64, len(self._kept))
        ids, is_kept = kept_texts(keys, text_numbers, len(self._entered))
        standing = np.flatnonzero(is_kept)
        known = [known.sets for known in self._keepers.shingles(standing.tolist())]
        return Snapshot(
            settings=self._settings,
            recipe=self._recipe.settings,
            keys=keys,
            text_numbers=text_numbers,
            texts=self._entered.texts(ids, is_kept),
            shingles=Ragged.join(known) if known else Ragged.empty(0),
        )

    def _take(self, saved: Snapshot) -> None:
        """Restore the saved state, after the keepers have loaded its texts."""
        self._entered.extend(saved.texts, np.arange(len(saved.texts)))
        standing = np.flatnonzero(saved.texts.is_kept)
        self._keepers.cache_shingles(standing, saved.shingles)
        # `load_plan` has added the first keeper of each text; further keepers are added here.
        is_first = np.zeros(len(saved.text_numbers), np.bool_)
        is_first[np.unique(saved.text_numbers, return_index=True)[1]] = True
        others = np.flatnonzero(~is_first & (saved.text_numbers >= 0))
        again = BatchTexts(saved.text_numbers[others], np.zeros(len(others), np.bool_))
        self._keepers.keep(again, np.ones(len(others), np.bool_), saved.keys.take(others))
        self._kept = dict(zip(map(key_of, saved.keys), saved.text_numbers.tolist(), strict=True))


def _batches(
    pairs: Iterable[tuple[Key, str] | tuple[Key, str, object]], within: Sequence[str]
) -> Iterator[tuple[dict[Key, bytes], list[bytes]]]:
    """Divide keys and texts into batches; yields the raw ids by key, and the texts as `_add` takes them.

    A key that occurs again begins another batch: whether it can be added depends on the batch before.
    """
    ids: dict[Key, bytes] = {}
    texts: list[bytes] = []
    characters = 0
    for pair in pairs:
        # A str of two characters, such as a key of a dict, would be taken for a key and a text.
        if isinstance(pair, (str, bytes)) or not 2 <= len(pair) <= 3:
            raise TypeError(f"expected (key, text) or (key, text, group), not {type(pair).__name__}")
        key, text, *group = pair
        raw, octets = raw_id(key), group_of(group[0] if group else None, within) + _octets(text)
        if key in ids or len(ids) == BATCH or (ids and characters + len(text) > BATCH_CHARACTERS):
            yield ids, texts
            ids, texts, characters = {}, [], 0
        ids[key] = raw
        texts.append(octets)
        characters += len(text)
    if ids:
        yield ids, texts


def _octets(text: str) -> bytes:
    """Encode a text as UTF-8; raises TypeError if it is not a str."""
    if not isinstance(text, str):
        raise TypeError(f"a text is a str, not a {type(text).__name__}")
    # A lone surrogate becomes invalid UTF-8, which the fingerprinter reports as it does for a record.
    return text.encode("utf-8", "surrogatepass")


def _match(verdict: Verdict) -> Match | None:
    """Return the match of a verdict, with the caller's key; None for a text that is kept."""
    if verdict.match is None:
        return None
    match = verdict.match
    return Match(key_of(match.keeper), verdict.reason, match.distance, match.similarity)
