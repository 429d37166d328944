"""Peers: other deduplicators, each as a function from texts to the rows that it keeps.

All keep the first of similar texts, in memory, in one process, from cleaned texts that are not empty.
datasketch, rensa and gaoya's MinHash get the shingles that define similarity; their thresholds and bands have
the best mean F1 of those that `python -m scripts.bench.explore_peers` tries. The packages are the extra
`bench`; each is imported by its own function, so a missing package costs only its own row.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from xxhash import xxh64_intdigest

PERMUTATIONS = 128
LARGEST_COUNT = 50
CJK = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
SHINGLE = re.compile(f"(?=([{CJK}].{{2}}|[^{CJK}].{{4}}))", re.DOTALL)
Rows = list[int]


@dataclass(frozen=True, slots=True)
class Sketching:
    """The settings of a MinHash library.

    Attributes:
        threshold: Least estimated similarity of two sketches at which the later text is dropped.
        bands: Number of bands; texts whose sketches agree in one band are compared.
        rows: Values of a sketch in one band; bands times rows is at most 128.
    """

    threshold: float
    bands: int
    rows: int


# Each has the best mean F1 over leetcode, medical_qa and reuters21578 by `gt_places.tsv.gz`, among the
# thresholds from 0.70 to 0.85 and the two shapes of bands that `explore_peers` tries: 0.9973, 0.9988, 0.9976.
DATASKETCH = Sketching(0.75, 32, 4)
RENSA = Sketching(0.76, 32, 4)
GAOYA = Sketching(0.76, 18, 7)


def datasketch_rows(texts: Sequence[str], by: Sketching = DATASKETCH) -> Rows:
    """Return the rows that datasketch's MinHashLSH keeps, with an estimated similarity as a filter."""
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(num_perm=PERMUTATIONS, params=(by.bands, by.rows))
    kept: dict[int, Any] = {}
    for row, text in enumerate(texts):
        sketch = MinHash(PERMUTATIONS)
        sketch.update_batch([shingle.encode() for shingle in shingles(text)])
        if all(sketch.jaccard(kept[other]) < by.threshold for other in index.query(sketch)):
            index.insert(row, sketch)
            kept[row] = sketch
    return list(kept)


def rensa_rows(texts: Sequence[str], by: Sketching = RENSA) -> Rows:
    """Return the rows that rensa's RMinHashDeduplicator keeps."""
    from rensa import RMinHash, RMinHashDeduplicator

    permutations = by.bands * by.rows
    seen = RMinHashDeduplicator(by.threshold, permutations, use_lsh=True, num_bands=by.bands)
    kept = []
    for row, text in enumerate(texts):
        sketch = RMinHash(permutations, 42)
        sketch.update(list(shingles(text)))
        if seen.add(str(row), sketch):
            kept.append(row)
    return kept


def gaoya_minhash_rows(texts: Sequence[str], by: Sketching = GAOYA) -> Rows:
    """Return the rows that gaoya's MinHashStringIndex keeps; a function as its analyzer gives it shingles."""
    from gaoya.minhash import MinHashStringIndex

    index = MinHashStringIndex(32, by.threshold, by.bands, by.rows, analyzer=list)
    return _unlike_all_before(index, map(shingles, texts))


def gaoya_simhash_rows(texts: Sequence[str]) -> Rows:
    """Return the rows that gaoya's SimHashStringIndex keeps; its distance is exclusive, so 7 finds 6 bits."""
    from gaoya.simhash import SimHashStringIndex

    index = SimHashStringIndex(64, num_blocks=8, hamming_distance=7, analyzer="char", ngram_range=(4, 4))
    return _unlike_all_before(index, map(counted, texts))


def simhash_rows(texts: Sequence[str]) -> Rows:
    """Return the rows that the `simhash` package keeps with its default features, runs of 4 characters.

    A count above 50 is passed as a float: an integer breaks the package under numpy 2 (1e0ng/simhash, issue
    74).
    """
    counts = (Counter(runs(text, 4)) for text in texts)
    features = (
        {run: count if count <= LARGEST_COUNT else float(count) for run, count in found.items()}
        for found in counts
    )
    return _far_from_all_before(features, bits=5)


