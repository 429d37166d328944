"""Differences: where two texts are the same and where not, in words, or in characters of Chinese.

Two passes, each by `difflib`: over clauses first, then over the words of the clauses that differ.  Work is
bounded, whatever the texts: what would take too many comparisons is told as one difference.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby

# A word of letters and digits; one character of Chinese, Japanese kana or Korean; one sign; a run of spaces.
# A run that goes on for ever is cut.
CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
WORD = re.compile(rf"[{CJK}]|(?:(?![{CJK}])\w){{1,40}}|\s{{1,40}}|.", re.DOTALL)
# At least twenty characters and on to the end of a clause, but two hundred at most.
CLAUSE = re.compile(r".{20,200}?(?:[。！？；，.!?;,]\s?|$)|.{1,200}", re.DOTALL)
# What is left of a word at the end, or the beginning, of a cutting.
BROKEN_OFF, BROKEN_ON = re.compile(r"(?<=\s)[!-~]{1,20}$"), re.compile(r"^[!-~]{1,20}(?=\s)")
SHORT = 30  # characters: a gap would take as much room
MOST_EQUALS = 200_000  # pairs of equal parts that one pass looks through


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of two texts: what the first has there and what the second has, the same or not."""

    first: str
    second: str

    @property
    def is_same(self) -> bool:
        """Whether both have the same."""
        return self.first == self.second


def differences(first: str, second: str) -> list[Piece]:
    """Return two texts as pieces, the same and different ones in turn; joined they are the texts.

    >>> [(piece.first, piece.second) for piece in differences("sold on 3 May", "sold on 12 May")]
    [('sold on ', 'sold on '), ('3', '12'), (' May', ' May')]
    >>> [(piece.first, piece.second) for piece in differences("共有5名学生", "共有5位学生")]
    [('共有5', '共有5'), ('名', '位'), ('学生', '学生')]
    """
    clauses = CLAUSE.findall(first), CLAUSE.findall(second)
    return _merged(
        word
        for clause in _aligned(*clauses)
        for word in ([clause] if clause.is_same else _by_words(clause.first, clause.second))
    )


def _by_words(first: str, second: str) -> Iterator[Piece]:
    return _aligned(WORD.findall(first), WORD.findall(second))


def _aligned(first: Sequence[str], second: Sequence[str]) -> Iterator[Piece]:
    """Yield two texts, given in parts, as pieces."""
    start = _same(first, second)
    rest = min(len(first), len(second)) - start
    end = min(rest, _same(first[::-1], second[::-1]))
    ends = len(first) - end, len(second) - end
    yield _piece(first[:start], second[:start])
    yield from _compared(first[start : ends[0]], second[start : ends[1]])
    yield _piece(first[ends[0] :], second[ends[1] :])


def _compared(first: Sequence[str], second: Sequence[str]) -> Iterator[Piece]:
    counts = Counter(first), Counter(second)
    if sum(count * counts[1][part] for part, count in counts[0].items()) > MOST_EQUALS:
        yield _piece(first, second)
        return
    for _, a, b, c, d in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        yield _piece(first[a:b], second[c:d])


def _same(first: Sequence[str], second: Sequence[str]) -> int:
    """Return how many parts two texts have in common from their beginnings on."""
    same = zip(first, second, strict=False)
    return next((at for at, (one, other) in enumerate(same) if one != other), min(len(first), len(second)))


def _piece(first: Sequence[str], second: Sequence[str]) -> Piece:
    return Piece("".join(first), "".join(second))


def _merged(pieces: Iterator[Piece]) -> list[Piece]:
    """Join neighbours of one kind, and leave empty ones out."""
    there = (piece for piece in pieces if piece.first or piece.second)
    runs = (list(run) for _, run in groupby(there, key=lambda piece: piece.is_same))
    return [_piece([one.first for one in run], [one.second for one in run]) for run in runs]


@dataclass(frozen=True, slots=True)
class Gap:
    """So many characters of each text that are not shown; where `is_same`, they are the same in both."""

    first: int
    second: int
    is_same: bool = True


def excerpt(
    pieces: Sequence[Piece], context: int, most: int, longest: int | None = None
) -> list[Piece | Gap]:
    """Return the differences with some of what is around them, and gaps for what is left out.

    context  characters that are shown on each side of a difference
    most     characters that are shown of each text, about
    longest  characters that are shown of one difference; None for as many as there is room for

    >>> texts = [f"a beginning that goes on and on and on, then {number}" for number in (3, 4)]
    >>> for part in excerpt(differences(*texts), 6, 100):
    ...     print(part)
    Gap(first=39, second=39, is_same=True)
    Piece(first=' then ', second=' then ')
    Piece(first='3', second='4')
    """
    shown: list[Piece | Gap] = []
    room = most
    for place, piece in enumerate(pieces):
        if room <= 0:
            shown.append(_rest(pieces[place:]))
            break
        if piece.is_same:
            parts = _ends(piece, context, place, len(pieces))
        else:
            parts = _beginning(piece, room if longest is None else min(room, longest))
        shown += parts
        room -= sum(max(len(one.first), len(one.second)) for one in parts if isinstance(one, Piece))
    return shown


def _ends(piece: Piece, context: int, place: int, count: int) -> list[Piece | Gap]:
    """Return what of a piece that is the same lies beside a difference; of a text that is alone, all."""
    text = piece.first
    before = context if place else 0
    after = context if place < count - 1 else 0
    if count == 1:
        before = 2 * context
    hidden = len(text) - before - after
    if hidden <= SHORT:
        return [piece]
    head = BROKEN_OFF.sub("", text[:before])
    tail = BROKEN_ON.sub("", text[len(text) - after :]) if after else ""
    hidden = len(text) - len(head) - len(tail)
    parts: list[Piece | Gap] = [Piece(head, head), Gap(hidden, hidden), Piece(tail, tail)]
    return [part for part in parts if part.first]


def _beginning(piece: Piece, room: int) -> list[Piece | Gap]:
    """Return as much of a difference as there is room for."""
    shown = Piece(piece.first[:room], piece.second[:room])
    left = len(piece.first) - len(shown.first), len(piece.second) - len(shown.second)
    return [shown, Gap(*left, is_same=False)] if any(left) else [shown]


def _rest(pieces: Sequence[Piece]) -> Gap:
    first, second = sum(len(one.first) for one in pieces), sum(len(one.second) for one in pieces)
    return Gap(first, second, is_same=all(one.is_same for one in pieces))


def marked(first: str, second: str) -> str:
    """Return a difference as `wdiff` marks it.

    >>> marked("3", "12"), marked("", " more")
    ('[-3-]{+12+}', '{+ more+}')
    """
    return (f"[-{first}-]" if first else "") + (f"{{+{second}+}}" if second else "")


def omitted(first: int, second: int, is_same: bool) -> str:
    """Return what stands for a gap of so many characters."""
    return " … " if is_same else f" … ({first:,} and {second:,} characters more) "
