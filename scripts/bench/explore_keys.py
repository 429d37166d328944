"""Compare shapes of bands and distance limits on sets of texts; the default keys were chosen with it.

    python -m scripts.bench.explore_keys --data DIR [--sets leetcode,medical_qa,...] [--records 20000]

Besides the sets in DIR there are made-up sets: `short` with about 25 characters, `middle` with 150, `long`
with 2,000, half of them in HTML, in Chinese, English and both, three in ten of them copies with a small
change; and `forms`, thirty forms with different values. All pairs with a similarity of at least 0.8 are found
without keys. A cell shows the share of these pairs that the keys find, and the number of texts compared per
record.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from bson import encode

from dedup_job.analysis.sample_trials import TextSample, try_bands
from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.recipe import Matching, Recipe
from dedup_job.records import Fingerprints
from dedup_job.text.extract_and_clean import Reader
from dedup_job.text.fields import TextFields
from scripts.bench.corpus import Mix, generate
from scripts.bench.made_up import Collection, Forms
from scripts.bench.measure import documents, row, table
from scripts.bench.reference import AT, SETS, chosen

# Bands, rows.
SHAPES = ((6, 4), (8, 4), (9, 4), (10, 4), (12, 4), (8, 3), (10, 5), (16, 5))
# In bits.
LIMITS = (14, 16, 18, 20, 64)
BATCH = 2_000
MADE_UP = {
    "short": Mix(length=25, spread=0.4, near=1.0, odd=0.0),
    "middle": Mix(length=150, spread=0.6, near=1.0, odd=0.0),
    "long": Mix(length=2_000, spread=0.6, near=1.0, odd=0.0),
}


def records_of(name: str, data: Path, count: int) -> Iterator[dict[str, Any]]:
    """Yield the records of a set; make them up if the set is a made-up one."""
    if name in MADE_UP:
        return generate(count, mix=MADE_UP[name])
    if name == "forms":
        texts = Collection(Forms(), copies=0.1).texts(np.arange(count))
        return ({"data": text.decode()} for text in texts)
    return documents(data / name / "docs.jsonl.gz")


def sampled(fingerprint: Fingerprinter, raws: Sequence[bytes]) -> TextSample:
    """Fingerprint records, and return their distinct texts."""
    parts = [fingerprint(raws[first : first + BATCH]) for first in range(0, len(raws), BATCH)]
    return TextSample.of(Fingerprints.join(parts))


def main() -> None:
    """Print a row for each shape and limit, with a column for each set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", type=chosen(), default=[*SETS, *MADE_UP, "forms"])
    parser.add_argument("--records", type=int, default=20_000, help="of a made-up set")
    args = parser.parse_args()
    fingerprint = Fingerprinter(Recipe(Reader(TextFields(("data",))), 64, Matching()))
    samples = {}
    for name in args.sets:
        raws = [encode(record) for record in records_of(name, args.data, args.records)]
        sample = sampled(fingerprint, raws)
        samples[name] = sample, sample.count_near_duplicates(AT)
    table("bands x rows", "distance", *(f"{name}: {pairs:,} pairs" for name, (_, pairs) in samples.items()))
    for (bands, each), limit in product(SHAPES, LIMITS):
        setting = replace(Matching(), bands=bands, rows=each, band_radius=limit)
        found = [next(try_bands(sample, [setting], pairs)) for sample, pairs in samples.values()]
        cells = (f"{one.found / max(1, one.found + one.missed):.4f}, {one.compared:.2f}" for one in found)
        row(f"{bands} x {each}", limit, *cells)


if __name__ == "__main__":
    main()
