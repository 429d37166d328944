"""Compare the words of the segmenter with those of jieba, and its time with that of rjieba.

    python -m scripts.bench.segment DATA [--sets leetcode,medical_qa,reuters21578] [--made-up 100000]

DATA/SET/docs.jsonl.gz has the records of a set (`_id`, `data`). Their texts are cleaned and cut at white
space. Both segmenters split every distinct piece, and random runs of common and rare characters: with the
Markov model, without it, and with user words. Prints the number of pieces with different words, and
nanoseconds per character. If rjieba is installed, its pieces with different words are printed, too.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import jieba
from bson import encode

from dedup_job.fingerprint.jieba_to_segmenter_trie import UserWords, load_tables
from dedup_job.fingerprint.segment import LONGEST_BLOCK, Segmenter
from dedup_job.text.code_points import encode_lower_case
from dedup_job.text.extract_and_clean import Reader
from dedup_job.text.fields import TextFields
from scripts.bench.measure import documents, row, table

USER_WORDS: UserWords = (
    ("玄鼎浮屠", None),
    ("云计算", None),
    ("患者", 0),
    ("c++", None),
    ("李小福", 100_000),
    ("二叉树", None),
    ("整数数组", None),
    ("咳嗽", 1),
    ("发烧咳嗽", 0),
    ("the", 5),
    ("不", 0),
    ("乔治·布什", 9),
)
JOINERS = re.compile("[-._]")
BLOCK = re.compile(rf"[\u4e00-\u9fd5a-z0-9+#&%]{{{LONGEST_BLOCK}}}")

T = TypeVar("T")
Cut = Callable[[str], Sequence[str]]


def prepare(text: str) -> str:
    """Return a text that jieba splits as we do: without joiners, and with a space in long blocks."""
    return BLOCK.sub(r"\g<0> ", JOINERS.sub(" ", text.lower()))


def read_pieces(path: Path) -> list[str]:
    """Return the distinct pieces of a set's texts."""
    reader = Reader(TextFields(("data",)))
    texts = reader.texts([encode(record) for record in documents(path)])
    return list(dict.fromkeys(piece for text in texts for piece in prepare(text).split()))


def make_up(count: int) -> Iterator[str]:
    """Yield runs of characters: Chinese ones by the words of the dictionary or any at all, and signs."""
    rng = random.Random(33)
    with (Path(jieba.__file__).parent / "dict.txt").open(encoding="utf-8") as lines:
        words = [line.split(" ")[0].lower() for line in lines]
    common = "".join(rng.choices(words, k=2_000))
    han = "".join(map(chr, range(0x4E00, 0x9FD6)))
    signs = "abcxyz019+#&%，é ~\u3400\u9fd6か😀"
    for _ in range(count):
        kinds = rng.choices((common, han, signs), (8, 2, 1), k=rng.randint(1, 30))
        run = "".join(map(rng.choice, kinds))
        yield run if rng.random() < 0.5 else run + rng.choice(words) + rng.choice(words)


def jieba_cut(user_words: UserWords, hmm: bool) -> Cut:
    """Return jieba's accurate mode."""
    jieba.setLogLevel(logging.WARNING)
    engine, forced = jieba.Tokenizer(), set[str]()
    with tempfile.TemporaryDirectory() as folder:
        engine.tmp_dir = folder
        engine.initialize()

    def cut(text: str) -> list[str]:
        # All of jieba's tokenizers share these words.
        jieba.finalseg.Force_Split_Words = forced
        return list(engine.cut(text, HMM=hmm))

    jieba.finalseg.Force_Split_Words = forced
    for word, frequency in user_words:
        engine.add_word(word, frequency)
    return cut


def timed(characters: int, function: Callable[[T], object], given: T) -> float:
    """Return nanoseconds of CPU per character."""
    start = time.process_time()
    function(given)
    return (time.process_time() - start) / characters * 1e9


def compare(pieces: Sequence[str], user_words: UserWords, hmm: bool) -> list[str]:
    """Return the pieces that are split otherwise than by jieba."""
    ours, theirs = Segmenter(load_tables(user_words), hmm), jieba_cut(user_words, hmm)
    return [piece for piece in pieces if ours(piece) != theirs(piece)]


def rust_cut() -> Cut | None:
    """Return rjieba's accurate mode with HMM, if it is installed."""
    if importlib.util.find_spec("rjieba") is None:
        return None
    cut: Cut = importlib.import_module("rjieba").Jieba().cut
    return cut


def main() -> None:
    """Compare and time the sets, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", default="leetcode,medical_qa,reuters21578")
    parser.add_argument("--made-up", type=int, default=100_000)
    options = parser.parse_args()
    sets = {name: read_pieces(options.data / name / "docs.jsonl.gz") for name in options.sets.split(",")}
    sets["made up"] = list(make_up(options.made_up))
    differing: dict[str, list[str]] = {}
    table(
        *(
            "set",
            "pieces",
            "characters",
            "other words: HMM",
            "no HMM",
            "user words, HMM",
            "user words, no HMM",
        ),
        *("ns a character: HMM", "no HMM", "other words of rjieba, HMM", "ns a character"),
    )
    for name, pieces in sets.items():
        counts = []
        for words, hmm in ((), True), ((), False), (USER_WORDS, True), (USER_WORDS, False):
            others = compare(pieces, words, hmm)
            differing[f"{name}, {'user words' if words else 'no user words'}, {hmm=}"] = others
            counts.append(len(others))
        codes, characters = encode_lower_case(pieces), sum(map(len, pieces))
        times = [
            timed(characters, Segmenter(load_tables(()), hmm).word_starts, codes) for hmm in (True, False)
        ]
        theirs: list[object] = ["", ""]
        if rust := rust_cut():
            ours = Segmenter(load_tables(()))
            others = [piece for piece in pieces if rust(piece) != ours(piece)]
            differing[f"{name}, rjieba"] = others
            theirs = [len(others), timed(characters, rust, " ".join(pieces))]
        row(name, len(pieces), characters, *counts, *times, *theirs)
    for name, others in differing.items():
        for piece in others[:20]:
            print(f"{name}: {piece[:80]!r}")


if __name__ == "__main__":
    main()
