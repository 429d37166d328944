"""Differences between two texts: in words, or in characters of Chinese.

Two passes of `difflib`: first over clauses, then over the words of clauses that differ.  The work is bounded
for any texts: parts that would take too many comparisons are reported as one difference.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby

from dedup_job.fingerprint.shingles import NUMBER_PATTERN

CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
# A number with a decimal point, which may begin with it; a word of letters and digits; one character of
# Chinese, kana or Korean; one sign; a run of spaces. The limit of 40 splits endless runs.
WORD = re.compile(
    rf"\d{{1,20}}\.\d{{1,20}}|(?<![\w.])\.\d{{1,20}}|[{CJK}]|(?:(?![{CJK}])\w){{1,40}}|\s{{1,40}}|.",
    re.DOTALL,
)
# At least 20 characters, up to the end of a clause, and at most 200. A decimal point ends no clause.
CLAUSE = re.compile(r".{20,200}?(?:(?:[。！？；，!?;,]|(?<!\d)\.|\.(?!\d))\s?|$)|.{1,200}", re.DOTALL)
# Part of a word at the end, or at the beginning, of a cut.
CUT_END, CUT_START = re.compile(r"(?<=\s)[!-~]{1,20}$"), re.compile(r"^[!-~]{1,20}(?=\s)")
# In characters: the note about a gap takes as much space.
MIN_HIDDEN = 30
# Pairs of equal parts that one pass compares.
MOST_EQUALS = 200_000


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A stretch of two texts, the same in both or different."""

    first: str
    second: str

    @property
    def is_same(self) -> bool:
        """Whether both texts have the same here."""
        return self.first == self.second


def diff_texts(first: str, second: str) -> list[TextPiece]:
    """Split two texts into pieces, in turn the same and different; joined, they are the texts.

    >>> [(piece.first, piece.second) for piece in diff_texts("sold on 3 May", "sold on 12 May")]
    [('sold on ', 'sold on '), ('3', '12'), (' May', ' May')]
    >>> [(piece.first, piece.second) for piece in diff_texts("共有5名学生", "共有5位学生")]
    [('共有5', '共有5'), ('名', '位'), ('学生', '学生')]
    """
    clauses = _align(CLAUSE.findall(first), CLAUSE.findall(second))
    pieces = (
        piece
        for clause in clauses
        for piece in (
            [clause] if clause.is_same else _align(WORD.findall(clause.first), WORD.findall(clause.second))
        )
    )
    # Join neighbours of one kind, and drop empty pieces.
    full = (piece for piece in pieces if piece.first or piece.second)
    runs = (list(run) for _, run in groupby(full, key=lambda piece: piece.is_same))
    return [_join([piece.first for piece in run], [piece.second for piece in run]) for run in runs]


def _align(first: Sequence[str], second: Sequence[str]) -> Iterator[TextPiece]:
    """Yield pieces of two texts that are given in parts; some pieces may be empty."""
    # The common beginning and end cost nothing; usually little is left to compare.
    start = count_same_at_start(first, second)
    rest = min(len(first), len(second)) - start
    end = min(rest, count_same_at_start(first[::-1], second[::-1]))
    ends = len(first) - end, len(second) - end
    yield _join(first[:start], second[:start])
    yield from _compare(first[start : ends[0]], second[start : ends[1]])
    yield _join(first[ends[0] :], second[ends[1] :])


def _compare(first: Sequence[str], second: Sequence[str]) -> Iterator[TextPiece]:
    # `SequenceMatcher` visits every pair of equal parts, so repetitive texts would take it hours.
    counts = Counter(first), Counter(second)
    if sum(count * counts[1][part] for part, count in counts[0].items()) > MOST_EQUALS:
        yield _join(first, second)
        return
    # `autojunk` would ignore parts that occur often, which in Chinese are ordinary characters.
    for _, a, b, c, d in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        yield _join(first[a:b], second[c:d])


