"""The recipe: all that decides a fingerprint or a match, its digest, and the batch function made from it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dedup_job.document import Fingerprints, Passed, digests
from dedup_job.fingerprint.clean import Cleaner
from dedup_job.fingerprint.fields import TextFields
from dedup_job.fingerprint.idf import jieba_idf_path, read_idf
from dedup_job.fingerprint.segment import SEGMENTERS, read_user_words
from dedup_job.fingerprint.shingles import normalised, shingles
from dedup_job.fingerprint.simhash import fold
from dedup_job.fingerprint.terms import TermRule, Tokenizer, Vocabulary, weigh

FORMAT = 1  # raised when the same settings would give other fingerprints
LARGEST_VOCABULARY = 1_000_000


@dataclass(frozen=True, slots=True)
class Resource:
    """A file that the recipe depends on: known by its content, found by its path."""

    path: str
    sha256: str

    @classmethod
    def at(cls, path: Path) -> Resource:
        """Take the digest of a file; raises OSError when it cannot be read."""
        return cls(str(path), hashlib.sha256(path.read_bytes()).hexdigest())


@dataclass(frozen=True, slots=True)
class Matching:
    """What makes two fingerprinted texts match.

    radius       greatest Hamming distance, in bits
    min_terms    fewer distinct terms than this: only an exact copy matches
    min_jaccard  least similarity of the shingle sets; 0 takes the fingerprint's word for it
    shingle      length of a shingle, in characters
    """

    radius: int = 3
    min_terms: int = 8
    min_jaccard: float = 0.0
    shingle: int = 5


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides a fingerprint or a match; two runs with the same digest decide alike."""

    fields: TextFields
    cleaner: Cleaner = Cleaner()
    segmenter: str = "rjieba"
    terms: TermRule = TermRule()
    bits: int = 64
    matching: Matching = Matching()
    idf: Resource = field(default_factory=lambda: Resource.at(jieba_idf_path()))
    stop_words: Resource | None = None
    user_words: Resource | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Return the recipe as plain values: files by their digest, engines with their version."""
        values: dict[str, Any] = {"format": FORMAT, **_flat(asdict(self))}
        for name in ("idf", "stop_words", "user_words"):
            resource: Resource | None = getattr(self, name)
            values.pop(f"{name}.path", None)
            values.pop(f"{name}.sha256", None)
            values[name] = resource.sha256 if resource else None
        values["segmenter"] = f"{self.segmenter} {version(self.segmenter)}"
        values["selectolax"] = version("selectolax")
        return dict(sorted(values.items()))

    @property
    def digest(self) -> str:
        """Return the sha256 of the settings, 64 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings as dotted names; tuples become lists, as JSON and BSON have them."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = list(value) if isinstance(value, tuple) else value
    return flat


class Fingerprinter:
    """A recipe made ready to work: raw records in, fingerprints out.  Takes seconds to make, so make one."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        words = read_user_words(_path(recipe.user_words)) if recipe.user_words else []
        self._tokens = Tokenizer(recipe.terms, SEGMENTERS[recipe.segmenter](words))
        self._idf = read_idf(_path(recipe.idf))
        stop_words = _path(recipe.stop_words).read_text("utf-8") if recipe.stop_words else ""
        self._stop_words = frozenset(stop_words.lower().split())
        self._vocabulary = self._empty_vocabulary()

    def __call__(self, raws: Sequence[bytes]) -> Fingerprints:
        """Fingerprint raw BSON records; what cannot be judged gets a reason and zeros."""
        texts, reasons = self._texts(raws)
        bits, near = self._bits(texts)
        return Fingerprints(
            reasons=reasons,
            bits=bits,
            near=near,
            digests=digests(text.encode("utf-8", "surrogatepass") for text in texts),
            hashes=digests(raws),
            shingles=shingles([normalised(text) for text in texts], self._recipe.matching.shingle),
        )

    def text(self, raw: bytes) -> str:
        """Return the cleaned text of a record; raises Passed."""
        return self._recipe.cleaner.clean(self._recipe.fields.text_of(raw))

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of a cleaned text that count as terms, in order, with repeats."""
        return [token for token in self._tokens(text) if self._vocabulary[token] >= 0]

    def document_frequencies(self, raws: Sequence[bytes]) -> tuple[int, Counter[str]]:
        """Return the number of texts that can be judged, and in how many of them each term is."""
        texts = [text for text in self._texts(raws)[0] if text]
        return len(texts), Counter(term for text in texts for term in set(self.tokens(text)))

    def _texts(self, raws: Sequence[bytes]) -> tuple[list[str], list[str]]:
        texts, reasons = [], []
        for raw in raws:
            try:
                text, reason = self.text(raw), ""
            except Passed as passed:
                text, reason = "", passed.reason
            texts.append(text)
            reasons.append(reason)
        return texts, reasons

    def _bits(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        if len(self._vocabulary) > LARGEST_VOCABULARY:
            self._vocabulary = self._empty_vocabulary()
        row_of = self._vocabulary.__getitem__
        token_rows = [list(map(row_of, self._tokens(text))) for text in texts]
        terms = weigh(token_rows, self._vocabulary, self._recipe.terms)
        used, where = np.unique(terms.rows, return_inverse=True)
        bits = fold(terms.offsets, where, terms.weights, self._vocabulary.hashes(used))
        near = np.diff(terms.offsets) >= max(1, self._recipe.matching.min_terms)
        bits[~near] = 0
        return bits, near

    def _empty_vocabulary(self) -> Vocabulary:
        return Vocabulary(self._recipe.terms, self._idf, self._stop_words, self._recipe.bits)


def _path(resource: Resource) -> Path:
    """Return the path of a resource that is still what it was; raises ValueError when it has changed."""
    path = Path(resource.path)
    if hashlib.sha256(path.read_bytes()).hexdigest() != resource.sha256:
        raise ValueError(f"{path} changed while the job was starting; start it again")
    return path
