"""Compare what `dedup-job tune` suggests from samples with what it finds in the whole set.

    python -m scripts.bench.tune --data DIR [--sets leetcode,medical_qa,...] [--records 20000] [--sample 5000]

A row for each set and sample: near duplicates in the sample, then two choices of bands with their recall in
the whole set: the suggested ones, and the smallest ones whose recall in the sample is within 0.002 of the
highest.  Sets are those of `explore_keys`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from bson import encode

from dedup_job.analysis.sample_trials import AS_GOOD, BandResult, TextSample, TunedSample, try_bands
from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.recipe import Matching, Recipe
from dedup_job.records import Fingerprints
from dedup_job.text.extract_and_clean import Reader
from dedup_job.text.fields import TextFields
from scripts.bench.explore_keys import BATCH, records_of
from scripts.bench.measure import row, table
from scripts.bench.reference import AT, SETS, chosen

STRETCHES, SAMPLES = 50, 3


def smallest(tuned: TunedSample) -> BandResult:
    """Return the smallest bands whose recall in the sample is about the highest."""
    least = max(one.recall.value or 0.0 for one in tuned.rows) - AS_GOOD
    return min(
        (one for one in tuned.rows if (one.recall.value or 0.0) >= least),
        key=lambda one: (one.nbytes, one.wrong),
    )


def main() -> None:
    """Print a row for each set and sample."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", type=chosen(), default=[*SETS, "middle"])
    parser.add_argument("--records", type=int, default=20_000, help="of a made-up set")
    parser.add_argument("--sample", type=int, default=5_000)
    args = parser.parse_args()
    fingerprint = Fingerprinter(Recipe(Reader(TextFields(("data",))), 64, Matching()))
    table("set", "pairs in the sample", "suggested", "its recall", "smallest as good", "its recall")
    for name in args.sets:
        raws = [encode(record) for record in records_of(name, args.data, args.records)]
        prints = Fingerprints.join(
            [fingerprint(raws[first : first + BATCH]) for first in range(0, len(raws), BATCH)]
        )
        whole = TextSample.of(prints)
        pairs, length = whole.count_near_duplicates(AT), args.sample // STRETCHES
        for seed in range(SAMPLES):
            starts = np.random.default_rng(seed).choice(len(raws) // length, STRETCHES, replace=False)
            rows = [int(start) * length + place for start in sorted(starts) for place in range(length)]
            sample = TextSample.of(prints.take(rows))
            tuned = TunedSample.of(name, sample, STRETCHES, AT, Matching(), len(raws))
            choices = [tuned.best, smallest(tuned)]
            cells: list[object] = []
            for choice in choices:
                if choice is None:
                    cells += ["nothing", ""]
                    continue
                bands, found = choice.setting, next(try_bands(whole, [choice.setting], pairs))
                cells += [
                    f"{bands.bands} x {bands.rows} within {bands.band_radius}",
                    f"{found.recall.value:.4f}",
                ]
            row(name, tuned.pairs, *cells)


if __name__ == "__main__":
    main()
