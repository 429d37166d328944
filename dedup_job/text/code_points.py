"""Texts as code points (uint32): in lower case; which are letters or digits, and which count for equality.

All properties of a character come from one table indexed by code point. A regular expression needs 20 to 40
ns per character, compiled code with a table 1 ns.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence, Sized
from functools import cache
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from dedup_job.native.arrays import Ragged
from dedup_job.native.numba_compile import compiled, compiled_helper

LETTER_BIT: Final = np.uint32(1 << 31)
"""Set beside the code point of a letter or digit: a regular expression's `\\w` without the underscore."""
COMPARED_BIT: Final = np.uint32(1 << 30)
"""Set beside the code point of a character that counts when texts are compared: see `is_compared`."""
CODE_POINT: Final = np.uint32((1 << 21) - 1)
"""Mask of the bits that hold the code point."""
LAST_CHINESE: Final = 0x3FFFF

_CODE_POINT_COUNT: Final = 0x110000
# No character outside these ranges has a lower case, or is a letter, a digit or compared.
_ASSIGNED_RANGES: Final = (range(0x40000), range(0xE0100, 0xE01F0))
_COMPARED_CATEGORIES: Final = "LMNS"  # their first letter: letters, marks, numbers, symbols
_COMPARED_PUNCTUATION: Final = frozenset("#%&@")
_NO_LETTERS: Final = re.compile(r"[\W_]+")
# A table cannot give the lower case of these two: sigma's depends on its neighbours, and the dotted I's has
# two characters.
_SIGMA, _DOTTED_I = "\u03a3", "\u0130"


def encode_text(text: str) -> npt.NDArray[np.uint32]:
    """Return the code points of a text.

    >>> encode_text("a\\u4e2d").tolist()
    [97, 20013]
    """
    # surrogatepass: BSON and JSON can hold half of a surrogate pair, and it must survive the round trip.
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def decode_text(codes: npt.NDArray[np.uint32]) -> str:
    """Return the text with these code points."""
    return codes.tobytes().decode("utf-32-le", "surrogatepass")


def encode_texts(texts: Sequence[str]) -> Ragged:
    """Encode texts as code points, one row per text: "ab", "", "c" have the offsets 0, 2, 2, 3."""
    return Ragged(offsets_of(texts), encode_text("".join(texts)))


def decode_texts(texts: Ragged) -> list[str]:
    """Turn rows of code points into strings.

    >>> decode_texts(Ragged(np.array([0, 2, 2, 3]), encode_text("abc")))
    ['ab', '', 'c']
    """
    text = decode_text(texts.values[: texts.offsets[-1]])
    return [text[start:stop] for start, stop in pairwise(texts.offsets.tolist())]


def encode_lower_case(texts: Sequence[str]) -> Ragged:
    """Encode each text's `text.lower()` as code points, with LETTER_BIT and COMPARED_BIT set.

    >>> [decode_text(row & CODE_POINT) for row in encode_lower_case(["A-b", "\\u0394\\u03a3"])]
    ['a-b', '\\u03b4\\u03c2']
    """
    text = "".join(texts)
    if _SIGMA in text or _DOTTED_I in text:
        # Text by text: the end of one text must not see the beginning of the next.
        texts = [text.lower() for text in texts]
        text = "".join(texts)
    return Ragged(offsets_of(texts), _look_up_all(_lower_case_table(), encode_text(text)))


def keep_letters_and_digits(text: str) -> str:
    """Return a text's letters and digits, in lower case.

    >>> keep_letters_and_digits("Very_Cheap: 价格 100!")
    'verycheap价格100'
    """
    return _NO_LETTERS.sub("", text.lower())


def offsets_of(texts: Sequence[Sized]) -> npt.NDArray[np.int64]:
    """Return where each text begins and ends when all are joined, int64, shape (n + 1,).

    >>> offsets_of(["ab", "", "c"]).tolist()
    [0, 2, 2, 3]
    """
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=offsets[1:])
    return offsets


def is_compared(character: str) -> bool:
    """Return whether a character counts when texts are compared: letters, marks, digits, symbols and `#%&@`.

    `C++` and `C#` differ, as do two emoji and two Hindi words with different vowel signs. White space and
    other punctuation make no difference.

    >>> [sign for sign in "a_1 中,+#\u0903" if is_compared(sign)]
    ['a', '1', '中', '+', '#', 'ः']
    """
    return unicodedata.category(character)[0] in _COMPARED_CATEGORIES or character in _COMPARED_PUNCTUATION


@cache
def _lower_case_table() -> npt.NDArray[np.uint32]:
    """Return each code point's lower case, with LETTER_BIT and COMPARED_BIT set; index: the code point."""
    table = np.arange(_CODE_POINT_COUNT, dtype=np.uint32)
    for codes in _ASSIGNED_RANGES:
        part = table[codes.start : codes.stop]
        # The lower case of the dotted I has two characters, which would shift all later ones; texts that
        # hold it never reach the table.
        characters = decode_text(part).replace(_DOTTED_I, "i").lower()
        are_letters = np.fromiter(map(str.isalnum, characters), np.bool_, len(codes))
        part[:] = encode_text(characters) | are_letters * (LETTER_BIT | COMPARED_BIT)
        # All letters and digits are compared; only the others need the slower question.
        for place in np.flatnonzero(~are_letters).tolist():
            if is_compared(characters[place]):
                part[place] |= COMPARED_BIT
    return table


@compiled_helper
def is_cjk(code: int) -> bool:
    """Return whether a code point is a Chinese, Japanese or Korean character or sign."""
    return code >= 0x2E80 and (
        code <= 0x9FFF
        or 0xAC00 <= code <= 0xD7AF
        or 0xF900 <= code <= 0xFAFF
        or 0x20000 <= code <= LAST_CHINESE
    )


@compiled_helper
def is_chinese(code: int) -> bool:
    """Return whether a code point is a Chinese character."""
    return code >= 0x3400 and (
        code <= 0x4DBF
        or 0x4E00 <= code <= 0x9FFF
        or 0xF900 <= code <= 0xFAFF
        or 0x20000 <= code <= LAST_CHINESE
    )


@compiled
def _look_up_all(table: npt.NDArray[np.uint32], codes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return the table's value for each code point."""
    values = np.empty(len(codes), np.uint32)
    for i in range(len(codes)):
        values[i] = table[codes[i]]
    return values
