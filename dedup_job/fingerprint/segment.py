"""Split texts into words: jieba's algorithm, compiled, on code points.

A text is split into blocks of Chinese characters, ASCII letters and digits, and the signs `+#&%`. Every other
character is a word of its own. In a block

1.  the dictionary's words are the edges of a graph between the places of the block. The most probable path
    through the graph has the greatest sum of ln(frequency / total);
2.  characters in a row that are single words on this path may be a word that is not in the dictionary. The
    Viterbi algorithm finds the most probable place of each Chinese character in its word (BEGIN, MIDDLE, END,
    SINGLE). Letters and digits in a row are one word.

The words are those of jieba 0.42.1, with two exceptions: `-`, `.` and `_` end a block here (jieba keeps 3.14
whole), and a block ends after 1,000 characters.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.segmenter_trie import (
    BEGIN,
    END,
    FIRST_HAN,
    FIRST_SLOT,
    HAN,
    LETTER,
    MIDDLE,
    OTHER,
    PERCENT,
    PLAIN,
    PREFIX,
    SINGLE,
    Floats,
    Tables,
    find_entry,
    find_slot,
    has_longer,
    home_of,
    is_forced,
    score_index,
)
from dedup_job.native.arrays import Ragged
from dedup_job.native.numba_compile import compiled, compiled_inline, prefetch
from dedup_job.text.code_points import CODE_POINT, encode_text

Codes = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]

LONGEST_BLOCK: Final = 1_000
"""Characters; it bounds the memory that a block takes."""
PREDECESSORS: Final = ((END, SINGLE), (BEGIN, MIDDLE), (BEGIN, MIDDLE), (END, SINGLE))
"""The two states that each state can follow. Of equal sums jieba takes the second: its letter is greater."""
AHEAD: Final = 16
"""Characters between the one that is read and the one whose memory is prefetched."""


class Segmenter:
    """Splits texts into words.

    Args:
        tables: Of `load_tables`.
        hmm: Whether to look for words that are not in the dictionary.
    """

    def __init__(self, tables: Tables, hmm: bool = True) -> None:
        self._tables, self._hmm = tables, hmm

    def __call__(self, text: str) -> list[str]:
        """Return the words of a text in lower case; together they are the text."""
        codes = encode_text(text)
        starts = self.word_starts(Ragged(np.array([0, len(codes)]), codes))
        stops = [*np.flatnonzero(starts).tolist(), len(text)]
        return [text[start:stop] for start, stop in pairwise(stops)]

    def word_starts(self, codes: Ragged) -> Flags:
        """Return for each character of all texts whether a word begins there.

        Args:
            codes: Texts in lower case as code points; other bits are ignored, as in `encode_lower_case`.
        """
        return _find_word_starts(codes.offsets, codes.values, self._tables, self._hmm)


class Memory(NamedTuple):
    """Memory for one block of at most LONGEST_BLOCK characters.

    Attributes:
        block: uint32, the code points of the block.
        sums: float64, the sum of scores of the best path from each place on.
        ends: int16, the end of the first word of that path.
        best: float64 (n, 4), the greatest sum of logarithms of a way to each place and state.
        steps: uint8 (n, 4), the state before each state at a place, on that way.
    """

    block: Codes
    sums: Floats
    ends: npt.NDArray[np.int16]
    best: Floats
    steps: npt.NDArray[np.uint8]


@compiled
def _find_word_starts(offsets: npt.NDArray[np.int64], codes: Codes, tables: Tables, hmm: bool) -> Flags:
    """Return for each character whether a word begins there."""
    starts = np.ones(len(codes), np.bool_)
    memory = Memory(
        np.empty(LONGEST_BLOCK, np.uint32),
        np.empty(LONGEST_BLOCK + 1),
        np.empty(LONGEST_BLOCK, np.int16),
        np.empty((LONGEST_BLOCK, 4)),
        np.empty((LONGEST_BLOCK, 4), np.uint8),
    )
    kinds, slots = tables.kinds, tables.slots
    for text in range(len(offsets) - 1):
        place, stop = offsets[text], offsets[text + 1]
        while place < stop:
            length, is_plain = 0, True
            while place + length < stop and length < LONGEST_BLOCK:
                code = codes[place + length] & CODE_POINT
                if code >= FIRST_SLOT or kinds[code] == OTHER:
                    break
                memory.block[length] = code
                # The first lookup that begins there, in time for the memory to answer.
                ahead = place + length + AHEAD
                if code >= FIRST_HAN and ahead + 1 < len(codes):
                    node, following = codes[ahead] & CODE_POINT, codes[ahead + 1] & CODE_POINT
                    prefetch(slots, home_of(int(np.int64(node)), following, slots))
                is_plain &= kinds[code] == PLAIN
                length += 1
            if is_plain:
                # Letters and digits in a row, which are one word unless the dictionary knows better.
                starts[place + 1 : place + length] = False
            elif length > 1:
                found = starts[place : place + length]
                _find_best_path(memory, length, tables)
                _mark_words(memory, length, tables, hmm, found)
            place += max(length, 1)
    return starts


@compiled_inline
def _find_best_path(memory: Memory, length: int, tables: Tables) -> None:
    """Find the most probable words of a block, from right to left; write `sums` and `ends`."""
    block, sums, ends, _, _ = memory
    singles, slots, scores = tables.singles, tables.slots, tables.scores
    sums[length] = 0.0
    for start in range(length - 1, -1, -1):
        node, end = int(np.int64(block[start])), start + 1
        index = int(singles[node])
        # A character that is not in the dictionary counts as a word. So does a character that only begins
        # words, if none of these words is here.
        is_word = bool(index > PREFIX)
        best, best_end = scores[index] + sums[end], end
        while end < length:
            slot = find_slot(node, block[end], slots)
            entry = slots[slot]
            if entry == 0:
                break
            end += 1
            index = score_index(entry)
            if index > PREFIX:
                total = scores[index] + sums[end]
                # Of equal sums the longer word wins.
                if not is_word or total >= best:
                    is_word, best, best_end = True, total, end
            if not has_longer(entry):
                break
            node = slot + FIRST_SLOT
        sums[start], ends[start] = best, best_end


@compiled_inline
def _mark_words(memory: Memory, length: int, tables: Tables, hmm: bool, starts: Flags) -> None:
    """Write at which places of a block a word begins; all of `starts` is True before."""
    block, ends, kinds = memory.block, memory.ends, tables.kinds
    place = 0
    while place < length:
        end = int(ends[place])
        if end > place + 1:
            starts[place + 1 : end] = False
            place = end
            continue
        # All single characters in a row.
        end = place + 1
        while end < length and ends[end] == end + 1:
            end += 1
        if not hmm:
            for inner in range(place + 1, end):
                starts[inner] = kinds[block[inner]] < LETTER or kinds[block[inner - 1]] < LETTER
        elif end > place + 1 and score_index(find_entry(block, place, end, tables.slots)) <= PREFIX:
            _mark_unknown_words(memory, place, end, tables, starts)
        place = end


@compiled_inline
def _mark_unknown_words(memory: Memory, place: int, stop: int, tables: Tables, starts: Flags) -> None:
    """Write at which places between two places of a block a word begins."""
    block, kinds = memory.block, tables.kinds
    while place < stop:
        kind, end = kinds[block[place]], place + 1
        if kind == HAN:
            while end < stop and kinds[block[end]] == HAN:
                end += 1
            if end > place + 1:
                _mark_han_words(memory, place, end, tables, starts)
        elif kind >= LETTER:
            while end < stop and kinds[block[end]] >= LETTER:
                end += 1
            # Only the first sign of percent belongs to the number.
            if end < stop and kinds[block[end]] == PERCENT:
                end += 1
            starts[place + 1 : end] = False
        else:
            while end < stop and kinds[block[end]] != HAN and kinds[block[end]] < LETTER:
                end += 1
            starts[place + 1 : end] = False
        place = end


@compiled_inline
def _mark_han_words(memory: Memory, place: int, stop: int, tables: Tables, starts: Flags) -> None:
    """Write at which places a word begins, by the most probable states of a run of Chinese characters."""
    block, _, _, best, steps = memory
    emissions, moves = tables.emissions, tables.transitions
    row = np.int64(block[place]) - FIRST_HAN
    for state in range(len(PREDECESSORS)):
        best[place, state] = tables.starts[state] + emissions[row, state]
    for here in range(place + 1, stop):
        row = np.int64(block[here]) - FIRST_HAN
        for state in range(len(PREDECESSORS)):
            # The order of the additions decides about the last bit, as in jieba.
            first, second = PREDECESSORS[state]
            from_first = best[here - 1, first] + moves[first, state] + emissions[row, state]
            from_second = best[here - 1, second] + moves[second, state] + emissions[row, state]
            steps[here, state] = second if from_second >= from_first else first
            best[here, state] = max(from_first, from_second)
    # A run ends with the end of a word.
    state = SINGLE if best[stop - 1, SINGLE] >= best[stop - 1, END] else END
    last = stop
    for here in range(stop - 1, place - 1, -1):
        starts[here] = here == place or state in (BEGIN, SINGLE)
        if starts[here]:
            if (
                tables.has_forced
                and last > here + 1
                and is_forced(find_entry(block, here, last, tables.slots))
            ):
                starts[here:last] = True
            last = here
        state = int(steps[here, state])


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
