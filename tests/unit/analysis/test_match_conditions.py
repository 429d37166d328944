"""The rules that are shown for a pair are those by which the job decides it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from bson import encode
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.analysis.match_conditions import (
    SharedKeys,
    band_chance,
    check_rules,
    distance,
    judge_pair,
    segment_distances,
    segments_searched,
    similarity,
)
from dedup_job.fingerprint.minhash_bands import band_keys
from dedup_job.fingerprint.recipe import Matching
from dedup_job.index.candidate_index import CandidateIndex
from dedup_job.index.keepers import Keepers
from dedup_job.native.arrays import Ragged
from dedup_job.pipeline.job import decide
from dedup_job.records import Fingerprints, KeeperMatch, RawIds, Verdict, digests
from scripts.bench.corpus import Mix, samples
from tests.support.text_pairs import LONG, OTHER, RECIPES, made, raw


def decided(prints: Fingerprints, matching: Matching) -> Verdict:
    """Let the job decide two records by themselves; returns the verdict of the second."""
    recipe = replace(RECIPES["default"], bits=64 * prints.bits.shape[1], matching=matching)
    keepers = Keepers(recipe, 1 << 20)
    ids = [b"first", b"second"]
    texts = keepers.add_texts(RawIds.of(ids), prints).texts
    return decide(ids, prints, texts, matching, keepers).verdicts[1]


def agrees(texts: Sequence[str], prints: Fingerprints, matching: Matching) -> str:
    """Check an explanation against the job, and return the rules that decided."""
    verdict = decided(prints, matching)
    applied = check_rules(texts, prints, matching, (0, 0))
    judged, decided_by = judge_pair(prints.reasons, applied)
    assert (judged.action, judged.reason) == (verdict.action, verdict.reason)
    if verdict.reason == "near":
        compared = similarity(prints) if matching.min_similarity else None
        assert verdict.match == KeeperMatch(b"first", distance(prints), compared)
    return "+".join(decided_by)


def test_explanations_agree_with_the_job_on_generated_pairs() -> None:
    """Every planted copy against its origin, and records against their neighbours, by several recipes."""
    seen = set()
    for chosen in RECIPES.values():
        fingerprinter = made(chosen)
        planted = list(samples(90, seed=11, mix=Mix(length=120)))
        raws = [encode(sample.record) for sample in planted]
        prints, texts = fingerprinter(raws), chosen.reader.texts(raws)
        place = {sample.record["_id"]: row for row, sample in enumerate(planted)}
        pairs = [(place[sample.of], row) for row, sample in enumerate(planted) if sample.of]
        for one, other in [*pairs, *((row, row + 1) for row in range(0, len(planted) - 1, 3))]:
            pair = prints.take([one, other])
            seen.add(agrees([texts[one], texts[other]], pair, chosen.matching))
    assert seen == {
        "unchecked",
        "same_text",
        "radius",
        "bands",
        "radius+bands",
        "radius+min_similarity",
        "bands+min_similarity",
        "radius+bands+min_similarity",
        "min_similarity",
        "numbers",
    }


@st.composite
def made_prints(draw: st.DrawFn) -> tuple[Fingerprints, Matching]:
    """Two fingerprints near the thresholds of a rule, in every combination of flags and shared keys."""
    matching = Matching(
        radius=draw(st.integers(0, 5)),  # from 4 on all are compared
        bands=draw(st.integers(0, 3)),
        band_radius=draw(st.sampled_from([0, 2, 6, 64])),
        min_similarity=draw(st.sampled_from([0.0, 0.5, 0.75, 1.0])),
    )
    reasons = draw(st.sampled_from([["", ""]] * 4 + [["empty", ""], ["", "null"], ["null", "empty"]]))
    is_judged = np.array([not reason for reason in reasons])
    near = np.array(draw(st.sampled_from([(True, True)] * 2 + [(True, False), (False, True)]))) & is_judged
    bits = [draw(st.integers(0, 2**64 - 1))]
    bits.append(bits[0] ^ draw(st.integers(0, 6).map(lambda flips: (1 << flips) - 1)))
    keys = draw(st.lists(st.sampled_from([0, 1, 2**31, 2**31 + 1]), min_size=6, max_size=6))
    sets = [sorted(draw(st.sets(st.integers(0, 3), min_size=1, max_size=4))) for _ in range(2)]
    prints = Fingerprints(
        reasons=reasons,
        bits=np.where(near, np.array(bits, np.uint64), np.uint64(0)).reshape(2, 1),
        has_fingerprint=near,
        keys=(np.array(keys, np.uint32).reshape(2, 3) * is_judged[:, None])[:, : matching.bands].copy(),
        digests=digests([b"a", draw(st.sampled_from([b"a", b"b", b"b"]))]) * is_judged[:, None],
        hashes=digests([b"a", b"b"]),
        shingles=Ragged(
            np.cumsum([0, *map(len, sets)], dtype=np.int64),
            np.array([value for row in sets for value in row], np.uint32),
        ),
        partial=np.zeros(2, np.bool_),
    )
    return prints, matching


@given(made_prints())
def test_explanations_agree_with_the_job_on_any_two_fingerprints(
    made: tuple[Fingerprints, Matching],
) -> None:
    agrees(["", ""], *made)


@given(made_prints())
def test_the_similarity_that_is_shown_is_the_one_that_decides(made: tuple[Fingerprints, Matching]) -> None:
    prints, _ = made
    first, second = (set(prints.shingles[row].tolist()) for row in range(2))
    assert similarity(prints) == (len(first & second) / len(first | second) if first | second else 0.0)


@given(made_prints())
def test_a_pair_within_the_radius_shares_a_segment_that_is_looked_at(
    made: tuple[Fingerprints, Matching],
) -> None:
    prints, matching = made
    bits = distance(prints)
    if bits is not None and bits <= matching.radius < 4:
        assert SharedKeys.of(prints, matching).segments


def test_the_distances_of_the_segments_add_up_to_the_distance() -> None:
    prints = made(RECIPES["long"])([raw(LONG), raw(OTHER)])
    assert len(segment_distances(prints)) == 8
    assert sum(segment_distances(prints)) == distance(prints)

    prints.bits[:] = [[1 << 15, 0], [1 << 16, 3 << 62]]
    assert segment_distances(prints) == [1, 1, 0, 0, 0, 0, 0, 2]
    assert SharedKeys.of(prints, RECIPES["long"].matching).segments == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("bits", [64, 128])
@pytest.mark.parametrize("radius", [0, 1, 3, 4, 7, 8, 20])
def test_as_many_segments_are_shown_as_the_index_has_maps(bits: int, radius: int) -> None:
    index = CandidateIndex(bits, Matching(radius=radius))
    assert segments_searched(bits, radius) == len(index._segments)


def said(texts: Sequence[str], name: str) -> dict[str, str]:
    chosen = RECIPES[name]
    raws = list(map(raw, texts))
    cleaned = chosen.reader.texts(raws)
    return {
        rule.name: rule.what for rule in check_rules(cleaned, made(chosen)(raws), chosen.matching, (3, 40))
    }


def test_a_rule_says_which_keys_are_the_same() -> None:
    prints = made(RECIPES["default"])([raw(LONG), raw(LONG + "。续")])
    prints.bits[:] = [[0], [0x0000_0007_0000_0003]]
    prints.keys[1] = prints.keys[0]
    prints.keys[1, [0, 2, 3, 4, 5, 7, 8]] += np.uint32(1)

    def what(matching: Matching) -> dict[str, str]:
        return {rule.name: rule.what for rule in check_rules(["", ""], prints, matching, (9, 9))}

    matching = RECIPES["default"].matching
    shown = what(matching)
    assert shown["radius"] == (
        "the fingerprints are 5 bits apart, at most 3 count as near; segments 2 and 4 of 4 are the same"
    )
    assert shown["bands"] == "bands 2 and 7 of 9 are the same, within 18 bits"
    assert what(replace(matching, band_radius=4))["bands"].endswith("the same, but not within 4 bits")
    assert what(replace(matching, radius=4))["radius"].endswith("at most 4 count as near")
    prints.has_fingerprint[0] = False
    assert what(matching)["bands"].endswith("a text without a fingerprint is not checked by distance")
    assert what(matching)["radius"] == "the first has 9 terms, a fingerprint takes at least 8"
    prints.keys[:] = 0
    assert what(matching)["bands"] == "none of 9 bands is the same"


def test_rules_that_are_switched_off_are_not_shown() -> None:
    assert list(said([LONG, OTHER], "classic")) == ["same_text", "radius"]
    assert list(said([LONG, OTHER], "unseen")) == ["same_text", "radius", "bands"]
    assert list(said([LONG, OTHER], "default")) == ["same_text", "radius", "bands", "min_similarity"]
    assert list(said([LONG, OTHER], "numbers"))[3:] == ["numbers", "min_similarity"]


@given(st.floats(0, 1), st.integers(1, 20), st.integers(1, 8))
def test_the_chance_grows_with_the_similarity_and_with_the_bands(alike: float, bands: int, rows: int) -> None:
    few, more = (Matching(bands=count, rows=rows) for count in (bands, bands + 1))
    assert 0 <= band_chance(alike, few) <= band_chance(alike, more) <= 1
    assert band_chance(alike / 2, few) <= band_chance(alike, few)
    assert (band_chance(0.0, few), band_chance(1.0, few)) == (0.0, 1.0)


def test_the_chance_is_how_often_sets_so_similar_share_a_band() -> None:
    """2,000 pairs of sets of 300 with 200 in common: similarity 0.5; 5 standard deviations are 0.05."""
    rng, matching = np.random.default_rng(3), Matching(bands=8, rows=4)
    values = rng.integers(1 << 32, size=(2_000, 400), dtype=np.uint32)
    sides = np.sort(np.stack([values[:, :300], values[:, 100:]], axis=1).reshape(-1, 300))
    keys = band_keys(Ragged(np.arange(0, sides.size + 1, 300), sides.ravel()), 8, 4).reshape(-1, 2, 8)
    share = (keys[:, 0] == keys[:, 1]).any(axis=1).mean()
    assert share == pytest.approx(band_chance(0.5, matching), abs=0.05)
