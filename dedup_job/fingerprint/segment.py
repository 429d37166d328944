"""Segmenters: text -> words, by jieba's algorithm in Rust (rjieba) or in Python (jieba)."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from dedup_job.native.compiled import compiled
from dedup_job.native.ragged import Ragged
from dedup_job.text.characters import CODE, LETTER

Segmenter = Callable[[str], list[str]]

JOINERS = "-._"
LONGEST_RUN = 1_000
SPACE = np.uint32(32)
LONG_RUN = re.compile(rf"\w{{{LONGEST_RUN}}}(?=\w)")
GAPS: Final = " !\"$'()*,-./:;<=>?@[\\]^_`{|}~、。〈〉《》「」『』【】〔〕–—‘’“”…·"
"""No word of either engine crosses one of these, and none is a word: both split a text at them first."""


def rust_segmenter(user_words: Iterable[tuple[str, int | None]]) -> Segmenter:
    """Return rjieba's accurate mode with HMM: the same words as jieba, 26 times faster."""
    words = list(user_words)
    return _shared_rust() if not words else _rust(words)


@cache
def _shared_rust() -> Segmenter:
    return _rust([])


def _rust(user_words: list[tuple[str, int | None]]) -> Segmenter:
    import rjieba

    engine = rjieba.Jieba()
    for word, frequency in user_words:
        engine.add_word(word, frequency, None)
    cut: Segmenter = engine.cut
    return cut


def python_segmenter(user_words: Iterable[tuple[str, int | None]]) -> Segmenter:
    """Return jieba's accurate mode with HMM, its dictionary read from the package and nowhere else.

    jieba unmarshals any `jieba.cache` that it finds in the shared temporary folder, and leaves one there for
    others.  A private folder, gone when the dictionary is loaded, prevents both.
    """
    import logging

    import jieba

    jieba.setLogLevel(logging.WARNING)
    engine = jieba.Tokenizer()
    with tempfile.TemporaryDirectory(prefix="dedup-job-") as private:
        engine.tmp_dir = private
        engine.initialize()
    for word, frequency in user_words:
        engine.add_word(word, frequency)
    return lambda text: list(engine.cut(text))


SEGMENTERS: dict[str, Callable[[Iterable[tuple[str, int | None]]], Segmenter]] = {
    "rjieba": rust_segmenter,
    "jieba": python_segmenter,
}


def segmentable(text: str) -> str:
    """Return a text in the form in which both engines give the same words, in reasonable time.

    Joiners of Latin words become spaces, because rjieba keeps `e-mail`, `u.s` and `foo_bar` whole where
    jieba splits them.  An unbroken run of letters and digits gets a space after every 1,000 characters,
    because jieba's HMM takes time quadratic in its length: 115 s for 200,000 times one character.
    """
    for joiner in JOINERS:
        text = text.replace(joiner, " ")
    return LONG_RUN.sub(r"\g<0> ", text) if len(text) > LONGEST_RUN else text


def pieces(codes: Ragged) -> tuple[npt.NDArray[np.int64], Ragged]:
    """Return the pieces between GAPS of texts that are given as `characters.lower_case` has them.

    Text i has the pieces offsets[i] .. offsets[i + 1], given as code points, a space after each.  They can be
    segmented apart: the words of a text are those of its pieces, but for words without letter or digit.  A
    piece ends after 1,000 letters and digits in a row, as in `segmentable`.

    >>> from dedup_job.text.characters import decoded, lower_case
    >>> offsets, found = pieces(lower_case(["C++, 价格: 100%", "", "e-mail"]))
    >>> offsets, decoded(found.values)
    (array([0, 3, 3, 5]), 'c++ 价格 100% e mail ')
    """
    offsets, stops, values = _cut(codes.offsets, codes.values, _gaps())
    return offsets, Ragged(stops, values)


@cache
def _gaps() -> npt.NDArray[np.bool_]:
    """Return for each code point up to the greatest of the gaps whether it is one."""
    gaps = np.zeros(max(map(ord, GAPS)) + 1, np.bool_)
    gaps[list(map(ord, GAPS))] = True
    return gaps


@compiled
def _cut(
    starts: npt.NDArray[np.int64], codes: npt.NDArray[np.uint32], gaps: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Return how many pieces end before each text, where each piece ends, and all pieces."""
    most = len(codes) + len(codes) // LONGEST_RUN + len(starts)
    kept, stops = np.empty(most, np.uint32), np.zeros(most + 1, np.int64)
    offsets = np.zeros(len(starts), np.int64)
    filled = found = 0
    for text in range(len(starts) - 1):
        run = 0  # letters and digits
        for place in range(starts[text], starts[text + 1] + 1):
            is_end = place == starts[text + 1]
            code = SPACE if is_end else codes[place] & CODE
            is_gap = is_end or (code < len(gaps) and gaps[code])
            run = run + 1 if not is_end and codes[place] >= LETTER else 0
            if filled > stops[found] and (is_gap or run > LONGEST_RUN):
                kept[filled] = SPACE
                filled += 1
                found += 1
                stops[found] = filled
                run = min(run, 1)
            if not is_gap:
                kept[filled] = code
                filled += 1
        offsets[text + 1] = found
    return offsets, stops[: found + 1].copy(), kept[:filled].copy()


def read_stop_words(path: Path) -> frozenset[str]:
    """Read stop words, separated by white space; they are compared in lower case."""
    return frozenset(path.read_text("utf-8").lower().split())


def read_user_words(path: Path) -> list[tuple[str, int | None]]:
    """Read a user dictionary in jieba's format: one `word [frequency [tag]]` a line.

    Raises ValueError, naming the line, for a frequency that is not a number.
    """
    words: list[tuple[str, int | None]] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        parts = line.split()
        if not parts:
            continue
        if len(parts) > 1 and not (parts[1].isascii() and parts[1].isdigit()):
            raise ValueError(f"{path}: line {number}: expected `word [frequency [tag]]`")
        words.append((parts[0], int(parts[1]) if len(parts) > 1 else None))
    return words
