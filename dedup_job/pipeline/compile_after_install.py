"""Compile everything that a run needs, once after an installation, by processing made-up records."""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from random import Random

import numpy as np
from bson import encode

from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.recipe import Matching, Recipe
from dedup_job.index.keepers import KeeperRefetch, Keepers
from dedup_job.native.arrays import Ragged
from dedup_job.native.numba_compile import CACHE_FOLDER
from dedup_job.pipeline import job
from dedup_job.pipeline.fork_server import end_with_parent
from dedup_job.records import Batch, Fingerprints, chunked
from dedup_job.text.extract_and_clean import Reader
from dedup_job.text.fields import TextFields

log = logging.getLogger("dedup_job")

# Enough records that the maps of the index are rebuilt in between.
RECORDS, BATCH = 3_000, 500
# Of a made-up fingerprint.
SHINGLES = 50
HAN = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说产种面"
ENGLISH = "the of and to in is that for it was with be by on not he his at this from have had but"


def is_compiled() -> bool:
    """Return whether `compile_code` has finished for this version; True if no folder can hold its result."""
    return CACHE_FOLDER is None or _marker(CACHE_FOLDER).exists()


def ensure_compiled() -> None:
    """Compile, if this version was not compiled yet; say so first, as it takes about a minute."""
    if not is_compiled():
        log.info("compiling code, once after an installation; this takes up to 90 seconds")
        compile_code()


def compile_code(advance: Callable[[int], object] = lambda records: None) -> float:
    """Compile everything that a run needs; the code is cached for other processes.

    Two processes compile at the same time: this one the code that fingerprints, the other one the code that
    decides.

    Args:
        advance: Called with the number of made-up records that were fingerprinted since the last call.

    Returns:
        The seconds that it took.
    """
    started = time.monotonic()
    other = get_context("spawn").Process(target=_decide_in_other_process, daemon=True)
    other.start()
    _fingerprint_texts(advance)
    other.join()
    if other.exitcode:
        # Here the error has its message and exit code.
        _decide_fingerprints()
    if CACHE_FOLDER is not None:
        _marker(CACHE_FOLDER).touch()
    return time.monotonic() - started


def _recipe() -> Recipe:
    return Recipe(Reader(TextFields(("text",))), 64, Matching())


def _fingerprint_texts(advance: Callable[[int], object]) -> None:
    fingerprint = Fingerprinter(_recipe())
    raws = [encode({"_id": number, "text": text}) for number, text in enumerate(_make_texts())]
    for some in chunked(raws, BATCH):
        fingerprint(some)
        advance(len(some))


def _decide_in_other_process() -> None:
    """Compile the code that decides; if this fails, the first process does it again and reports the error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    sys.stderr = None
    _decide_fingerprints()


def _decide_fingerprints() -> None:
    recipe = _recipe()
    prints = _make_fingerprints(recipe.matching.bands)
    rows = {encode({"_id": row}): row for row in range(RECORDS)}
    # Without a cache, the fingerprints of keepers are fetched again: here a record is no more than its id.
    refetch = KeeperRefetch(
        lambda ids: [{raw_id: raw_id for raw_id in ids}],
        lambda raws: prints.take([rows[raw] for raw in raws]),
    )
    keepers = Keepers(recipe, 0, refetch)
    for ids in chunked(list(rows), BATCH):
        some = prints.take([rows[raw_id] for raw_id in ids])
        job.decide_in_memory(Batch(ids, ids), some, recipe.matching, keepers)


def _make_fingerprints(bands: int) -> Fingerprints:
    """Make up fingerprints of copies, exact and near, of records of the same batch and of earlier batches."""
    random, half = np.random.default_rng(1), RECORDS // 2
    # Two neighbours are copies of one another, and their copies come half of all records later.
    origins = np.arange(RECORDS) // 2 * 2 % half
    shingles = random.integers(0, 1 << 31, (RECORDS, SHINGLES), np.uint32)[origins]
    # A near copy differs in a shingle.
    shingles[half:, 0] += 1
    shingles[3::4, 1] += 1
    shingles.sort(axis=1)
    digests = random.integers(0, 1 << 63, (RECORDS, 2), np.uint64)
    digests[1::4] = digests[::4]
    are_judged = np.ones(RECORDS, np.bool_)
    return Fingerprints(
        reasons=[""] * RECORDS,
        bits=random.integers(0, 1 << 63, (RECORDS, 1), np.uint64)[origins],
        has_fingerprint=are_judged,
        keys=random.integers(0, 1 << 32, (RECORDS, bands), np.uint32)[origins],
        digests=digests,
        hashes=digests,
        shingles=Ragged(np.arange(RECORDS + 1) * SHINGLES, shingles.ravel()),
        partial=~are_judged,
    )


def _make_texts() -> Iterator[str]:
    """Yield texts of all kinds: Chinese and English, plain and HTML, short and long, some of them copies."""
    random, words, texts = Random(1), ENGLISH.split(), list[str]()
    for number in range(RECORDS):
        if number % 5 == 4:
            # A copy with one more character, or an exact one.
            text = random.choice(texts) + random.choice(("", "。"))
        else:
            size = random.choice((3, 30, 60, 300))
            text = "".join(random.choices(HAN, k=size)) + " " + " ".join(random.choices(words, k=size // 3))
            if number % 3 == 0:
                text = f"<div class='a'><p>{text}</p><!-- note --><a href='#'>&lt;{number}&gt;</a></div>"
        texts.append(text)
        yield text


def _marker(folder: Path) -> Path:
    return folder / "complete"