def count_same_at_start(first: Sequence[str], second: Sequence[str]) -> int:
    """Return how many parts two texts have in common at their beginnings."""
    pairs = zip(first, second, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def _join(first: Sequence[str], second: Sequence[str]) -> TextPiece:
    return TextPiece("".join(first), "".join(second))


@dataclass(frozen=True, slots=True)
class TextGap:
    """A stretch of two texts that is not shown.

    Attributes:
        first: Characters of the first text.
        second: Characters of the second text.
        is_same: Whether they are the same in both.
    """

    first: int
    second: int
    is_same: bool = True


def cut_excerpt(
    pieces: Sequence[TextPiece], context: int, most: int, longest: int | None = None
) -> list[TextPiece | TextGap]:
    """Return the differences with some text around them, and gaps for the rest.

    If the texts differ in a number, the excerpt has such a number, even where that takes more room.

    Args:
        pieces: Two texts, as `diff_texts` splits them.
        context: Characters shown on each side of a difference.
        most: Characters shown of each text, approximately.
        longest: Characters shown of one difference; None for no limit besides `most`.

    >>> texts = [f"a beginning that goes on and on and on, then {number}" for number in (3, 4)]
    >>> for part in cut_excerpt(diff_texts(*texts), 6, 100):
    ...     print(part)
    TextGap(first=39, second=39, is_same=True)
    TextPiece(first=' then ', second=' then ')
    TextPiece(first='3', second='4')
    """
    shown: list[TextPiece | TextGap] = []
    room = most
    for place, piece in enumerate(pieces):
        number_room = 0 if any(map(_differs_in_number, shown)) else context
        if room <= 0:
            shown += _cut_rest(pieces[place:], number_room)
            break
        if piece.is_same:
            parts = _cut_same(piece, context, place, len(pieces))
        else:
            parts = _cut_difference(piece, room if longest is None else min(room, longest), number_room)
        shown += parts
        room -= sum(max(len(part.first), len(part.second)) for part in parts if isinstance(part, TextPiece))
    return shown


def _cut_rest(pieces: Sequence[TextPiece], number_room: int) -> list[TextPiece | TextGap]:
    """Return a gap for all pieces, or the first differing number between two gaps.

    Args:
        pieces: The pieces that do not fit.
        number_room: Characters shown on each side of the number; 0 for no number.
    """
    places = [place for place, piece in enumerate(pieces) if number_room and _differs_in_number(piece)]
    if not places:
        return _gap_for(pieces)
    place = places[0]
    before, after = (
        pieces[at] if 0 <= at < len(pieces) else TextPiece("", "") for at in (place - 1, place + 1)
    )
    lead = max(0, len(before.first) - number_room)
    return [
        *_gap_for([*pieces[: max(0, place - 1)], TextPiece(before.first[:lead], before.second[:lead])]),
        *_pieces_of(before.first[lead:], before.second[lead:]),
        *_cut_difference(pieces[place], number_room, number_room),
        *_pieces_of(after.first[:number_room], after.second[:number_room]),
        *_gap_for([TextPiece(after.first[number_room:], after.second[number_room:]), *pieces[place + 2 :]]),
    ]


def _gap_for(pieces: Sequence[TextPiece]) -> list[TextPiece | TextGap]:
    """Return one gap for all pieces; none if they are empty."""
    lengths = sum(len(piece.first) for piece in pieces), sum(len(piece.second) for piece in pieces)
    return [TextGap(*lengths, is_same=all(piece.is_same for piece in pieces))] if any(lengths) else []


def _pieces_of(first: str, second: str) -> list[TextPiece | TextGap]:
    """Return a piece; none if it is empty."""
    return [TextPiece(first, second)] if first or second else []


def _number_starts(first: str, second: str) -> tuple[int, int] | None:
    """Return where two texts have the first number that differs; None if their numbers are the same.

    The end of a text is the start of a number that only the other text has.
    """
    numbers = list(NUMBER_PATTERN.finditer(first)), list(NUMBER_PATTERN.finditer(second))
    at = count_same_at_start(*([number[0] for number in side] for side in numbers))
    if at == len(numbers[0]) == len(numbers[1]):
        return None
    starts = (
        side[at].start() if at < len(side) else len(text)
        for side, text in zip(numbers, (first, second), strict=True)
    )
    return next(starts), next(starts)


def _differs_in_number(part: TextPiece | TextGap) -> bool:
    """Return whether a piece shows numbers that differ."""
    return isinstance(part, TextPiece) and _number_starts(part.first, part.second) is not None


def _cut_same(piece: TextPiece, context: int, place: int, count: int) -> list[TextPiece | TextGap]:
    """Return the ends of a piece that is the same in both, where they are beside a difference."""
    text = piece.first
    before = context if place else 0
    after = context if place < count - 1 else 0
    if count == 1:
        # The texts are equal, so their beginning is shown.
        before = 2 * context
    hidden = len(text) - before - after
    if hidden <= MIN_HIDDEN:
        return [piece]
    head = CUT_END.sub("", text[:before])
    tail = CUT_START.sub("", text[len(text) - after :]) if after else ""
    hidden = len(text) - len(head) - len(tail)
    parts: list[TextPiece | TextGap] = [TextPiece(head, head), TextGap(hidden, hidden), TextPiece(tail, tail)]
    return [part for part in parts if part.first]


def _cut_difference(piece: TextPiece, room: int, number_room: int) -> list[TextPiece | TextGap]:
    """Return the beginning of a difference, and a gap if it is longer than the room for it.

    Args:
        piece: The difference.
        room: Characters of its beginning.
        number_room: Characters shown on each side of the first number that differs, where the beginning has
            none; 0 for no number.
    """
    shown = TextPiece(piece.first[:room], piece.second[:room])
    hidden = TextPiece(piece.first[room:], piece.second[room:])
    starts = _number_starts(piece.first, piece.second) if number_room else None
    if starts is None or _differs_in_number(shown):
        return [shown, *_gap_for([hidden])]
    # A number may begin before the cut.
    first, second = (max(0, start - room - number_room) for start in starts)
    near = TextPiece(hidden.first[first:][: 2 * number_room], hidden.second[second:][: 2 * number_room])
    rest = TextPiece(hidden.first[first:][2 * number_room :], hidden.second[second:][2 * number_room :])
    return [
        shown,
        *_gap_for([TextPiece(hidden.first[:first], hidden.second[:second])]),
        *_pieces_of(near.first, near.second),
        *_gap_for([rest]),
    ]


def mark_difference(first: str, second: str) -> str:
    """Return a difference with the marks of `wdiff`.

    >>> mark_difference("3", "12"), mark_difference("", " more")
    ('[-3-]{+12+}', '{+ more+}')
    """
    return (f"[-{first}-]" if first else "") + (f"{{+{second}+}}" if second else "")


def describe_gap(first: int, second: int, is_same: bool) -> str:
    """Return the text shown instead of a gap of this many characters."""
    return " … " if is_same else f" … ({first:,} and {second:,} characters more) "
