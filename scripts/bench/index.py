"""Time the index on millions of made-up texts: searching by all keys, adding, and bytes per text.

    python -m scripts.bench.index --counts 1000000,35000000 [--real DATA]

A text is a fingerprint, band keys, a digest and an id, all derived from counters. Three in ten texts are near
copies of an earlier text, with up to three bits flipped and some of its bands. With `--real`, the segments of
the fingerprints are drawn from the texts in DATA/SET/docs.jsonl.gz, each segment independently, so that they
are as unevenly distributed as in real texts. Times are processor time per text on one core, over the last
tenth of the stream; bytes are the memory per distinct text. Everything goes through `Keepers`, as in a run.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from bson import encode

from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.recipe import Matching, Recipe
from dedup_job.index.keepers import Keepers
from dedup_job.records import PlanTexts, RawIds
from dedup_job.text.extract_and_clean import Reader
from dedup_job.text.fields import TextFields
from scripts.bench.index_memory import keepers_bytes
from scripts.bench.measure import documents, numbers, row, table

Numbers = npt.NDArray[np.uint64]

BATCH = 2_000
# Near copies, of ten texts.
PLANTED = 3
SHARED_BANDS = 3
# The first bytes of the BSON document {"_id": ObjectId}.
ID_HEAD = b"\x16\0\0\0\x07_id\0"


@dataclass(frozen=True, slots=True)
class Trial:
    """One stream of texts and its index.

    Attributes:
        real: uint16, shape (n, segments), segments to draw from; None for random segments.
    """

    count: int
    matching: Matching
    bits: int = 64
    real: npt.NDArray[np.uint16] | None = None


def scattered(rows: Numbers, words: int) -> Numbers:
    """Map row numbers to fixed pseudo-random words (SplitMix64; Steele, Lea and Flood, OOPSLA 2014)."""
    z: Numbers = np.stack([rows * np.uint64(words) + np.uint64(word + 1) for word in range(words)], axis=1)
    z *= np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def object_ids(rows: Numbers) -> RawIds:
    """Return an ObjectId for each row."""
    raw = np.zeros((len(rows), len(ID_HEAD) + 13), np.uint8)
    raw[:, : len(ID_HEAD)] = np.frombuffer(ID_HEAD, np.uint8)
    raw[:, -9:-1] = rows.astype(">u8").view(np.uint8).reshape(-1, 8)
    return RawIds(np.arange(len(rows) + 1) * raw.shape[1], raw.ravel())


def fingerprints(rows: Numbers, trial: Trial) -> Numbers:
    """Return a fingerprint for each row number."""
    made = scattered(rows, trial.bits // 64)
    if trial.real is None:
        return made
    drawn = made.view(np.uint16).astype(np.int64) * len(trial.real) >> 16
    return np.ascontiguousarray(trial.real[drawn, np.arange(drawn.shape[1])]).view(np.uint64)


def stream(trial: Trial) -> Iterator[PlanTexts]:
    """Yield batches of ten texts, three of them near copies of one of the other seven."""
    rng = np.random.default_rng(1)
    for start in range(0, trial.count, BATCH):
        rows = np.arange(start, min(start + BATCH, trial.count), dtype=np.uint64)
        planted = np.flatnonzero(rows % 10 >= 10 - PLANTED)
        originals = rows.copy()
        tens = rng.integers(0, start // 10 + 1, len(planted), dtype=np.uint64)
        originals[planted] = 10 * tens + rng.integers(0, 10 - PLANTED, len(planted), dtype=np.uint64)
        bits = fingerprints(originals, trial)
        for _ in range(3):
            bit = rng.integers(0, trial.bits, len(planted), dtype=np.uint64)
            bits[planted, bit // np.uint64(64)] ^= np.uint64(1) << bit % np.uint64(64)
        bands = trial.matching.bands
        keys = scattered(rows + np.uint64(1 << 41), bands).astype(np.uint32)
        theirs = scattered(originals[planted] + np.uint64(1 << 41), bands).astype(np.uint32)
        keys[planted, :SHARED_BANDS] = theirs[:, :SHARED_BANDS]
        has_fingerprint = np.ones(len(rows), np.bool_)
        digests = scattered(rows + np.uint64(1 << 40), 2)
        yield PlanTexts(object_ids(rows), bits, has_fingerprint, keys, digests, has_fingerprint)


def measured(trial: Trial) -> tuple[Any, ...]:
    """Return the figures of one stream: microseconds to search and to add, candidates, bytes, peak MB."""
    recipe = Recipe(Reader(TextFields(("data",))), trial.bits, trial.matching)
    keepers = Keepers(recipe, 0)
    looked = entered = found = counted = 0.0
    for texts in stream(trial):
        began = time.process_time()
        numbered = keepers.add_texts(texts.ids, texts)
        between = time.process_time()
        candidates = keepers.candidates(numbered.texts, texts.keys)
        ended = time.process_time()
        if keepers.texts > 0.9 * trial.count:
            looked, entered = looked + ended - between, entered + between - began
            found, counted = found + len(candidates.texts), counted + len(texts)
    parts = {name: nbytes / trial.count for name, nbytes in keepers_bytes(keepers).items()}
    each = 1e6 / max(1, counted)
    return (
        looked * each,
        entered * each,
        found / max(1, counted),
        sum(parts.values()),
        ", ".join(f"{name} {nbytes:.1f}" for name, nbytes in parts.items()),
        peak_rss() / 2**20,
    )


def peak_rss() -> int:
    """Return the peak memory of this process, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def real_segments(data: Path, bits: int) -> npt.NDArray[np.uint16]:
    """Return the segments of the fingerprints of all texts in a folder of sets."""
    fingerprint = Fingerprinter(Recipe(Reader(TextFields(("data",))), bits, Matching()))
    found = []
    for file in sorted(data.glob("*/docs.jsonl.gz")):
        prints = fingerprint([encode(document) for document in documents(file)])
        found.append(prints.bits[prints.has_fingerprint])
    return np.concatenate(found).view(np.uint16).reshape(-1, bits // 16)


def main() -> None:
    """Run each trial in a separate process, because peak memory is counted per process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--counts", type=numbers, default=[1_000_000], help="texts in the stream")
    parser.add_argument("--real", type=Path, help="folder of sets whose fingerprints are drawn from")
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--radius", type=int, default=Matching().radius)
    parser.add_argument("--bands", type=int, default=Matching().bands)
    args = parser.parse_args()
    matching = Matching(radius=args.radius, bands=args.bands)
    kinds = {"random": None} | ({"real": real_segments(args.real, args.bits)} if args.real else {})
    table("texts", "fingerprints", "look-up us", "enter us", "candidates", "bytes", "of them", "peak MB")
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        for count in args.counts:
            for kind, real in kinds.items():
                row(count, kind, *pool.submit(measured, Trial(count, matching, args.bits, real)).result())


if __name__ == "__main__":
    main()
