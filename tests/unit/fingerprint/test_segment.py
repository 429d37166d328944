from __future__ import annotations

import gzip
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dedup_job.fingerprint.segment import (
    LONGEST_RUN,
    SEGMENTERS,
    Segmenter,
    prepare_for_segmenter,
    python_segmenter,
    read_user_words,
    rust_segmenter,
)

ROOT = Path(__file__).parents[3]
REAL_TEXTS = ROOT.parent / "shared" / "data" / "medical_qa" / "docs.jsonl.gz"
WORDS = [
    "我们",
    "数据库",
    "里",
    "有",
    "五千万",
    "条",
    "记录",
    "其中",
    "很多",
    "是",
    "重复",
    "的",
    "请",
    "问",
    "这道题",
    "怎么",
    "做",
    "患者",
    "最近",
    "咳嗽",
    "发烧",
    "需要",
    "吃",
    "什么",
    "药",
    "小明",
    "在",
    "北京大学",
    "读书",
    "李小福",
    "是",
    "创新办",
    "主任",
    "也是",
    "云计算",
    "方面",
    "专家",
    "台中",
    "乒乓球",
    "拍卖",
    "完",
    "了",
    "the",
    "quick",
    "brown",
    "fox",
    "MongoDB",
    "python3",
    "3.14",
    "100%",
    "C++",
    "e-mail",
    "2026年",
    "，",
    "。",
    "、",
    "？",
    "！",
    "（",
    "）",
    "：",
    "“",
    "”",
    ",",
    ".",
    "-",
    "~",
    "😀",
    "é",
]
# rjieba keeps `e-mail`, `u.s` and `foo_bar` whole, jieba does not: the one difference between them.
JOINER = re.compile(r"(?<=[a-z0-9])[-._](?=[a-z0-9])")
TEXTS = st.lists(st.sampled_from([*WORDS, " ", "\n"]), max_size=60).map("".join)


@pytest.fixture(scope="module")
def rust() -> Segmenter:
    return rust_segmenter([])


@pytest.fixture(scope="module")
def python() -> Segmenter:
    return python_segmenter([])


@settings(max_examples=200)
@given(text=TEXTS)
def test_both_segmenters_find_the_same_words(rust: Segmenter, python: Segmenter, text: str) -> None:
    text = JOINER.sub(" ", text.lower())
    assert rust(text) == python(text)


@pytest.mark.parametrize("text", ["e-mail", "u.s", "foo_bar", "1-2"])
def test_the_segmenters_differ_on_joined_latin_words(rust: Segmenter, python: Segmenter, text: str) -> None:
    assert rust(text) == [text]
    assert python(text) == re.split(f"({JOINER.pattern})", text)


@pytest.mark.skipif(
    not REAL_TEXTS.exists(), reason=f"no real texts at {REAL_TEXTS.parent}; generated ones are tested"
)
def test_both_segmenters_find_the_same_words_in_real_texts(rust: Segmenter, python: Segmenter) -> None:
    with gzip.open(REAL_TEXTS, "rt", encoding="utf-8") as lines:
        texts = [JOINER.sub(" ", json.loads(line)["data"].lower()) for line in itertools.islice(lines, 300)]
    assert sum(rust(text) != python(text) for text in texts) == 0


@settings(max_examples=50)
@given(text=TEXTS)
def test_no_character_is_lost(rust: Segmenter, text: str) -> None:
    assert "".join(rust(text)) == text


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(SEGMENTERS))
def test_a_word_of_the_user_is_one_word(name: str) -> None:
    text = "今天玄鼎浮屠发布了"
    assert "玄鼎浮屠" not in SEGMENTERS[name]([])(text)
    assert "玄鼎浮屠" in SEGMENTERS[name]([("玄鼎浮屠", None)])(text)
    assert "玄鼎浮屠" in SEGMENTERS[name]([("玄鼎浮屠", 100_000)])(text)


def test_the_words_of_one_user_are_not_those_of_another(python: Segmenter) -> None:
    python_segmenter([("玄鼎浮屠", None)])
    assert "玄鼎浮屠" not in python("今天玄鼎浮屠发布了")


@pytest.mark.long
@pytest.mark.parametrize("sign", ["的", "a", "1", "#", "，", "😀", "+"])
def test_a_run_of_one_character_comes_to_an_end(rust: Segmenter, python: Segmenter, sign: str) -> None:
    text = prepare_for_segmenter(sign * 200_000)
    found = rust(text)
    assert "".join(found).replace(" ", "") == sign * 200_000
    assert found == python(text)


@given(st.lists(st.tuples(st.sampled_from("a的1 ，_"), st.integers(1, 2_500)), max_size=4))
def test_breaking_runs_adds_nothing_but_spaces(runs: list[tuple[str, int]]) -> None:
    text = "".join(sign * n for sign, n in runs)
    broken = prepare_for_segmenter(text)
    assert broken.replace(" ", "") == text.replace(" ", "").replace("_", "")
    assert max(map(len, re.findall(r"\w+", broken)), default=0) <= LONGEST_RUN


@given(st.text(st.characters(exclude_characters="-._"), max_size=LONGEST_RUN))
def test_an_ordinary_text_is_left_as_it_is(text: str) -> None:
    assert prepare_for_segmenter(text) == text


@given(st.text("a1的 -._", max_size=50))
def test_joiners_become_spaces_and_nothing_else_does(text: str) -> None:
    assert prepare_for_segmenter(text) == re.sub("[-._]", " ", text)


POISONED_CACHE = """
import marshal, os, sys, tempfile
from pathlib import Path
cache = Path(tempfile.gettempdir()) / "jieba.cache"
cache.write_bytes(marshal.dumps(({"今": 0, "今天": 0, "今天玄": 0, "今天玄鼎": 10**9}, 10**9)))
os.utime(cache, (4e9, 4e9))
before = cache.read_bytes(), cache.stat().st_mtime_ns
from dedup_job.fingerprint.segment import python_segmenter
words = python_segmenter([])("今天玄鼎浮屠")
assert (cache.read_bytes(), cache.stat().st_mtime_ns) == before, "the cache was written"
print(" ".join(words), *sorted(os.listdir(tempfile.gettempdir())), sep="|")
"""


def test_a_cache_that_another_user_planted_is_neither_read_nor_written(
    tmp_path: Path, python: Segmenter
) -> None:
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "PYTHONIOENCODING": "utf-8",
    }
    command = [sys.executable, "-W", "ignore", "-c", POISONED_CACHE]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == " ".join(python("今天玄鼎浮屠")) + "|jieba.cache\n"


def test_the_shared_folder_for_temporary_files_stays_the_shared_one() -> None:
    before = tempfile.gettempdir()
    python_segmenter([])
    assert tempfile.gettempdir() == before


def test_a_user_dictionary_has_a_word_a_line_with_frequency_and_tag(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("云计算 5 n\n\n李小福 2\n创新办\n", "utf-8")
    assert read_user_words(path) == [("云计算", 5), ("李小福", 2), ("创新办", None)]


@pytest.mark.parametrize("line", ["云计算 x", "云计算 -1", "云计算 ²"])
def test_a_malformed_line_of_a_user_dictionary_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "words.txt"
    path.write_text(f"创新办\n{line}\n", "utf-8")
    with pytest.raises(ValueError, match="line 2: expected `word"):
        read_user_words(path)
