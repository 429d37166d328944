"""Peers: other deduplicators, each as a function from texts to the rows that it keeps.

All decide keep-first, in memory, in one process, from cleaned texts that are not empty.  Their settings are
those of the best mean F1 among the ones named in docs/accuracy.md, on the sets of that page.  The packages
are the extra `bench`; each is imported by its own function, so that one that is missing costs one row.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from tempfile import TemporaryDirectory
from typing import Any

from xxhash import xxh64_intdigest

from dedup_job.fingerprint.shingles import normalised

PERMUTATIONS = 128
LARGEST_COUNT = 50
Rows = list[int]


def datasketch_rows(texts: Sequence[str], length: int) -> Rows:
    """Return what datasketch's MinHashLSH keeps when its candidates are estimated to be similar enough."""
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(num_perm=PERMUTATIONS, params=(18, 7))
    kept: dict[int, Any] = {}
    for row, text in enumerate(texts):
        sketch = MinHash(PERMUTATIONS)
        sketch.update_batch([run.encode() for run in set(runs(text, length))])
        if all(sketch.jaccard(kept[other]) < 0.75 for other in index.query(sketch)):
            index.insert(row, sketch)
            kept[row] = sketch
    return list(kept)


def rensa_rows(texts: Sequence[str], length: int) -> Rows:
    """Return what rensa's RMinHashDeduplicator keeps."""
    from rensa import RMinHash, RMinHashDeduplicator

    seen = RMinHashDeduplicator(0.75, PERMUTATIONS, use_lsh=True, num_bands=32)
    kept = []
    for row, text in enumerate(texts):
        sketch = RMinHash(PERMUTATIONS, 42)
        sketch.update(list(set(runs(text, length))))
        if seen.add(str(row), sketch):
            kept.append(row)
    return kept


def gaoya_minhash_rows(texts: Sequence[str], length: int) -> Rows:
    """Return what gaoya's MinHashStringIndex keeps; it cuts the shingles itself."""
    from gaoya.minhash import MinHashStringIndex

    index = MinHashStringIndex(32, 0.78, 32, 4, analyzer="char", ngram_range=(length, length))
    return _unlike_all_before(index, texts)


def gaoya_simhash_rows(texts: Sequence[str], _length: int) -> Rows:
    """Return what gaoya's SimHashStringIndex keeps; its distance is exclusive, so that 7 finds 6 bits."""
    from gaoya.simhash import SimHashStringIndex

    index = SimHashStringIndex(64, num_blocks=8, hamming_distance=7, analyzer="char", ngram_range=(4, 4))
    return _unlike_all_before(index, texts)


def simhash_rows(texts: Sequence[str], _length: int) -> Rows:
    """Return what the `simhash` package keeps with the features that it would take, runs of 4 characters.

    A count above 50 is given as a float: an integer breaks it under numpy 2 (1e0ng/simhash, issue 74).
    """
    counts = (Counter(runs(text, 4)) for text in texts)
    features = (
        {run: count if count <= LARGEST_COUNT else float(count) for run, count in found.items()}
        for found in counts
    )
    return _far_from_all_before(features, bits=5)


def simhash_keyword_rows(texts: Sequence[str], _length: int) -> Rows:
    """Return what the `simhash` package keeps with jieba's 30 heaviest keywords and their weights."""
    import jieba
    from jieba.analyse import extract_tags

    jieba.setLogLevel(logging.WARNING)
    return _far_from_all_before((extract_tags(text, 30, withWeight=True) for text in texts), bits=3)


def datatrove_rows(texts: Sequence[str], _length: int) -> Rows:
    """Return what datatrove's four MinHash steps keep, through files in one process; words are characters."""
    from datatrove.data import Document
    from datatrove.pipeline import dedup
    from loguru import logger

    logger.disable("datatrove")
    config = dedup.MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8)
    documents = [Document(text=normalised(text), id=str(row)) for row, text in enumerate(texts)]
    with TemporaryDirectory() as folder:
        signatures = dedup.MinhashDedupSignature(f"{folder}/signatures", config)
        signatures.word_tokenizer = _Characters()
        # Its own hands over strings, which xxhash 4 refuses.
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


PEERS: dict[str, Callable[[Sequence[str], int], Rows]] = {
    "datasketch MinHashLSH": datasketch_rows,
    "rensa RMinHash": rensa_rows,
    "gaoya MinHash": gaoya_minhash_rows,
    "gaoya SimHash": gaoya_simhash_rows,
    "datatrove MinHash": datatrove_rows,
    "simhash": simhash_rows,
    "simhash of jieba keywords": simhash_keyword_rows,
}


def runs(text: str, length: int) -> list[str]:
    """Return the runs of so many letters and digits in a text; a shorter text is its own only one.

    >>> runs("A, b c!", 2)
    ['ab', 'bc']
    """
    text = normalised(text)
    return [text[start : start + length] for start in range(max(1, len(text) - length + 1))]


def _unlike_all_before(index: Any, texts: Sequence[str]) -> Rows:
    kept = []
    for row, text in enumerate(map(normalised, texts)):
        if not index.query(text):
            index.insert_document(row, text)
            kept.append(row)
    return kept


def _far_from_all_before(features: Iterable[Any], bits: int) -> Rows:
    """Keep what is more than so many bits from all that was kept; a text without features is kept."""
    from simhash import Simhash, SimhashIndex

    logging.getLogger("simhash").setLevel(logging.ERROR)  # it tells of each visit to a large bucket
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
