"""Compares sieves and verifications on sets with reference pairs: the table of what was tried.

    python -m scripts.explore_sieve --data DIR --tools DIR [--sets leetcode,...] [--groups terms,...]

Data and tools are those of `bench_accuracy`.  The job's own parts decide each set in memory, with one thing
changed at a time against the default profile.  A cell says F1, near recall and wiped out, as there, and
candidates per record: the keepers that the sieve brings to be compared.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress, islice
from pathlib import Path

import bson
import numpy as np

from dedup_job import job
from dedup_job.document import Action, Batch, Fingerprints, Unjudged, Verdict
from dedup_job.fingerprint.clean import Cleaner
from dedup_job.fingerprint.fields import TextFields
from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.idf import learned_idf, write_idf
from dedup_job.fingerprint.profile import Choice, default
from dedup_job.fingerprint.recipe import Reader, Recipe, Resource
from dedup_job.match.index import SegmentIndex
from dedup_job.match.keepers import Keepers, Recollection
from dedup_job.mongo.rehearsal import accept
from scripts.reference import Judge, TextSet, arguments, chosen, recipe, wanted

BATCH = 500
ALL = 1 << 40  # bytes: the shingles of every keeper stay at hand,
NEVER = Recollection(lambda ids: {}, lambda raws: Fingerprints.join([]))  # so none is looked up again
GROUPS = ("terms", "weights", "radius", "verification", "short texts", "fewest terms")


@dataclass(frozen=True, slots=True)
class Variant:
    """The default profile with one thing changed; `learned` takes IDF from the set itself."""

    group: str
    name: str
    choice: Choice
    learned: bool = False


def variants(usual: Choice) -> Iterator[Variant]:
    """Yield what is compared; all but the short texts without the shingle index, which hides misses."""
    sieve = replace(usual, short_text=0)
    yield Variant("terms", "words and Chinese characters (the default)", sieve)
    yield Variant("terms", "words", replace(sieve, features="words"))
    yield Variant("terms", "words, single letters too", replace(sieve, features="words", min_length=1))
    yield Variant("terms", "pairs of words", replace(sieve, features="words:2"))
    yield Variant("terms", "runs of 3 characters", replace(sieve, features="chars:3"))
    yield Variant("terms", "the 30 heaviest of the default", replace(sieve, top=30))
    seeds = replace(sieve, features="words", tf="raw", idf="full", top=30)
    yield Variant("terms", "30 words by raw TF x full IDF (the usual job)", seeds)

    for tf, idf in [("log", "sqrt"), ("log", "full"), ("log", "none"), ("raw", "sqrt"), ("binary", "sqrt")]:
        yield Variant("weights", f"TF {tf}, IDF {idf}", replace(sieve, tf=tf, idf=idf))
    for idf in ("sqrt", "full"):
        yield Variant("weights", f"TF log, IDF {idf}, learned", replace(sieve, idf=idf), learned=True)

    for bits, radii in [(64, (3, 7, 8, 10, 12)), (128, (15, 19, 23))]:
        for radius in radii:
            name = f"{bits} bits, radius {radius}"
            yield Variant("radius", name, replace(sieve, bits=bits, radius=radius))

    for length in (3, 4, 5):
        yield Variant("verification", f"shingles of {length}", replace(sieve, shingle=length))
    for least in (0.75, 0.85):
        yield Variant("verification", f"Jaccard from {least}", replace(sieve, min_similarity=least))
    yield Variant("verification", "none, radius 19", replace(sieve, min_similarity=0.0))
    yield Variant("verification", "none, radius 7", replace(sieve, min_similarity=0.0, radius=7))

    for bits, radius in [(128, 19), (64, 10), (64, 7)]:
        for most in (0, 20, 80, 120):
            changed = replace(usual, bits=bits, radius=radius, short_text=most)
            yield Variant("short texts", f"{bits} bits, radius {radius}, up to {most} shingles", changed)

    for least_terms in (1, 16, 32):
        yield Variant("fewest terms", f"{least_terms}", replace(sieve, min_terms=least_terms))


class AlreadyClean(Cleaner):
    """For texts that were cleaned once, before many variants see them."""

    def clean(self, text: str) -> str:
        """Return the text, or raise `Unjudged` where there is nothing to judge."""
        if not text:
            raise Unjudged("empty")
        return text


@dataclass(frozen=True, slots=True)
class Remembered:
    """An engine whose fingerprints are made already."""

    prints: Sequence[Fingerprints]

    def fingerprinted(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Fingerprints]]:
        """Yield each batch with its fingerprints."""
        return zip(batches, self.prints, strict=True)


class Ground:
    """A set on which variants are tried; it remembers the fingerprints of the last one."""

    def __init__(self, texts: TextSet, judge: Judge) -> None:
        self.default = default(texts.calibration)
        self._ids, self._judge = texts.ids, judge
        self._batches = list(_batches(texts))
        self._folder = tempfile.TemporaryDirectory()
        self._last: Recipe | None = None
        self._prints: list[Fingerprints] = []

    def cell(self, variant: Variant) -> str:
        """Return what the table says of a variant on this set."""
        recipe = self._recipe(variant)
        prints = self._fingerprinted(recipe)
        verdicts: list[Verdict] = []
        job.run(
            job.Job(
                batches=self._batches,
                engine=Remembered(prints),
                matching=recipe.matching,
                keepers=Keepers(recipe.bits, recipe.matching.radius, ALL, NEVER),
                absent=lambda ids: set(),
                commit=accept,
                observe=lambda batch, plan: verdicts.extend(plan.verdicts),
            )
        )
        kept = [verdict.action is not Action.DUPLICATE for verdict in verdicts]
        score = self._judge.score(list(compress(self._ids, kept)))
        rate = candidates(Fingerprints.join(prints), verdicts, recipe.matching.radius) / len(verdicts)
        return f"{score.f1:.4f}, {score.near:.3f}, {score.wiped:,}, {rate:.2f}"

    def _fingerprinted(self, recipe: Recipe) -> list[Fingerprints]:
        """Fingerprint the set, or take the last fingerprints when the matching alone differs."""
        loose = replace(recipe.matching, radius=0, short_text=0, min_similarity=1.0)
        plain = replace(recipe, matching=loose)
        if plain != self._last:
            fingerprint = Fingerprinter(plain)
            self._prints = [fingerprint(batch.raws) for batch in self._batches]
            self._last = plain
        most = recipe.matching.short_text if recipe.matching.min_similarity else -1
        return [replace(prints, short=np.diff(prints.shingles.offsets) <= most) for prints in self._prints]

    def _recipe(self, variant: Variant) -> Recipe:
        made = recipe(variant.choice, Reader(TextFields(("text",)), AlreadyClean()))
        return replace(made, idf_table=self._learned) if variant.learned else made

    @cached_property
    def _learned(self) -> Resource:
        """The IDF table of the set itself, as `dedup-job fit-idf` learns it."""
        fingerprint = Fingerprinter(self._recipe(Variant("", "", self.default)))
        texts, frequencies = 0, Counter[str]()
        for batch in self._batches:
            number, counted = fingerprint.document_frequencies(batch.raws)
            texts, frequencies = texts + number, frequencies + counted
        path = Path(self._folder.name) / "idf.txt"
        write_idf(path, learned_idf(frequencies, texts), texts)
        return Resource.at(path)


def _batches(texts: TextSet) -> Iterator[Batch]:
    records = zip(texts.ids, texts.texts, strict=True)
    while part := list(islice(records, BATCH)):
        yield Batch(
            [bson.encode({"_id": key}) for key, _ in part],
            [bson.encode({"_id": key, "text": text}) for key, text in part],
        )


def candidates(prints: Fingerprints, verdicts: Sequence[Verdict], radius: int) -> int:
    """Count the earlier keepers within the radius of each record that no keeper has the same text as."""
    kept = prints.near & [verdict.action is Action.UNIQUE for verdict in verdicts]
    asked = prints.near & [verdict.reason != "exact" for verdict in verdicts]
    index = SegmentIndex(64 * prints.bits.shape[1], radius)
    index.add(prints.bits[kept])
    found = index.within(prints.bits[asked])
    records = np.repeat(np.flatnonzero(asked), np.diff(found.offsets))
    return int((np.flatnonzero(kept)[found.positions] < records).sum())


def main() -> None:
    """Try every variant on every set and print the table, a line as soon as it is known."""
    parser = arguments(__doc__)
    parser.add_argument("--groups", type=chosen(*GROUPS), default=list(GROUPS))
    args = parser.parse_args()
    grounds = [Ground(texts, judge) for texts, judge in wanted(args)]
    print("| | |", " | ".join(args.sets), "|")
    print("|---|---" + "|---" * len(grounds) + "|")
    for tried in zip(*(variants(ground.default) for ground in grounds), strict=True):
        first = tried[0]
        if first.group in args.groups:
            cells = [ground.cell(variant) for ground, variant in zip(grounds, tried, strict=True)]
            print(f"| {first.group} | {first.name} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
