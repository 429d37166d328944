"""Time each stage from a raw record to its fingerprint, on one core.

    python -m scripts.bench.fingerprint DATA [--sets leetcode,medical_qa,reuters21578] [--passes 5]

DATA/SET/docs.jsonl.gz has the records of a set (`_id`, `data`). They are processed in batches of 1,000 with
the default profile; nothing is cached between passes. Prints microseconds of CPU per record, as medians of
the passes: each stage; the way from a cleaned text to fingerprint and shingles, where a MinHash library would
begin; all stages in `Fingerprinter`, which processes repeated texts once; and two bare libraries for
comparison, the segmenter on the cleaned texts and the HTML parser on the raw texts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import ParamSpec, TypeVar

from bson import encode
from selectolax.lexbor import LexborHTMLParser

from dedup_job import config
from dedup_job.fingerprint.fingerprinter import Fingerprinter, load_idf_weights
from dedup_job.fingerprint.jieba_to_segmenter_trie import load_tables
from dedup_job.fingerprint.minhash_bands import band_keys
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.fingerprint.segment import Segmenter
from dedup_job.fingerprint.shingles import shingle_sets
from dedup_job.fingerprint.simhash import compute_simhashes
from dedup_job.fingerprint.weighted_terms import TermFinder
from dedup_job.recipe_from_settings import make_recipe
from dedup_job.records import digests
from dedup_job.text.code_points import encode_lower_case
from dedup_job.text.extract_and_clean import Reader
from scripts.bench.measure import documents

BATCH = 1000
TABLE = {
    "source": {"database": "d", "collection": "c", "fields": ["data"]},
    "target": {"database": "d", "collection": "u"},
}
CLEANED = ("lower case", "segment, terms", "weigh", "fold", "shingles", "bands", "digests")
STAGES = ("fields", "clean", *CLEANED, "cleaned text", "all", "bare segmenter", "bare parser", "ratio")

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Clock:
    """Sums up the CPU seconds of each stage."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))

    def __call__(self, stage: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function, and add its CPU time to a stage."""
        start = time.process_time()
        made = function(*args, **kwargs)
        self.seconds[stage] += time.process_time() - start
        return made


def cleaned(reader: Reader, given: Sequence[str]) -> list[str]:
    """Return the cleaned texts, without texts that cannot be judged."""
    return [text for text, reason in reader.cleaner.clean_all(given) if not reason]


class Stages:
    """The stages of a recipe, called one by one in the order of `Fingerprinter`."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._segmenter = Segmenter(load_tables(()))
        idf_weights = load_idf_weights(recipe.idf_table, recipe.terms.idf)
        self._terms = TermFinder(recipe.terms, self._segmenter, idf_weights, (), recipe.bits)

    def run(self, raws: Sequence[bytes], clock: Clock) -> tuple[list[str], list[str]]:
        """Run a batch through all stages; return its texts, raw and cleaned."""
        reader = self._recipe.reader
        given = [found.text for found in clock("fields", reader.fields.texts_of, raws)]
        texts = clock("clean", cleaned, reader, given)
        codes = clock("lower case", encode_lower_case, texts)
        terms = clock("weigh", self._terms.weigh, clock("segment, terms", self._terms.find, texts, codes))
        clock("fold", compute_simhashes, terms.offsets, terms.weights, terms.hashes)
        matching = self._recipe.matching
        sets = clock("shingles", shingle_sets, codes, matching.shingle)
        clock("bands", band_keys, sets, matching.bands, matching.rows)
        clock("digests", lambda: (digests(text.encode() for text in texts), digests(raws)))
        clock("bare segmenter", self._segmenter.word_starts, codes)
        return given, texts


def one_pass(recipe: Recipe, raws: Sequence[bytes]) -> dict[str, float]:
    """Return microseconds per record by stage."""
    stages, fingerprinter, clock = Stages(recipe), Fingerprinter(recipe), Clock()
    for start in range(0, len(raws), BATCH):
        batch = raws[start : start + BATCH]
        given, _ = stages.run(batch, clock)
        clock("all", fingerprinter, batch)
        clock("bare parser", list, map(parsed, given))
    found = {stage: seconds / len(raws) * 1e6 for stage, seconds in clock.seconds.items()}
    found["cleaned text"] = sum(found[stage] for stage in CLEANED)
    found["ratio"] = found["all"] / (found["bare segmenter"] + found["bare parser"])
    return found


def parsed(text: str) -> str:
    """Return the visible text of a raw text, as the bare parser extracts it."""
    root = LexborHTMLParser(text).root
    return root.text() if root else ""


def timed(path: Path, passes: int) -> dict[str, float]:
    """Return the medians of all stages over some passes."""
    raws = [encode(record) for record in documents(path)]
    recipe = make_recipe(config.check_settings(TABLE, "bench"))
    # The first call builds tables, which is not timed.
    Fingerprinter(recipe)(raws[:1])
    found = [one_pass(recipe, raws) for _ in range(passes)]
    return {stage: median(one[stage] for one in found) for stage in STAGES}


def main() -> None:
    """Time the sets and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", default="leetcode,medical_qa,reuters21578")
    parser.add_argument("--passes", type=int, default=5)
    options = parser.parse_args()
    names = options.sets.split(",")
    columns = [timed(options.data / name / "docs.jsonl.gz", options.passes) for name in names]
    print(f"| microseconds of CPU per record | {' | '.join(names)} |")
    print("|---|" + "---|" * len(names))
    for stage in STAGES:
        print(f"| {stage} | {' | '.join(f'{column[stage]:.2f}' for column in columns)} |")


if __name__ == "__main__":
    main()
