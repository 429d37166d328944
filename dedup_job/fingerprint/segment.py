"""Segmenters split text into words, by jieba's algorithm in Rust (rjieba) or in Python (jieba)."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from dedup_job.native.arrays import Ragged
from dedup_job.native.compiled import compiled
from dedup_job.text.characters import CODE_POINT, LETTER_BIT

Segmenter = Callable[[str], list[str]]

JOINERS = "-._"
LONGEST_RUN = 1_000
SPACE = np.uint32(32)
LONG_RUN = re.compile(rf"\w{{{LONGEST_RUN}}}(?=\w)")
GAPS: Final = " !\"$'()*,-./:;<=>?@[\\]^_`{|}~、。〈〉《》「」『』【】〔〕–—‘’“”…·"
"""Both engines split a text at these characters first: no word contains one, and none is a word itself."""


def rust_segmenter(user_words: Iterable[tuple[str, int | None]]) -> Segmenter:
    """Return rjieba's accurate mode with HMM: the same words as jieba, 26 times as fast."""
    words = list(user_words)
    return _shared_rust_segmenter() if not words else _load_rust_segmenter(words)


@cache
def _shared_rust_segmenter() -> Segmenter:
    # User words change an engine, so only an engine without them is shared.
    return _load_rust_segmenter([])


def _load_rust_segmenter(user_words: list[tuple[str, int | None]]) -> Segmenter:
    import rjieba

    engine = rjieba.Jieba()
    for word, frequency in user_words:
        engine.add_word(word, frequency, None)
    cut: Segmenter = engine.cut
    return cut


def python_segmenter(user_words: Iterable[tuple[str, int | None]]) -> Segmenter:
    """Return jieba's accurate mode with HMM; its dictionary is read from the package and nowhere else."""
    import logging

    import jieba

    jieba.setLogLevel(logging.WARNING)
    engine = jieba.Tokenizer()
    # jieba unmarshals any `jieba.cache` that it finds in the shared temporary folder, and leaves one there
    # for other users. A private folder, deleted when the dictionary is loaded, prevents both.
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


def prepare_for_segmenter(text: str) -> str:
    """Change a text so that both engines return the same words, in reasonable time.

    Joiners of Latin words become spaces, because rjieba keeps `e-mail`, `u.s` and `foo_bar` whole and jieba
    splits them. An unbroken run of letters and digits gets a space after every 1,000 characters, because
    jieba's HMM takes time quadratic in its length: 115 s for 200,000 times one character.
    """
    for joiner in JOINERS:
        text = text.replace(joiner, " ")
    return LONG_RUN.sub(r"\g<0> ", text) if len(text) > LONGEST_RUN else text


def pieces(codes: Ragged) -> tuple[npt.NDArray[np.int64], Ragged]:
    """Split texts into the pieces between GAPS, which can be segmented independently.

    The words of a text are the words of its pieces, but for words without a letter or digit. A piece also
    ends after 1,000 letters and digits in a row, as in `prepare_for_segmenter`.

    Args:
        codes: Texts as `encode_lower_case` returns them.

    Returns:
        offsets, int64 (n + 1,): text i has the pieces offsets[i] to offsets[i + 1]; and the pieces as code
        points, with a space after each.

    >>> from dedup_job.text.characters import decode_text, encode_lower_case
    >>> offsets, found = pieces(encode_lower_case(["C++, 价格: 100%", "", "e-mail"]))
    >>> offsets, decode_text(found.values)
    (array([0, 3, 3, 5]), 'c++ 价格 100% e mail ')
    """
    offsets, stops, values = _split_at_gaps(codes.offsets, codes.values, _gap_table())
    return offsets, Ragged(stops, values)


@cache
def _gap_table() -> npt.NDArray[np.bool_]:
    """Return for each code point, up to the greatest in GAPS, whether it is in GAPS."""
    gaps = np.zeros(max(map(ord, GAPS)) + 1, np.bool_)
    gaps[list(map(ord, GAPS))] = True
    return gaps


@compiled
def _split_at_gaps(
    starts: npt.NDArray[np.int64], codes: npt.NDArray[np.uint32], gaps: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Return the offsets of the texts' pieces, the offsets of the pieces' code points, and the code
    points."""
    # The space after a piece takes the place of a gap; those in long runs and at the ends of texts come on
    # top.
    most = len(codes) + len(codes) // LONGEST_RUN + len(starts)
    kept, stops = np.empty(most, np.uint32), np.zeros(most + 1, np.int64)
    offsets = np.zeros(len(starts), np.int64)
    filled = count = 0
    for text in range(len(starts) - 1):
        run = 0  # letters and digits in a row
        for place in range(starts[text], starts[text + 1] + 1):
            is_end = place == starts[text + 1]
            code = SPACE if is_end else codes[place] & CODE_POINT
            is_gap = is_end or (code < len(gaps) and gaps[code])
            run = run + 1 if not is_end and codes[place] >= LETTER_BIT else 0
            if filled > stops[count] and (is_gap or run > LONGEST_RUN):
                kept[filled] = SPACE
                filled += 1
                count += 1
                stops[count] = filled
                run = min(run, 1)
            if not is_gap:
                kept[filled] = code
                filled += 1
        offsets[text + 1] = count
    return offsets, stops[: count + 1].copy(), kept[:filled].copy()


def read_stop_words(path: Path) -> frozenset[str]:
    """Read stop words, separated by white space, in lower case."""
    return frozenset(path.read_text("utf-8").lower().split())


def read_user_words(path: Path) -> list[tuple[str, int | None]]:
    """Read a user dictionary in jieba's format, `word [frequency [tag]]` in each line.

    Raises:
        ValueError: If a frequency is not a number; the message names the line.
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
