from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dedup_job.fingerprint import jieba_to_segmenter_trie
from dedup_job.fingerprint.jieba_to_segmenter_trie import load_tables
from dedup_job.fingerprint.segment import LONGEST_BLOCK, Segmenter, read_user_words
from dedup_job.text.code_points import encode_lower_case
from scripts.bench.segment import USER_WORDS, Cut, jieba_cut, make_up, prepare

REAL_TEXTS = Path(__file__).parents[4] / "shared" / "data" / "medical_qa" / "docs.jsonl.gz"
SENTENCES = """
    我们 数据库 里 有 五千万 条 记录 其中 很多 是 重复 的 请 问 这道题 怎么 做 患者 最近 咳嗽 发烧 需要
    吃 什么 药 小明 在 北京大学 读书 李小福 创新办 主任 也是 云计算 方面 专家 台中 乒乓球 拍卖 完 了
    玄鼎浮屠 the quick brown MongoDB python3 3.14 100% C++ c# 4s店 江南style e-mail 2026年
    ， 。 （ ” , . - ~ 😀 é か + # & % %% 反反复复复发性
"""
WORDS = SENTENCES.split()
TEXTS = st.lists(st.sampled_from([*WORDS, " ", "\n"]), max_size=60).map("".join)
RARE = st.text(st.sampled_from("的一不在鿕鿖㐀龥丂乁亄 ab9%+#&.γ射线\U00020000\ud800"), max_size=30)

Pair = tuple[Segmenter, Cut]


@pytest.fixture(scope="module", params=[True, False], ids=["hmm", "no hmm"])
def plain(request: pytest.FixtureRequest) -> Pair:
    """Our segmenter and jieba's."""
    return Segmenter(load_tables(()), request.param), jieba_cut((), request.param)


@pytest.fixture(scope="module", params=[True, False], ids=["hmm", "no hmm"])
def taught(request: pytest.FixtureRequest) -> Pair:
    """Our segmenter and jieba's, with user words."""
    return Segmenter(load_tables(tuple(USER_WORDS)), request.param), jieba_cut(USER_WORDS, request.param)


def jiebas_words(cut: Cut, text: str) -> list[str]:
    return list(cut(prepare(text)))


@settings(max_examples=100)
@given(text=TEXTS | RARE)
def test_words_are_those_of_jieba(plain: Pair, text: str) -> None:
    ours, cut = plain
    assert ours(prepare(text)) == jiebas_words(cut, text)


@settings(max_examples=100)
@given(
    text=TEXTS | RARE | st.lists(st.sampled_from([word for word, _ in USER_WORDS]), max_size=9).map("".join)
)
def test_words_are_those_of_jieba_with_user_words(taught: Pair, text: str) -> None:
    ours, cut = taught
    assert ours(prepare(text)) == jiebas_words(cut, text)


def test_words_of_made_up_runs_are_those_of_jieba(plain: Pair) -> None:
    ours, cut = plain
    assert [run for run in make_up(1_000) if ours(prepare(run)) != jiebas_words(cut, run)] == []


@pytest.mark.skipif(not REAL_TEXTS.exists(), reason="needs the reference texts beside the project")
def test_words_of_real_texts_are_those_of_jieba(plain: Pair) -> None:
    ours, cut = plain
    with gzip.open(REAL_TEXTS, "rt", encoding="utf-8") as lines:
        texts = [prepare(json.loads(line)["data"]) for line in itertools.islice(lines, 300)]
    assert sum(ours(text) != cut(text) for text in texts) == 0


@settings(max_examples=10)
@given(
    words=st.lists(
        st.tuples(
            st.sampled_from([*WORDS, "的的", "了不", "患", "ab", "中文数据"]),
            st.none() | st.integers(0, 9) | st.integers(0, 2**40),
        ),
        min_size=1,
        max_size=4,
    ),
    text=TEXTS,
)
@pytest.mark.long
def test_any_user_words_count_as_with_jieba(words: list[tuple[str, int | None]], text: str) -> None:
    words = [(word.lower(), frequency) for word, frequency in words]
    text += "".join(word for word, _ in words)
    assert Segmenter(load_tables(tuple(words)))(prepare(text)) == jiebas_words(jieba_cut(words, True), text)


def test_joiners_separate_words() -> None:
    ours = Segmenter(load_tables(()))
    assert ours("e-mail u.s foo_bar 3.14") == [
        *["e", "-", "mail", " ", "u", ".", "s", " ", "foo", "_", "bar", " ", "3", ".", "14"]
    ]


@pytest.mark.parametrize("sign", ["的", "a", "1", "#", "，", "😀", "+"])
def test_a_run_of_one_character_comes_to_an_end(sign: str) -> None:
    ours = Segmenter(load_tables(()))
    found = ours(sign * 200_000)
    assert "".join(found) == sign * 200_000
    assert max(map(len, found)) <= LONGEST_BLOCK


def test_a_long_block_is_cut() -> None:
    assert [len(word) for word in Segmenter(load_tables(()))("a" * (2 * LONGEST_BLOCK + 1))] == [
        *[LONGEST_BLOCK, LONGEST_BLOCK, 1]
    ]


@given(st.lists(TEXTS | RARE, max_size=5))
def test_texts_are_split_alike_alone_and_together(texts: list[str]) -> None:
    """And with the bits that `encode_lower_case` sets beside the code points."""
    ours, codes = Segmenter(load_tables(())), encode_lower_case(texts)
    starts = ours.word_starts(codes)
    for row, text in enumerate(texts):
        ends = np.cumsum([0, *map(len, ours(text.lower()))])
        assert (
            np.flatnonzero(starts[codes.offsets[row] : codes.offsets[row + 1]]).tolist() == ends[:-1].tolist()
        )


def test_the_words_of_one_user_are_not_those_of_another() -> None:
    text = "今天玄鼎浮屠发布了"
    assert "玄鼎浮屠" not in Segmenter(load_tables(()))(text)
    assert "玄鼎浮屠" in Segmenter(load_tables((("玄鼎浮屠", None),)))(text)
    assert "玄鼎浮屠" in Segmenter(load_tables((("玄鼎浮屠", 100_000),)))(text)
    assert "玄鼎浮屠" not in Segmenter(load_tables(()))(text)


def test_tables_grow_for_user_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jieba_to_segmenter_trie, "_LOAD", 0.46)
    words = [("一" + chr(0x4E00 + n) + chr(0x5000 + n) + "丁", 1_000_000) for n in range(3_000)]
    tables = load_tables(tuple(words))
    assert len(tables.slots) == 2 * len(load_tables(()).slots)
    assert Segmenter(tables)(words[77][0]) == [words[77][0]]


def test_too_many_user_words_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jieba_to_segmenter_trie, "_MOST_SLOTS", 1 << 20)
    with pytest.raises(ValueError, match="too many user words"):
        load_tables((("一二三四" * 100_000, 5),))


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
