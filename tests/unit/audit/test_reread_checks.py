from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.audit.reread_checks import plain_similarity
from dedup_job.fingerprint.recipe import Matching
from dedup_job.fingerprint.shingles import number_seeds, shingle_sets
from dedup_job.index.shingle_similarity import jaccard
from dedup_job.text.code_points import encode_lower_case

TEXTS = st.text(st.sampled_from("ab1 2.中文字，İΣ𠀀"), min_size=1, max_size=30) | st.text(min_size=1)


@pytest.mark.parametrize("length", [None, 4])
@pytest.mark.parametrize("numbers", ["ignore", "distinguish"])
@given(one=TEXTS, other=TEXTS)
def test_the_similarity_by_its_definition_is_that_of_the_job(
    length: int | None, numbers: str, one: str, other: str
) -> None:
    matching = Matching(shingle=length, numbers=numbers)
    for pair in ((one, other), (one, one + "a"), (one, one)):
        seeds = number_seeds(pair) if numbers == "distinguish" else None
        first, second = shingle_sets(encode_lower_case(pair), length, seeds)
        # A text without any character that counts has no shingles, and is never compared.
        if len(first) and len(second):
            assert plain_similarity(*pair, matching) == pytest.approx(jaccard(first, second))
