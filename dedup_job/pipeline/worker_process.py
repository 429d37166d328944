"""A worker process: raw records in, fingerprints out."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

from dedup_job.errors import ConfigError, is_shortage
from dedup_job.fingerprint.fingerprint_cache import new_memory
from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.pipeline.fork_server import end_with_parent
from dedup_job.records import Fingerprints

# All workers know again what one of them has fingerprinted: the process that they are forked from has loaded
# this module, and what is mapped so is shared.
KNOWN_TEXTS = new_memory()
PIECE_BYTES = 4 << 20  # of records that are fingerprinted together: on the way they take many times as much
# Bytes that fingerprinting takes at most:
# of all kinds of bad records (tests/support/poison_records.py) none took more than
# 85 times its own, nor more than 400 MB.
ROOM, ROOM_PER_BYTE, MOST_ROOM = 32 << 20, 96, 512 << 20

_fingerprinter: Fingerprinter | ConfigError = ConfigError("begin() runs first")


def begin(recipe: Recipe) -> None:
    """Make this process a worker for a recipe: signals are the parent's business, its death is the end."""
    global _fingerprinter
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends it when the processor time for its work is used up
    end_with_parent()
    try:
        _fingerprinter = Fingerprinter(recipe, KNOWN_TEXTS)
    except (OSError, ValueError) as error:
        _check_no_shortage(error)
        _fingerprinter = ConfigError(str(error))  # told by the first work; here it would only end the worker


def work(raws: Sequence[bytes]) -> Fingerprints:
    """Fingerprint raw records; one that the code fails on gets the reason `failed:` and the error's name.

    Raises MemoryError where that may be for lack of memory.
    """
    pieces = [fingerprints_of(_ready(), piece) for piece in _pieces(raws)]
    return pieces[0] if len(pieces) == 1 else Fingerprints.join(pieces)


def _pieces(raws: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Yield the records in turn, so many bytes and the record that reaches them at a time.

    Raises MemoryError where there is no room to work on them.
    """
    start = nbytes = 0
    for place, raw in enumerate(raws, 1):
        nbytes += len(raw)
        if nbytes >= PIECE_BYTES and place < len(raws):
            check_room(nbytes)
            yield raws[start:place]
            start, nbytes = place, 0
    check_room(nbytes)
    yield raws[start:]


def check_room(nbytes: int) -> None:
    """Raise MemoryError unless there is room to work on records of so many bytes together.

    The parser and the segmenter crash or abort where they get no memory.  With room for all that they can ask
    for, a crash is due to the record.
    """
    need = min(ROOM + ROOM_PER_BYTE * nbytes, MOST_ROOM)
    try:
        mmap(-1, need, flags=MAP_PRIVATE | MAP_ANONYMOUS).close()
    except OSError as error:
        raise MemoryError from error


def fingerprints_of(fingerprinter: Fingerprinter, raws: Sequence[bytes]) -> Fingerprints:
    """Fingerprint raw records together; one that the code fails on is unjudged, and alone in that."""
    try:
        return fingerprinter(raws)
    except Exception as error:
        _check_no_shortage(error)
        return Fingerprints.join([_alone(fingerprinter, raw) for raw in raws])


def _alone(fingerprinter: Fingerprinter, raw: bytes) -> Fingerprints:
    try:
        return fingerprinter([raw])
    except Exception as error:
        _check_no_shortage(error)
        return fingerprinter.unjudged(f"failed:{type(error).__name__}", raw)


def _check_no_shortage(error: Exception) -> None:
    """Raise MemoryError where an error says that memory is short: that is no property of a record."""
    if is_shortage(error):
        raise MemoryError from error


def count_terms(raws: Sequence[bytes]) -> tuple[int, Counter[str]]:
    """Count texts, and for each term the texts that hold it."""
    texts, frequencies = 0, Counter[str]()
    for piece in _pieces(raws):
        number, counted = _ready().document_frequencies(piece)
        texts += number
        frequencies += counted
    return texts, frequencies


def _ready() -> Fingerprinter:
    if isinstance(_fingerprinter, ConfigError):
        raise _fingerprinter
    return _fingerprinter
