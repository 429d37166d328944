"""The rules that are shown for a pair are those by which the job decides it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from bson import encode
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.document import Fingerprints, Match, Verdict, digests
from dedup_job.fingerprint.recipe import Matching
from dedup_job.job import decide
from dedup_job.match.keepers import Keepers, Recollection
from dedup_job.ragged import Ragged
from dedup_job.report.rules import distance, jaccard, judged, rules, segment_distances
from scripts.corpus import Mix, samples
from tests.pairs import LONG, OTHER, RECIPES, made, raw


def decided(prints: Fingerprints, matching: Matching) -> Verdict:
    """Let the job decide two records by themselves; returns the verdict of the second."""
    bits = 64 * prints.bits.shape[1]
    keepers = Keepers(bits, matching.radius, 1 << 20, Recollection(lambda ids: {}, lambda raws: prints))
    return decide([b"first", b"second"], prints, matching, keepers)[1]


def agrees(texts: Sequence[str], prints: Fingerprints, matching: Matching) -> str:
    """Check an explanation against the job, and return the rules that decided."""
    verdict = decided(prints, matching)
    applied = rules(texts, prints, matching, (0, 0))
    judgement = judged(prints.reasons, applied)
    assert (judgement.action, judgement.reason) == (verdict.action, verdict.reason)
    if verdict.reason == "near":
        by_fingerprint = judgement.by[0] == "radius"
        similarity = jaccard(prints) if matching.min_similarity else None
        measured = distance(prints) if by_fingerprint else None
        assert verdict.match == Match(b"first", measured, similarity)
    return "+".join(judgement.by)


def test_explanations_agree_with_the_job_on_generated_pairs() -> None:
    """Every planted copy against its origin, and records against their neighbours, by several recipes."""
    seen = set()
    for chosen in RECIPES.values():
        fingerprinter = made(chosen)
        planted = list(samples(90, seed=5, mix=Mix(length=120)))
        raws = [encode(sample.record) for sample in planted]
        prints, texts = fingerprinter(raws), chosen.reader.texts(raws)[0]
        place = {sample.record["_id"]: row for row, sample in enumerate(planted)}
        pairs = [(place[sample.of], row) for row, sample in enumerate(planted) if sample.of]
        for one, other in [*pairs, *((row, row + 1) for row in range(0, len(planted) - 1, 3))]:
            pair = prints.take([one, other])
            seen.add(agrees([texts[one], texts[other]], pair, chosen.matching))
    assert seen == {
        "unjudged",
        "same_text",
        "radius",
        "radius+short_text",
        "radius+min_similarity",
        "min_terms",
        "min_terms+short_text",
        "short_text+min_similarity",
        "min_similarity",
        "numbers",
    }


@st.composite
def made_prints(draw: st.DrawFn) -> tuple[Fingerprints, Matching]:
    """Two fingerprints near the thresholds of a rule, in every combination of flags."""
    min_similarity = draw(st.sampled_from([0.0, 0.5, 0.75, 1.0]))
    radius = draw(st.integers(0, 4))
    sets = [sorted(draw(st.sets(st.integers(0, 3), min_size=1, max_size=4))) for _ in range(2)]
    bits = [draw(st.integers(0, 2**64 - 1))]
    bits.append(bits[0] ^ (1 << draw(st.integers(0, 5))) - 1)
    near = np.array(draw(st.sampled_from([(True, True), (True, True), (True, False), (False, True)])))
    prints = Fingerprints(
        reasons=draw(st.sampled_from([["", ""]] * 4 + [["empty", ""], ["", "null"], ["null", "empty"]])),
        bits=np.where(near, np.array(bits, np.uint64), np.uint64(0)).reshape(2, 1),
        near=near,
        short=np.array(draw(st.tuples(st.booleans(), st.booleans()))) & (min_similarity > 0),
        digests=digests([b"a", draw(st.sampled_from([b"a", b"b", b"b"]))]),
        hashes=digests([b"a", b"b"]),
        shingles=Ragged(
            np.cumsum([0, *map(len, sets)], dtype=np.int64),
            np.array([value for row in sets for value in row], np.uint32),
        ),
    )
    unjudged = np.array([bool(reason) for reason in prints.reasons])
    prints = replace(prints, near=prints.near & ~unjudged, short=prints.short & ~unjudged)
    return prints, replace(RECIPES["default"].matching, radius=radius, min_similarity=min_similarity)


@given(made_prints())
def test_explanations_agree_with_the_job_on_any_two_fingerprints(
    made: tuple[Fingerprints, Matching],
) -> None:
    agrees(["", ""], *made)


@given(made_prints())
def test_the_jaccard_that_is_shown_is_the_one_that_decides(made: tuple[Fingerprints, Matching]) -> None:
    prints, _ = made
    first, second = (set(prints.shingles[row].tolist()) for row in range(2))
    assert jaccard(prints) == (len(first & second) / len(first | second) if first | second else 0.0)


def test_the_distances_of_the_segments_add_up_to_the_distance() -> None:
    prints = made(RECIPES["default"])([raw(LONG), raw(OTHER)])
    assert len(segment_distances(prints)) == 8
    assert sum(segment_distances(prints)) == distance(prints)

    prints.bits[:] = [[1 << 15, 0], [1 << 16, 3 << 62]]
    assert segment_distances(prints) == [1, 1, 0, 0, 0, 0, 0, 2]
