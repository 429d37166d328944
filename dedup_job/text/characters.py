"""Characters: texts as code points in lower case, and which of them are letters or digits, by table.

A regular expression needs 20 to 40 ns for each character, a table and compiled code 1 ns.
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

from dedup_job.native.compiled import compiled, part
from dedup_job.native.ragged import Ragged

LETTER: Final = np.uint32(1 << 31)
"""Set beside the code point of a letter or digit: `\\w` of a regular expression, without the underscore."""
COMPARED: Final = np.uint32(1 << 30)
"""Set beside the code point of what counts when texts are compared: see `is_compared`."""
CODE: Final = np.uint32((1 << 21) - 1)
"""The bits of the code point."""
CHINESE: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
LAST_CHINESE: Final = 0x3FFFF

_ALL: Final = 0x110000
_ASSIGNED: Final = (range(0x40000), range(0xE0100, 0xE01F0))  # nothing beyond has a category that counts
_COMPARED_SIGNS: Final = frozenset("#%&@")
_NOT_LETTERS: Final = re.compile(r"[\W_]+")
# The two characters whose lower case no table knows: it depends on the neighbours, and is two characters.
_SIGMA, _DOTTED_I = "\u03a3", "\u0130"


def encoded(text: str) -> npt.NDArray[np.uint32]:
    """Return the code points of a text.

    >>> encoded("a\\u4e2d").tolist()
    [97, 20013]
    """
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def decoded(codes: npt.NDArray[np.uint32]) -> str:
    """Return the text of some code points."""
    return codes.tobytes().decode("utf-32-le", "surrogatepass")


def joined(texts: Sequence[str]) -> Ragged:
    """Return the code points of texts, one after the other.

    >>> joined(["ab", "", "c"])
    Ragged(offsets=array([0, 2, 2, 3]), values=array([97, 98, 99], dtype=uint32))
    """
    return Ragged(offsets_of(texts), encoded("".join(texts)))


def strings(texts: Ragged) -> list[str]:
    """Return texts that are given as code points.

    >>> strings(joined(["ab", "", "c"]))
    ['ab', '', 'c']
    """
    text = decoded(texts.values[: texts.offsets[-1]])
    return [text[start:stop] for start, stop in pairwise(texts.offsets.tolist())]


def in_utf8(texts: Ragged) -> list[bytes]:
    """Return texts that are given as code points in UTF-8; half a surrogate pair takes three bytes.

    >>> in_utf8(joined(["a\\u4e2d", "", "\\u00e9"]))
    [b'a\\xe4\\xb8\\xad', b'', b'\\xc3\\xa9']
    """
    codes = texts.values[: texts.offsets[-1]]
    sizes = 1 + (codes >= 0x80).astype(np.int64) + (codes >= 0x800) + (codes >= 0x10000)
    stops = np.concatenate([[0], np.cumsum(sizes)])[texts.offsets].tolist()
    octets = decoded(codes).encode("utf-8", "surrogatepass")
    return [octets[start:stop] for start, stop in pairwise(stops)]


def lower_case(texts: Sequence[str]) -> Ragged:
    """Return the code points of `text.lower()` for each text, with LETTER and COMPARED set where they hold.

    >>> [decoded(row & CODE) for row in lower_case(["A-b", "\\u0394\\u03a3"])]
    ['a-b', '\\u03b4\\u03c2']
    """
    text = "".join(texts)
    if _SIGMA in text or _DOTTED_I in text:
        texts = [text.lower() for text in texts]
        text = "".join(texts)
    return Ragged(offsets_of(texts), _looked_up(_table(), encoded(text)))


def letters_and_digits(text: str) -> str:
    """Return the letters and digits of a text, in lower case.

    >>> letters_and_digits("Very_Cheap: 价格 100!")
    'verycheap价格100'
    """
    return _NOT_LETTERS.sub("", text.lower())


def offsets_of(texts: Sequence[Sized]) -> npt.NDArray[np.int64]:
    """Return where each text begins and ends when all are joined, int64 (n + 1,).

    >>> offsets_of(["ab", "", "c"]).tolist()
    [0, 2, 2, 3]
    """
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=offsets[1:])
    return offsets


def is_compared(character: str) -> bool:
    """Tell whether a character counts when texts are compared: letters, marks, digits, symbols and `#%&@`.

    `C++` and `C#` differ, as do two emoji and two Hindi words with other vowel signs; white space and other
    punctuation make no difference.

    >>> [sign for sign in "a_1 中,+#\u0903" if is_compared(sign)]
    ['a', '1', '中', '+', '#', 'ः']
    """
    return unicodedata.category(character)[0] in "LMNS" or character in _COMPARED_SIGNS


@cache
def _table() -> npt.NDArray[np.uint32]:
    """Return for each code point that of its lower case, with LETTER and COMPARED set where they hold."""
    every = decoded(np.arange(_ALL, dtype=np.uint32)).replace(_DOTTED_I, "i")
    lower = every.lower()
    table = encoded(lower) | LETTER
    for run in _NOT_LETTERS.finditer(lower):
        table[run.start() : run.end()] &= CODE
    for codes in _ASSIGNED:
        counted = map(is_compared, lower[codes.start : codes.stop])
        table[codes.start : codes.stop] |= np.fromiter(counted, np.uint32, len(codes)) * COMPARED
    return table


@cache
def letters() -> npt.NDArray[np.bool_]:
    """Return for each code point whether it is a letter or digit."""
    return _table() >= LETTER


@part
def is_cjk(code: int) -> bool:
    """Tell whether a code point is a Chinese, Japanese or Korean character, or one of their signs."""
    return code >= 0x2E80 and (
        code <= 0x9FFF
        or 0xAC00 <= code <= 0xD7AF
        or 0xF900 <= code <= 0xFAFF
        or 0x20000 <= code <= LAST_CHINESE
    )


@part
def is_chinese(code: int) -> bool:
    """Tell whether a code point is what CHINESE finds."""
    return code >= 0x3400 and (
        code <= 0x4DBF
        or 0x4E00 <= code <= 0x9FFF
        or 0xF900 <= code <= 0xFAFF
        or 0x20000 <= code <= LAST_CHINESE
    )


@compiled
def _looked_up(table: npt.NDArray[np.uint32], codes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    found = np.empty(len(codes), np.uint32)
    for i in range(len(codes)):
        found[i] = table[codes[i]]
    return found
