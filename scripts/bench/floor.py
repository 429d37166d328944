"""Time the unavoidable steps of `dedup-job backfill` alone, on the records of the benchmark.

    python -m scripts.bench.floor URI [--workers 2]

Reads `bench.pages` and `bench.unique`, and writes `bench.unique_again`. Prints one JSON object with the
seconds and processor seconds of each step. The input of a step is in memory before its clock starts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from itertools import islice
from multiprocessing import get_context
from time import perf_counter, process_time
from typing import Any

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, WriteConcern
from selectolax.lexbor import LexborHTMLParser

from dedup_job.fingerprint.jieba_to_segmenter_trie import load_tables
from dedup_job.fingerprint.segment import Segmenter
from dedup_job.text.code_points import encode_lower_case
from scripts.bench.measure import DATABASE

RAW: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)
BATCH = 1_000
Took = dict[str, float]


def timed(step: Callable[[], Any]) -> Took:
    """Run a step in this process; return its seconds and processor seconds."""
    started, busy = perf_counter(), process_time()
    step()
    return {"seconds": perf_counter() - started, "cpu": process_time() - busy}


def visible(html: str) -> str:
    """Parse HTML and return its text; a text without a tag is returned unchanged."""
    return LexborHTMLParser(html).text() if "<" in html else html


def parse_all(texts: Sequence[str]) -> Took:
    """Parse each text, and do nothing else."""
    return timed(lambda: [visible(text) for text in texts])


def cut_all(texts: Sequence[str]) -> Took:
    """Segment the visible text of each into words, and do nothing else."""
    segmenter = Segmenter(load_tables(()))
    codes = encode_lower_case([visible(text) for text in texts])
    return timed(lambda: segmenter.word_starts(codes))


def shared_out(work: Callable[[Sequence[str]], Took], texts: Sequence[str], workers: int) -> Took:
    """Divide texts among processes; return the seconds of the slowest, and the processor seconds of all."""
    with get_context("fork").Pool(workers) as pool:
        took = pool.map(work, [texts[place::workers] for place in range(workers)], chunksize=1)
    return {"seconds": max(one["seconds"] for one in took), "cpu": sum(one["cpu"] for one in took)}


def main() -> None:
    """Run each step and print its times."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("uri")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    with MongoClient[Any](args.uri) as client:
        database = client[DATABASE]
        pages = database.get_collection("pages", codec_options=RAW)
        texts = [str(page["data"]) for page in database.pages.find({}, {"data": 1})]
        steps = {
            "find": timed(lambda: sum(1 for _ in pages.find({}, {"data": 1}, batch_size=BATCH))),
            "lexbor": shared_out(parse_all, texts, args.workers),
            "words": shared_out(cut_all, texts, args.workers),
        }
        kept = iter(list(database.get_collection("unique", codec_options=RAW).find()))
        database.drop_collection("unique_again")
        concern = WriteConcern("majority", j=True)
        again = database.get_collection("unique_again", codec_options=RAW, write_concern=concern)

        def insert() -> None:
            while batch := list(islice(kept, BATCH)):
                again.insert_many(batch, ordered=False)

        steps["insert_many"] = timed(insert)
        database.drop_collection("unique_again")
    print(json.dumps(steps))


if __name__ == "__main__":
    main()
