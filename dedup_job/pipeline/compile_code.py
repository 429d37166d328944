"""Compile everything that a run needs, once after an installation, by deciding made-up records."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from bson import encode

from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.recipe import Matching, Reader, Recipe
from dedup_job.index.keepers import KeeperRefetch, Keepers
from dedup_job.native.compiled import CACHE_FOLDER
from dedup_job.pipeline import job
from dedup_job.records import Batch
from dedup_job.text.fields import TextFields

log = logging.getLogger("dedup_job")

# Enough records that the maps of the index are rebuilt in between.
RECORDS, BATCH = 3_000, 500
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

    Args:
        advance: Called with the number of made-up records that were decided since the last call.

    Returns:
        The seconds that it took.
    """
    started = time.monotonic()
    recipe = Recipe(Reader(TextFields(("text",))), 64, Matching())
    fingerprint = Fingerprinter(recipe)
    raws = {encode({"_id": n}): encode({"_id": n, "text": text}) for n, text in enumerate(_make_texts())}
    # Without a cache, keepers are fetched and fingerprinted again.
    keepers = Keepers(recipe, 0, KeeperRefetch(lambda ids: [{one: raws[one] for one in ids}], fingerprint))
    for first in range(0, RECORDS, BATCH):
        ids = list(raws)[first : first + BATCH]
        batch = Batch(ids, [raws[raw_id] for raw_id in ids])
        job.decide_in_memory(batch, fingerprint(batch.raws), recipe.matching, keepers)
        advance(len(batch))
    if CACHE_FOLDER is not None:
        _marker(CACHE_FOLDER).touch()
    return time.monotonic() - started


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
