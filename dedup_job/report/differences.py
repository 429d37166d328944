"""Differences between two texts: in words, or in characters of Chinese.

Two passes of `difflib`: first over clauses, then over the words of clauses that differ.  The work is bounded
for any texts: parts that would take too many comparisons are reported as one difference.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any

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
    return [part for part in shown if part.first or part.second]


def _cut_rest(pieces: Sequence[TextPiece], number_room: int) -> list[TextPiece | TextGap]:
    """Return a gap for all pieces, or the first differing number between two gaps; some parts may be empty.

    Args:
        pieces: The pieces that do not fit.
        number_room: Characters shown on each side of the number; 0 for no number.
    """
    places = [place for place, piece in enumerate(pieces) if number_room and _differs_in_number(piece)]
    if not places:
        return [_gap_for(*pieces)]
    place = places[0]
    before, after = (
        pieces[at] if 0 <= at < len(pieces) else TextPiece("", "") for at in (place - 1, place + 1)
    )
    hidden, lead = _split(before, max(0, len(before.first) - number_room))
    tail, later = _split(after, number_room)
    return [
        _gap_for(*pieces[: max(0, place - 1)], hidden),
        lead,
        *_cut_difference(pieces[place], number_room, number_room),
        tail,
        _gap_for(later, *pieces[place + 2 :]),
    ]


def _gap_for(*pieces: TextPiece) -> TextGap:
    """Return one gap for all pieces."""
    lengths = sum(len(piece.first) for piece in pieces), sum(len(piece.second) for piece in pieces)
    return TextGap(*lengths, is_same=all(piece.is_same for piece in pieces))


def _split(piece: TextPiece, first: int, second: int | None = None) -> tuple[TextPiece, TextPiece]:
    """Split a piece after this many characters of the first text, and of the second text if it is given."""
    second = first if second is None else second
    return (
        TextPiece(piece.first[:first], piece.second[:second]),
        TextPiece(piece.first[first:], piece.second[second:]),
    )


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
    if len(text) - before - after <= MIN_HIDDEN:
        return [piece]
    head = CUT_END.sub("", text[:before])
    tail = CUT_START.sub("", text[len(text) - after :]) if after else ""
    hidden = len(text) - len(head) - len(tail)
    return [TextPiece(head, head), TextGap(hidden, hidden), TextPiece(tail, tail)]


def _cut_difference(piece: TextPiece, room: int, number_room: int) -> list[TextPiece | TextGap]:
    """Return the beginning of a difference, and a gap if it is longer than the room for it.

    Args:
        piece: The difference.
        room: Characters of its beginning.
        number_room: Characters shown on each side of the first number that differs, where the beginning has
            none; 0 for no number.
    """
    shown, rest = _split(piece, room)
    starts = _number_starts(piece.first, piece.second) if number_room else None
    if starts is None or _differs_in_number(shown):
        return [shown, _gap_for(rest)]
    # A number may begin before the cut.
    hidden, rest = _split(rest, *(max(0, start - room - number_room) for start in starts))
    near, rest = _split(rest, 2 * number_room)
    return [shown, _gap_for(hidden), near, _gap_for(rest)]


def part_json(part: TextPiece | TextGap, first: str, second: str) -> dict[str, Any]:
    """Return a part of an excerpt as JSON values, with these names for the two texts."""
    if isinstance(part, TextGap):
        return {"left_out": [part.first, part.second], "same": part.is_same}
    return {"both": part.first} if part.is_same else {first: part.first, second: part.second}


def part_text(part: Mapping[str, Any]) -> str:
    """Return a part of an excerpt, given as `part_json` returns it, as text with the marks of `wdiff`.

    >>> part_text({"keeper": "3", "duplicate": "12"}), part_text({"first": "", "second": " more"})
    ('[-3-]{+12+}', '{+ more+}')
    """
    if "left_out" in part:
        first, second = part["left_out"]
        return " … " if part["same"] else f" … ({first:,} and {second:,} characters more) "
    if "both" in part:
        return str(part["both"])
    first, second = part.values()
    return (f"[-{first}-]" if first else "") + (f"{{+{second}+}}" if second else "")
