"""Peers: other deduplicators, each as a function from texts to the rows that it keeps.

All decide keep-first, in memory, in one process, from cleaned texts that are not empty.  The settings are the
best of those that were tried on the sets of docs/accuracy.md.  The packages are the extra `bench`; each is
imported by its own function alone, so that one that is missing costs one row of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dedup_job.fingerprint.shingles import normalised

MIN_JACCARD = 0.8
PERMUTATIONS = 128
BANDS, BAND_SIZE = 14, 9  # texts of similarity 0.8 meet with probability 0.87, of 0.9 with 0.999
KEYWORDS = 30
BITS = 3

Rows = list[int]


def datasketch_rows(texts: Sequence[str], length: int) -> Rows:
    """Return what datasketch's MinHashLSH keeps, with bands chosen for recall."""
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(num_perm=PERMUTATIONS, params=(BANDS, BAND_SIZE))
    kept = []
    for row, text in enumerate(texts):
        sketch = MinHash(PERMUTATIONS)
        sketch.update_batch([shingle.encode() for shingle in shingles(text, length)])
        if not index.query(sketch):
            index.insert(row, sketch)
            kept.append(row)
    return kept


def rensa_rows(texts: Sequence[str], length: int) -> Rows:
    """Return what rensa's RMinHashDeduplicator keeps."""
    from rensa import RMinHash, RMinHashDeduplicator

    seen = RMinHashDeduplicator(MIN_JACCARD, PERMUTATIONS, use_lsh=True)
    kept = []
    for row, text in enumerate(texts):
        sketch = RMinHash(PERMUTATIONS, 42)
        sketch.update(list(shingles(text, length)))
        if seen.add(str(row), sketch):
            kept.append(row)
    return kept


def gaoya_minhash_rows(texts: Sequence[str], length: int) -> Rows:
    """Return what gaoya's MinHashStringIndex keeps; it cuts the shingles itself."""
    from gaoya.minhash import MinHashStringIndex

    index = MinHashStringIndex(
        32, MIN_JACCARD, BANDS, BAND_SIZE, analyzer="char", ngram_range=(length, length)
    )
    return _first_of_each(index, texts)


def gaoya_simhash_rows(texts: Sequence[str], length: int) -> Rows:
    """Return what gaoya's SimHashStringIndex keeps; its distance is exclusive, so that 5 finds 4 bits."""
    from gaoya.simhash import SimHashStringIndex

    index = SimHashStringIndex(64, 6, 5, analyzer="char", ngram_range=(length, length))
    return _first_of_each(index, texts)


def simhash_rows(texts: Sequence[str], _length: int) -> Rows:
    """Return what the `simhash` package keeps with the features it takes by itself, runs of 4 characters."""
    return _far_from_all_before(texts)


def simhash_keyword_rows(texts: Sequence[str], _length: int) -> Rows:
    """Return what the `simhash` package keeps with jieba's heaviest keywords and their weights."""
    from jieba.analyse import extract_tags

    return _far_from_all_before(extract_tags(text, KEYWORDS, withWeight=True) for text in texts)


PEERS: dict[str, Callable[[Sequence[str], int], Rows]] = {
    "datasketch MinHashLSH": datasketch_rows,
    "rensa RMinHash": rensa_rows,
    "gaoya MinHash": gaoya_minhash_rows,
    "gaoya SimHash": gaoya_simhash_rows,
    "simhash": simhash_rows,
    "simhash, jieba keywords": simhash_keyword_rows,
}


def shingles(text: str, length: int) -> set[str]:
    """Return the character shingles of a text; a shorter text is its own only one.

    >>> sorted(shingles("A, b c!", 2))
    ['ab', 'bc']
    """
    text = normalised(text)
    return {text[start : start + length] for start in range(max(1, len(text) - length + 1))}


def _first_of_each(index: Any, texts: Sequence[str]) -> Rows:
    kept = []
    for row, text in enumerate(map(normalised, texts)):
        if not index.query(text):
            index.insert_document(row, text)
            kept.append(row)
    return kept


def _far_from_all_before(features: Iterable[Any]) -> Rows:
    from simhash import Simhash, SimhashIndex

    index = SimhashIndex([], k=BITS)
    kept = []
    for row, found in enumerate(features):
        fingerprint = Simhash(found)
        if not index.get_near_dups(fingerprint):
            index.add(str(row), fingerprint)
            kept.append(row)
    return kept
