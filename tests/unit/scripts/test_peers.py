from __future__ import annotations

import importlib
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.bench.peers import (
    Sketching,
    counted,
    datasketch_rows,
    gaoya_minhash_rows,
    rensa_rows,
    runs,
    shingles,
)

TOOLS = Path(__file__).parents[4] / "shared" / "tools"


def test_letters_marks_digits_symbols_and_four_signs_count() -> None:
    assert counted("C++ is (not) C#, 50 % of R&D @ home.") == "c++isnotc#50%ofr&d@home"
    assert counted("कि की, 👍 👎!") == "किकी👍👎"
    assert counted("价格：100 元。") == "价格100元"


def test_a_shingle_has_three_characters_from_a_cjk_one_on_and_five_from_any_other() -> None:
    assert shingles("価格は100yen") == {"価格は", "格は1", "は10", "100ye", "00yen"}
    assert shingles("한국어 test") == {"한국어", "국어t", "어te"}
    assert shingles("a 价格表") == {"价格表"}


def test_a_text_without_a_shingle_is_its_own_only_one() -> None:
    assert shingles("A, b c!") == {"abc"}
    assert shingles("价格") == {"价格"}


def test_runs_are_of_one_length_everywhere() -> None:
    assert runs("A, b 价!", 2) == ["ab", "b价"]


@pytest.mark.skipif(not TOOLS.exists(), reason=f"no shared tools at {TOOLS}")
@given(text=st.text(st.characters(exclude_characters="<&", exclude_categories=["Cs"])))
def test_shingles_are_those_of_the_definition(text: str) -> None:
    if str(TOOLS) not in sys.path:
        sys.path.append(str(TOOLS))
    definition = importlib.import_module("similarity_pairs")
    cleaned = unicodedata.normalize("NFKC", text)
    assert shingles(cleaned) == definition.shingles(definition.compared(cleaned))


@pytest.mark.parametrize(
    ("module", "rows"),
    [("datasketch", datasketch_rows), ("gaoya", gaoya_minhash_rows), ("rensa", rensa_rows)],
)
def test_a_minhash_peer_keeps_the_first_of_texts_with_the_same_shingles(module: str, rows: object) -> None:
    pytest.importorskip(module)
    texts = ["the price of C++ in China 价格表", "another text", "The price, of C++ in China: 价格表!", "C#"]
    assert callable(rows)
    assert rows(texts) == [0, 1, 3]
    assert rows(texts, Sketching(0.99, 8, 2)) == [0, 1, 3]