def simhash_keyword_rows(texts: Sequence[str]) -> Rows:
    """Return the rows that the `simhash` package keeps with jieba's 30 heaviest keywords and weights."""
    import jieba
    from jieba.analyse import extract_tags

    jieba.setLogLevel(logging.WARNING)
    return _far_from_all_before((extract_tags(text, 30, withWeight=True) for text in texts), bits=3)


def datatrove_rows(texts: Sequence[str]) -> Rows:
    """Return the rows that datatrove's four MinHash steps keep, through files; words are characters."""
    from datatrove.data import Document
    from datatrove.pipeline import dedup
    from loguru import logger

    logger.disable("datatrove")
    config = dedup.MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8)
    documents = [Document(text=counted(text), id=str(row)) for row, text in enumerate(texts)]
    with TemporaryDirectory() as folder:
        signatures = dedup.MinhashDedupSignature(f"{folder}/signatures", config)
        signatures.word_tokenizer = _Characters()
        # datatrove's own function passes strings, which xxhash 4 refuses.
        signatures._hash_func = lambda words: xxh64_intdigest(words.encode())
        signatures.run(iter(documents))
        buckets = dedup.MinhashDedupBuckets(f"{folder}/signatures", f"{folder}/buckets", config=config)
        for bucket in range(config.num_buckets):
            buckets.run(None, bucket, config.num_buckets)
        dedup.MinhashDedupCluster(f"{folder}/buckets", f"{folder}/removed", config=config).run(None, 0, 1)
        kept = dedup.MinhashDedupFilter(f"{folder}/removed").run(iter(documents), 0, 1)
        return [int(document.id) for document in kept]


class _Characters:
    def word_tokenize(self, text: str) -> list[str]:
        return list(text)


PEERS: dict[str, Callable[[Sequence[str]], Rows]] = {
    "datasketch MinHashLSH": datasketch_rows,
    "rensa RMinHash": rensa_rows,
    "gaoya MinHash": gaoya_minhash_rows,
    "gaoya SimHash": gaoya_simhash_rows,
    "datatrove MinHash": datatrove_rows,
    "simhash": simhash_rows,
    "simhash of jieba keywords": simhash_keyword_rows,
}


class _Counting(dict[int, str | None]):
    """A table for `str.translate`: keeps letters, marks, digits, symbols and # % & @ only."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        counts = unicodedata.category(character)[0] in "LMNS" or character in "#%&@"
        self[code] = character if counts else None
        return self[code]


COUNTING = _Counting()


def counted(text: str) -> str:
    """Return the characters of a cleaned text that similarity counts.

    >>> counted("C++ is (not) C#!")
    'c++isnotc#'
    """
    return text.lower().translate(COUNTING)


def shingles(text: str) -> set[str]:
    """Return the shingles of a cleaned text; a text that is too short for shingles is its only shingle.

    A shingle that starts with a Chinese, Japanese or Korean character has three characters, any other five.

    >>> sorted(shingles("a C++ 价格表"))
    ['++价格表', 'ac++价', 'c++价格', '价格表']
    """
    text = counted(text)
    return set(SHINGLE.findall(text)) or {text}


def runs(text: str, length: int) -> list[str]:
    """Return the runs of `length` counted characters in a text; a shorter text is its only run.

    >>> runs("A, b c!", 2)
    ['ab', 'bc']
    """
    text = counted(text)
    return [text[start : start + length] for start in range(max(1, len(text) - length + 1))]


def _unlike_all_before(index: Any, documents: Iterable[Any]) -> Rows:
    kept = []
    for row, document in enumerate(documents):
        if not index.query(document):
            index.insert_document(row, document)
            kept.append(row)
    return kept


def _far_from_all_before(features: Iterable[Any], bits: int) -> Rows:
    """Return the rows farther than this many bits from all kept rows; a text without features is kept."""
    from simhash import Simhash, SimhashIndex

    # The package logs each visit to a large bucket.
    logging.getLogger("simhash").setLevel(logging.ERROR)
    index = SimhashIndex([], k=bits)
    kept = []
    for row, found in enumerate(features):
        fingerprint = Simhash(found) if found else None
        if fingerprint and index.get_near_dups(fingerprint):
            continue
        if fingerprint:
            index.add(str(row), fingerprint)
        kept.append(row)
    return kept
