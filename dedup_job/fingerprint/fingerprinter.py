"""Compute the fingerprints of a batch of raw records, as the recipe says."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from dedup_job.fingerprint.idf import Idf, read_idf
from dedup_job.fingerprint.jieba_to_segmenter_trie import load_tables
from dedup_job.fingerprint.minhash_bands import band_keys
from dedup_job.fingerprint.recipe import Recipe, Resource
from dedup_job.fingerprint.segment import Segmenter, read_stop_words, read_user_words
from dedup_job.fingerprint.shingles import number_seeds, shingle_sets
from dedup_job.fingerprint.simhash import compute_simhashes
from dedup_job.fingerprint.weighted_terms import TermFinder
from dedup_job.preference.preference_ranks import Ranks, rank_records
from dedup_job.records import Fingerprints, digests
from dedup_job.text.code_points import encode_lower_case
from dedup_job.within.group_separation import separate_groups


class Fingerprinter:
    """Fingerprints raw records with a recipe. It takes seconds to construct, so a process needs only one.

    Raises:
        OSError: If a file that the recipe names cannot be read.
        ValueError: If such a file is malformed, or has changed since the recipe was made.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        words = read_user_words(_checked_path(recipe.user_words)) if recipe.user_words else []
        tables = load_tables(tuple((word.lower(), frequency) for word, frequency in words))
        stop_words = read_stop_words(_checked_path(recipe.stop_words)) if recipe.stop_words else ()
        segmenter = Segmenter(tables, recipe.hmm)
        idf_weights = load_idf_weights(recipe.idf_table, recipe.terms.idf)
        self.terms = TermFinder(recipe.terms, segmenter, idf_weights, stop_words, recipe.bits)

    def unchecked(self, reason: str, raw: bytes) -> Fingerprints:
        """Return the fingerprints of one record that could not be processed, with this reason."""
        return self._recipe.unchecked(reason, raw)

    def __call__(self, raws: Sequence[bytes]) -> Fingerprints:
        """Fingerprint raw BSON records; a record without a usable text gets a reason and zeros."""
        extracted_texts = self._recipe.reader.extract(raws)
        # A repeated text is processed once: the text of record i is texts[text_of[i]].
        numbers: dict[str, int] = {}
        text_of = np.array([numbers.setdefault(each.text, len(numbers)) for each in extracted_texts], np.intp)
        texts = list(numbers)
        codes = encode_lower_case(texts)
        text_digests = digests(text.encode("utf-8", "surrogatepass") for text in texts)
        # Zeros say that a record has no text.
        text_digests[[not text for text in texts]] = 0
        terms = self.terms.weigh(self.terms.find(texts, codes))
        bits = compute_simhashes(terms.offsets, terms.weights, terms.hashes)
        matching = self._recipe.matching
        seeds = number_seeds(texts) if matching.numbers == "distinguish" else None
        sets = shingle_sets(codes, matching.shingle, seeds)
        has_fingerprint = terms.distinct >= matching.min_terms
        bits[~has_fingerprint] = 0
        prints = Fingerprints(
            reasons=[each.reason for each in extracted_texts],
            bits=bits[text_of],
            has_fingerprint=has_fingerprint[text_of],
            keys=band_keys(sets, matching.bands, matching.rows)[text_of],
            digests=text_digests[text_of],
            hashes=digests(raws),
            shingles=sets.take(text_of.tolist()),
            partial=np.array([each.is_partial for each in extracted_texts], np.bool_),
            ranks=self._rank(raws, [len(each.text) for each in extracted_texts]),
        )
        if not self._recipe.reader.fields.within:
            return prints
        return separate_groups(prints, [each.group for each in extracted_texts])

    def _rank(self, raws: Sequence[bytes], lengths: Sequence[int]) -> Ranks | None:
        rules = self._recipe.matching.prefer
        return rank_records(raws, lengths, rules) if rules else None

    def document_frequencies(self, raws: Sequence[bytes]) -> tuple[int, Counter[str]]:
        """Return the number of records with a usable text, and in how many of them each term occurs."""
        texts = list(filter(None, self._recipe.reader.texts(raws)))
        return len(texts), Counter(term for text in texts for term in set(self.terms.names(text)))


@lru_cache(maxsize=2)
def load_idf_weights(table: Resource, kind: str) -> Idf:
    """Read an IDF table and weigh its terms, once in a process."""
    return read_idf(_checked_path(table)).weights(kind)


def _checked_path(resource: Resource) -> Path:
    """Return the path of a resource.

    Raises:
        OSError: If it cannot be read.
        ValueError: If its content has changed since the recipe was made.
    """
    path = Path(resource.path)
    if hashlib.sha256(path.read_bytes()).hexdigest() != resource.sha256:
        raise ValueError(f"{path} changed while the job was starting; start it again")
    return path
