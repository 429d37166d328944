"""The batch function that a recipe makes: raw records in, fingerprints out."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dedup_job.document import Fingerprints, digests
from dedup_job.fingerprint.bands import band_keys
from dedup_job.fingerprint.idf import Idf, read_idf
from dedup_job.fingerprint.known_texts import KnownTexts, Words
from dedup_job.fingerprint.recipe import Recipe, Resource
from dedup_job.fingerprint.segment import SEGMENTERS, read_stop_words, read_user_words
from dedup_job.fingerprint.shingles import number_seeds, shingles_of
from dedup_job.fingerprint.simhash import fold
from dedup_job.fingerprint.terms import Vocabulary, weigh
from dedup_job.fingerprint.tokens import Tokenizer, token_rows
from dedup_job.native.ragged import Ragged
from dedup_job.text.characters import joined, lower_case
from dedup_job.text.fields import ExtractedText

LARGEST_VOCABULARY = 1_000_000
MOST_CHARACTERS = 10_000_000  # of the vocabulary


class Fingerprinter:
    """A recipe made ready to work: raw records in, fingerprints out.  Takes seconds to make, so make one."""

    def __init__(self, recipe: Recipe, memory: Words | None = None) -> None:
        """Make it; OSError or ValueError for a file that cannot be used.

        memory  where known texts are kept, of which several processes may know: see `KnownTexts`
        """
        self._recipe = recipe
        words = read_user_words(_path(recipe.user_words)) if recipe.user_words else []
        segmenter = SEGMENTERS[recipe.segmenter]((word.lower(), frequency) for word, frequency in words)
        self._idf = shared_idf(recipe.idf_table)
        self._stop_words = read_stop_words(_path(recipe.stop_words)) if recipe.stop_words else frozenset()
        self._tokens = Tokenizer(recipe.terms, segmenter, self._stop_words)
        self._known_texts = KnownTexts(recipe.digest, recipe.bits // 64, memory)
        self._know_nothing()

    def unjudged(self, reason: str, raw: bytes) -> Fingerprints:
        """Return the row of one record that could not be looked at."""
        return self._recipe.unjudged(reason, raw)

    def __call__(self, raws: Sequence[bytes]) -> Fingerprints:
        """Fingerprint raw BSON records; what cannot be judged gets a reason and zeros."""
        found = self._recipe.reader.found(raws)
        try:
            return self._fingerprints(raws, found)
        except BaseException:
            self._know_nothing()  # what is remembered may be half done
            raise

    def _fingerprints(self, raws: Sequence[bytes], found: Sequence[ExtractedText]) -> Fingerprints:
        texts = [one.text for one in found]
        places: dict[str, int] = {}  # a text that is repeated is looked at once
        place = np.array([places.setdefault(text, len(places)) for text in texts], np.intp)
        distinct = list(places)
        codes = lower_case(distinct)
        hashes = digests(text.encode("utf-8", "surrogatepass") for text in distinct)
        hashes[[not text for text in distinct]] = 0
        bits, counts = self._known_or_new_bits(distinct, codes, hashes)
        sets = self._shingles(distinct, codes)
        matching = self._recipe.matching
        has_fingerprint = counts >= matching.min_terms
        bits[~has_fingerprint] = 0
        return Fingerprints(
            reasons=[one.reason for one in found],
            bits=bits[place],
            has_fingerprint=has_fingerprint[place],
            keys=band_keys(sets, matching.bands, matching.rows)[place],
            digests=hashes[place],
            hashes=digests(raws),
            shingles=sets.take(place.tolist()),
            partial=np.array([one.is_partial for one in found], np.bool_),
        )

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of a cleaned text that count as terms, in order, with repeats."""
        tokens = self._tokens(text)
        rows = self._vocabulary.rows(joined(tokens))
        return [token for token, row in zip(tokens, rows, strict=True) if row >= 0]

    def document_frequencies(self, raws: Sequence[bytes]) -> tuple[int, Counter[str]]:
        """Return the number of texts that can be judged, and in how many of them each term is."""
        self._forget_if_large()
        texts = [text for text in self._recipe.reader.texts(raws)[0] if text]
        return len(texts), Counter(term for text in texts for term in set(self.tokens(text)))

    def _shingles(self, texts: Sequence[str], codes: Ragged) -> Ragged:
        matching = self._recipe.matching
        seeds = number_seeds(texts) if matching.numbers == "distinguish" else None
        return shingles_of(codes, matching.shingle, seeds)

    def _known_or_new_bits(
        self, texts: Sequence[str], codes: Ragged, hashes: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """Return what `_bits` does; a text that came before is not looked at again."""
        is_known, bits, counts = self._known_texts.find(hashes)
        new = np.flatnonzero(~is_known)
        if len(new):
            bits[new], counts[new] = self._bits([texts[row] for row in new.tolist()], codes.take(new))
            self._known_texts.put(hashes[new], bits[new], counts[new])
        return bits, counts

    def _bits(
        self, texts: Sequence[str], codes: Ragged
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """Return the fingerprints, and the number of distinct terms of each text."""
        self._forget_if_large()
        terms = weigh(*self._rows(texts, codes), self._vocabulary, self._recipe.terms)
        bits = fold(terms.offsets, terms.rows, terms.weights, self._vocabulary.hashes())
        return bits, terms.distinct

    def _forget_if_large(self) -> None:
        known = self._vocabulary
        if len(known) > LARGEST_VOCABULARY or known.characters > MOST_CHARACTERS:
            self._know_nothing()

    def _know_nothing(self) -> None:
        rule = self._recipe.terms
        self._vocabulary = Vocabulary(rule, self._idf, self._stop_words, self._recipe.bits)
        self._rows = token_rows(rule, self._tokens, self._vocabulary)


@lru_cache(maxsize=2)
def shared_idf(table: Resource) -> Idf:
    """Return an IDF table, read once in a process."""
    return read_idf(_path(table))


def _path(resource: Resource) -> Path:
    """Return the path of a resource that is still what it was; raises ValueError when it has changed."""
    path = Path(resource.path)
    if hashlib.sha256(path.read_bytes()).hexdigest() != resource.sha256:
        raise ValueError(f"{path} changed while the job was starting; start it again")
    return path
