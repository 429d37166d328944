from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.fingerprint.idf import SCALE, Idf, format_idf, jieba_idf_path, read_idf
from dedup_job.fingerprint.term_hashes_and_tables import hash_strings


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "idf.txt"


def fixed(value: float) -> int:
    """A weight in fixed point, at least 1."""
    return max(1, round(value * SCALE))


def look_up(idf: Idf, *terms: str) -> list[int]:
    """The fixed-point IDF of some terms."""
    return idf(hash_strings(terms, 64)[:, 0]).tolist()


def size(idf: Idf) -> int:
    """The number of terms in a table."""
    return int((idf.table[:, 1] > 0).sum())


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of jieba 0.42.1
def test_a_term_unknown_to_jiebas_table_gets_jiebas_median() -> None:
    idf = read_idf(jieba_idf_path())
    import jieba.analyse

    theirs = jieba.analyse.TFIDF()
    assert look_up(idf, "such a word is not there") == [fixed(theirs.median_idf)]


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of jieba 0.42.1
def test_jiebas_table_is_read_whole() -> None:
    idf = read_idf(jieba_idf_path())
    import jieba.analyse

    theirs = jieba.analyse.TFIDF().idf_freq
    assert look_up(idf, *theirs) == list(map(fixed, theirs.values()))
    assert size(idf) == len(theirs)


def test_a_term_that_was_never_learned_is_rarer_than_all_others(table: Path) -> None:
    table.write_text(format_idf({"often": 1.5, "seldom": 6.25}, 100), "utf-8")
    assert look_up(read_idf(table), "never") == [fixed(6.25)]


TERMS = (
    st.text(alphabet=st.sampled_from("aZ9中文 #+.é-"), min_size=1)
    .map(str.strip)
    .filter(lambda term: any(map(str.isalnum, term)) and not term.startswith("# "))
)


@given(st.dictionaries(TERMS, st.floats(1, 30), min_size=1))
def test_a_learned_table_comes_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, float]
) -> None:
    path = tmp_path_factory.getbasetemp() / "learned.txt"
    path.write_text(format_idf(values, 10), "utf-8")
    idf = read_idf(path)
    assert look_up(idf, *values) == [fixed(round(value, 6)) for value in values.values()]
    assert size(idf) == len(values)


@pytest.mark.parametrize(
    "line",
    [
        "word", "word x", "word 1,5", "word nan", "word inf", "word 1e400", "word 1e300", "word -1", "word 0",
        "2.5", " 2.5",
    ],
)  # fmt: skip
def test_a_malformed_line_is_named(table: Path, line: str) -> None:
    table.write_text(f"good 1.0\n{line}\n", "utf-8")
    with pytest.raises(ValueError, match="line 2: expected `term idf`"):
        read_idf(table)


@pytest.mark.parametrize("text", ["", "\n\n", "# only a remark\n"])
def test_a_table_without_terms_is_refused(table: Path, text: str) -> None:
    table.write_text(text, "utf-8")
    with pytest.raises(ValueError, match="no `term idf` line"):
        read_idf(table)


def test_of_a_term_that_is_there_twice_the_last_line_counts(table: Path) -> None:
    table.write_text("a 1\nb 2\na 3\n", "utf-8")
    assert look_up(read_idf(table), "a", "b") == [fixed(3), fixed(2)]


def test_remarks_and_empty_lines_are_skipped(table: Path) -> None:
    table.write_text("# remark\n\na b 1.5\nc 2.5\n", "utf-8")
    assert look_up(read_idf(table), "a b", "c") == [fixed(1.5), fixed(2.5)]


def test_a_term_may_have_white_space_in_it(table: Path) -> None:
    table.write_text("1\t2 3\na\u3000b 1.5\n", "utf-8")
    assert look_up(read_idf(table), "1\t2", "a\u3000b") == [fixed(3), fixed(1.5)]


@given(st.floats(0, 1e9, exclude_min=True))
def test_a_fixed_point_weight_is_within_half_a_unit_and_at_least_one(
    tmp_path_factory: pytest.TempPathFactory, value: float
) -> None:
    path = tmp_path_factory.getbasetemp() / "one.txt"
    path.write_text(f"term {value}\n", "utf-8")
    (unit,) = look_up(read_idf(path), "term")
    assert unit >= 1
    assert unit == 1 or math.isclose(unit / SCALE, value, abs_tol=0.5 / SCALE)
