from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics.pairwise import cosine_similarity

from dedup_job.analysis import pair_explanation
from dedup_job.analysis.match_conditions import distance
from dedup_job.analysis.pair_explanation import TermWeights, find_flipped_bits
from scripts.bench.corpus import samples
from tests.support.recipes import recipe_of
from tests.support.text_pairs import LONG, OTHER, RECIPES, made, raw


@pytest.fixture(autouse=True, scope="module")
def _made_once() -> Iterator[None]:
    """A command explains once; here the dictionary is not loaded for every test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_explanation, "Fingerprinter", made)
        yield


def test_the_weights_fold_into_the_fingerprints_of_the_job() -> None:
    """So the votes that are shown are those that made the bits."""
    texts = [sample.record["data"] for sample in samples(30, seed=8) if sample.kind in ("original", "near")]
    for name in ("default", "classic", "few terms"):
        chosen = RECIPES[name]
        cleaned = chosen.reader.texts([*map(raw, texts)])[0]
        prints = made(chosen)(list(map(raw, texts)))
        for row in range(len(texts) - 1):
            pair = prints.take([row, row + 1])
            if distance(pair) is None:
                continue
            flipped = find_flipped_bits(TermWeights.of(cleaned[row : row + 2], chosen))
            differing = [
                64 * word + bit
                for word, value in enumerate((pair.bits[0] ^ pair.bits[1]).tolist())
                for bit in range(64)
                if value >> bit & 1
            ]
            assert [flip.bit for flip in flipped] == differing
            ones = [bool(int(pair.bits[0, flip.bit // 64]) >> flip.bit % 64 & 1) for flip in flipped]
            assert [flip.votes[0] > 0 for flip in flipped] == ones


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 2**64 - 1)), min_size=1, max_size=8
    )
)
def test_the_terms_of_a_flip_suffice_and_none_of_them_can_be_spared(
    made: list[tuple[int, int, int]],
) -> None:
    weights = np.array([[first for first, _, _ in made], [second for _, second, _ in made]])
    hashes = np.array([[value] for _, _, value in made], np.uint64)
    names = [str(number) for number in range(len(made))]
    for flip in find_flipped_bits(TermWeights(names, weights, hashes, (1, 1))):

        def votes(changed: Sequence[str], bit: int = flip.bit) -> int:
            """Votes for a bit when these terms alone have their weight of the second text."""
            return sum(
                (second if name in changed else first) * (1 if value >> bit & 1 else -1)
                for name, (first, second, value) in zip(names, made, strict=True)
            )

        assert votes([]) == flip.votes[0]
        assert votes(names) == flip.votes[1]
        assert (votes(flip.terms) > 0) == (flip.votes[1] > 0)
        for spared in flip.terms:
            rest = [name for name in flip.terms if name != spared]
            assert (votes(rest) > 0) == (flip.votes[0] > 0)


def test_terms_are_weighed_by_the_recipe_heaviest_first() -> None:
    weighing = TermWeights.of([LONG + "码头" * 5, OTHER], RECIPES["default"])
    weights = dict(zip(weighing.terms, weighing.weights.T.tolist(), strict=True))
    heaviest = weighing.weights.max(axis=0).tolist()
    assert heaviest == sorted(heaviest, reverse=True)
    assert weights["码头"][0] > weights["甲板"][0] > 0
    assert weights["码头"][1] == 0
    assert all(max(row) > 0 for row in weights.values())
    assert weighing.cosine == pytest.approx(cosine_similarity(weighing.weights)[0, 1])
    assert 0 < weighing.cosine < 1


def test_stop_words_have_no_weight(tmp_path: Path) -> None:
    words = tmp_path / "stop.txt"
    words.write_text("码头", "utf-8")
    chosen = recipe_of("data", recipe={"stop_words": str(words)})
    assert "码头" in TermWeights.of([LONG, OTHER], RECIPES["default"]).terms
    assert "码头" not in TermWeights.of([LONG, OTHER], chosen).terms


def test_texts_without_terms_have_no_cosine() -> None:
    assert TermWeights.of(["!", ""], RECIPES["default"]).cosine == 0.0


LOADS_ALL = """
import importlib, pkgutil, sys, dedup_job
for found in pkgutil.walk_packages(dedup_job.__path__, "dedup_job."):
    if found.name != "dedup_job.__main__":
        importlib.import_module(found.name)
print("sklearn" in sys.modules)
"""


@pytest.mark.long
def test_scikit_learn_is_not_loaded_before_two_texts_are_explained() -> None:
    done = subprocess.run([sys.executable, "-c", LOADS_ALL], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
