"""The code that runs in a worker process: fingerprint raw records, count terms."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

from dedup_job.errors import ConfigError, is_shortage
from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.pipeline.fork_server import end_with_parent
from dedup_job.records import Fingerprints

# Bytes of records that are fingerprinted together.  Intermediate results take many times as much: of 4 MB of
# English texts they leave the processor's cache, which takes a twelfth longer.
PIECE_BYTES = 1 << 20
# Upper bound on the bytes that fingerprinting takes.  Of all kinds of bad records in
# tests/support/poison_records.py, none took more than 85 times its own size, nor more than 400 MB.
ROOM, ROOM_PER_BYTE, MOST_ROOM = 32 << 20, 96, 512 << 20

_fingerprinter: Fingerprinter | ConfigError = ConfigError("begin() runs first")


def begin(recipe: Recipe) -> None:
    """Make this process a worker for a recipe.

    It ignores SIGINT and SIGTERM, which the parent handles, and dies with its parent.
    """
    global _fingerprinter
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Ends the process when the processor time for its work is used up.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    end_with_parent()
    try:
        _fingerprinter = Fingerprinter(recipe)
    except (OSError, ValueError) as error:
        _check_no_shortage(error)
        # Raised by the first work.  Raised here, it would only end the worker.
        _fingerprinter = ConfigError(str(error))


def work(raws: Sequence[bytes]) -> Fingerprints:
    """Fingerprint raw records; a record that raises an error gets the reason `failed:ERROR`.

    Raises:
        MemoryError: If memory is short.
    """
    pieces = [fingerprints_of(_ready(), piece) for piece in _pieces(raws)]
    return pieces[0] if len(pieces) == 1 else Fingerprints.join(pieces)


def _pieces(raws: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Yield the records in order, in pieces that end with the record that reaches `PIECE_BYTES`.

    Raises:
        MemoryError: If there is too little memory to fingerprint a piece.
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
    """Check that there is enough memory to fingerprint records of `nbytes` bytes together.

    The parser and the segmenter crash or abort when they get no memory.  With this check, a crash must be
    caused by a record.

    Raises:
        MemoryError: If there is too little memory.
    """
    need = min(ROOM + ROOM_PER_BYTE * nbytes, MOST_ROOM)
    try:
        mmap(-1, need, flags=MAP_PRIVATE | MAP_ANONYMOUS).close()
    except OSError as error:
        raise MemoryError from error


def fingerprints_of(fingerprinter: Fingerprinter, raws: Sequence[bytes]) -> Fingerprints:
    """Fingerprint raw records together; after an error each alone, so that only the cause is unchecked."""
    try:
        return fingerprinter(raws)
    except Exception as error:
        _check_no_shortage(error)
        if len(raws) == 1:
            return fingerprinter.unchecked(f"failed:{type(error).__name__}", raws[0])
        return Fingerprints.join([fingerprints_of(fingerprinter, [raw]) for raw in raws])


def _check_no_shortage(error: Exception) -> None:
    """Raise MemoryError if an error means that memory is short, which no record is to blame for."""
    if is_shortage(error):
        raise MemoryError from error


def count_terms(raws: Sequence[bytes]) -> tuple[int, Counter[str]]:
    """Return the number of texts, and for each term the number of texts that contain it."""
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
