from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.commands.fit_idf import compute_idf

TEXTS = st.lists(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=6), min_size=1, max_size=12)


@given(TEXTS)
def test_learned_idf_is_that_of_scikit_learn(texts: list[list[str]]) -> None:
    # Not at the top: it takes a second, and each process of the tests imports every file of tests.
    from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

    vectorizer = CountVectorizer(analyzer=list)
    counts = vectorizer.fit_transform(texts)
    expected = TfidfTransformer(smooth_idf=True).fit(counts).idf_
    frequencies = Counter(term for text in texts for term in set(text))
    learned = compute_idf(frequencies, len(texts), at_least=1)
    assert list(learned) == list(vectorizer.get_feature_names_out())
    assert list(learned.values()) == pytest.approx(expected.tolist(), rel=1e-12)


def test_a_term_in_too_few_texts_is_not_learned() -> None:
    assert set(compute_idf(Counter(a=1, b=2, c=3), texts=4)) == {"b", "c"}
    assert set(compute_idf(Counter(a=1, b=2, c=3), texts=4, at_least=3)) == {"c"}
