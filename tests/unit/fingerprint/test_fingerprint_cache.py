from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from bson import encode
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.fingerprint import fingerprint_cache
from dedup_job.fingerprint.fingerprint_cache import FingerprintCache
from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.records import digests
from tests.support.recipes import PLAIN

RECIPE, OTHER_RECIPE = "ab" * 32, "cd" * 32  # digests
FEW = 4  # places, so that texts take them from one another


@pytest.fixture
def _few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint_cache, "PLACES", FEW)


def column(numbers: Sequence[int], words: int = 1) -> np.ndarray:
    return np.array(numbers, np.uint64).repeat(words).reshape(-1, words)


@pytest.mark.usefixtures("_few_places")
@given(
    batches=st.lists(st.lists(st.integers(0, 30), max_size=8, unique=True), max_size=6),
    words=st.sampled_from([1, 2]),
)
def test_what_is_known_of_a_text_is_what_was_last_put(batches: list[list[int]], words: int) -> None:
    known = FingerprintCache(RECIPE, words)
    for number, batch in enumerate(batches, 1):
        bits = column([text * 1_000 + number for text in batch], words)
        known.put(digests(b"%d" % text for text in batch), bits, np.array(batch, np.int64))
    last = {text: number for number, batch in enumerate(batches, 1) for text in batch}
    is_known, bits, counts = known.find(digests(b"%d" % text for text in range(31)))
    assert is_known.sum() <= FEW
    assert is_known.any() == bool(last)
    for text in np.flatnonzero(is_known).tolist():
        assert bits[text].tolist() == [text * 1_000 + last[text]] * words
        assert counts[text] == text


def test_a_text_keeps_its_place_until_another_takes_it() -> None:
    known = FingerprintCache(RECIPE, 1)
    some, others = digests([b"a", b"b"]), digests([b"c"])
    known.put(some, column([1, 2]), np.array([3, 4]))
    known.put(others, column([5]), np.array([6]))
    is_known, bits, counts = known.find(np.concatenate([some, others]))
    assert (is_known.all(), bits.ravel().tolist(), counts.tolist()) == (True, [1, 2, 5], [3, 4, 6])
    assert not known.find(digests([b"d"]))[0].any()


def test_all_bits_of_a_digest_are_compared() -> None:
    known = FingerprintCache(RECIPE, 1)
    known.put(np.array([[7, 8]], np.uint64), column([1]), np.array([1]))
    near_by = np.array([[7, 8], [7, 9], [7 + fingerprint_cache.PLACES, 8]], np.uint64)
    assert known.find(near_by)[0].tolist() == [True, False, False]


def test_what_one_puts_is_known_to_all_that_share_the_memory_and_the_recipe() -> None:
    memory = np.zeros(fingerprint_cache.PLACES * fingerprint_cache.MOST_WORDS, np.uint64)
    one, other = (FingerprintCache(RECIPE, 2, memory) for _ in range(2))
    text = digests([b"a"])
    one.put(text, column([7], 2), np.array([9]))
    is_known, bits, counts = other.find(text)
    assert (is_known.tolist(), bits.tolist(), counts.tolist()) == ([True], [[7, 7]], [9])
    assert not FingerprintCache(OTHER_RECIPE, 2, memory).find(text)[0].any()
    assert not FingerprintCache(RECIPE, 1, memory).find(text)[0].any()


WORD = st.integers(0, 3) | st.integers(0, 2**64 - 1)
ROW = st.tuples(WORD, WORD, WORD, st.integers(0, 2**62))


@pytest.mark.usefixtures("_few_places")
@given(first=ROW, second=ROW, from_second=st.lists(st.booleans(), min_size=4, max_size=4))
def test_a_mixture_of_two_rows_is_no_text(
    first: tuple[int, ...], second: tuple[int, ...], from_second: list[bool]
) -> None:
    """It is what a process finds while another one writes, word by word."""
    known = FingerprintCache(RECIPE, 1)
    rows = []
    for low, high, bits, count in (first, second):
        text = np.array([[low - low % FEW, high]], np.uint64)  # both have the first place
        known.put(text, column([bits]), np.array([count]))
        rows.append((text, known._rows[0].copy()))
    mixture = np.where(from_second, rows[1][1], rows[0][1])
    known._rows[0] = mixture
    whole = [text.tolist() for text, row in rows if (mixture == row).all()]
    for text, _ in rows:
        assert known.find(text)[0].tolist() == [text.tolist() in whole]


def test_workers_share_what_they_know() -> None:
    """They are forked from a process that has loaded their code; so is the child here."""
    script = """if True:
        import os, sys
        import numpy as np
        from dedup_job.pipeline.worker_process import KNOWN_TEXTS
        from dedup_job.fingerprint.fingerprint_cache import FingerprintCache
        known, text = FingerprintCache("ab" * 32, 1, KNOWN_TEXTS), np.array([[3, 4]], np.uint64)
        if os.fork() == 0:
            known.put(text, np.array([[5]], np.uint64), np.array([6]))
            os._exit(0)
        os.wait()
        sys.exit(not known.find(text)[0].all())
    """
    subprocess.run([sys.executable, "-c", script], check=True)


TEXTS = st.lists(
    st.sampled_from(["", "短", "red blue", "红色的大房子和蓝色的小房子", "fox " * 30, "red"]), max_size=5
)


@pytest.mark.usefixtures("_few_places")
@given(batches=st.lists(TEXTS, max_size=5))
def test_a_text_gets_the_same_fingerprint_whether_it_is_known_or_not(batches: list[list[str]]) -> None:
    used = Fingerprinter(PLAIN)
    for texts in batches:
        raws = [encode({"_id": number, "text": text}) for number, text in enumerate(texts)]
        found, expected = used(raws), Fingerprinter(PLAIN)(raws)
        assert np.array_equal(found.bits, expected.bits)
        assert np.array_equal(found.has_fingerprint, expected.has_fingerprint)
        assert np.array_equal(found.keys, expected.keys)
        assert np.array_equal(found.digests, expected.digests)
        assert found.reasons == expected.reasons


def test_a_text_that_comes_again_is_not_segmented_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fingerprinter, segmented = Fingerprinter(PLAIN), []
    find = fingerprinter.terms.find
    monkeypatch.setattr(
        fingerprinter.terms, "find", lambda texts, codes: segmented.append(texts) or find(texts, codes)
    )
    for markup in ("red blue green", "<p>red blue green</p>", "red blue"):
        fingerprinter([encode({"_id": 0, "text": markup})])
    assert segmented == [["red blue green"], ["red blue"]]
