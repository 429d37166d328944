"""Groups: the decisions on all groups together are those on each group alone."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from bson import encode
from hypothesis import given, settings
from hypothesis import strategies as st

from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.index.keepers import KeeperRefetch, Keepers
from dedup_job.pipeline.job import decide_in_memory
from dedup_job.records import Batch, Fingerprints, Verdict
from dedup_job.within import group_separation
from dedup_job.within.group_separation import have_same_group, mix_groups, without_groups
from tests.support.recipes import recipe_of

SEA = "the ferry to the islands leaves at nine from the old pier and comes back in the evening with the mail"
HILL = (
    "the school in the hills has twelve pupils this year and one teacher who walks seven miles every morning"
)
# Also texts of a single shingle, whose 32-bit hashes are all that tells them apart.
TEXTS = [SEA, SEA + " bag", SEA + " bags", HILL, HILL.upper(), "ok", "ok!", "ok.", "yes", "好", "好。", ""]
SITES = ["a", "b", None, 1, 1.0, True, ["a"], {"name": "a"}]

WITHIN = recipe_of("text", match={"within": ["site", "page.lang"]}, recipe={"min_terms": 1})
PLAIN = recipe_of("text", recipe={"min_terms": 1})
fingerprinter_of = functools.cache(Fingerprinter)

Records = Sequence[dict[str, Any]]


def decided(recipe: Recipe, records: Records, batch: int, cache: int = 1 << 20) -> list[tuple[Any, Verdict]]:
    """Return the number of each record and its verdict."""
    fingerprint = fingerprinter_of(recipe)
    raws = {encode({"_id": record["_id"]}): encode(record) for record in records}
    older = KeeperRefetch(lambda ids: [{raw_id: raws[raw_id] for raw_id in ids}], fingerprint)
    keepers = Keepers(recipe, cache, older)
    verdicts: list[Verdict] = []
    for first in range(0, len(records), batch):
        ids = list(raws)[first : first + batch]
        one = Batch(ids, [raws[raw_id] for raw_id in ids])
        verdicts += decide_in_memory(one, fingerprint(one.raws), recipe.matching, keepers).verdicts
    return [(record["_id"], verdict) for record, verdict in zip(records, verdicts, strict=True)]


def alone(records: Records, batch: int) -> list[tuple[Any, Verdict]]:
    """Return the verdicts of one job for each group, without the setting, put together."""
    by_group: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        page = record.get("page") or {}
        site = record.get("site")
        key = (1 if site == 1 and site is not True else site, page.get("lang"))
        by_group.setdefault(repr(key), []).append(record)
    verdicts = [verdict for group in by_group.values() for verdict in decided(PLAIN, group, batch)]
    return sorted(verdicts, key=lambda pair: pair[0])


RECORDS = st.lists(
    st.fixed_dictionaries(
        {"text": st.sampled_from(TEXTS)},
        optional={"site": st.sampled_from(SITES), "page": st.sampled_from([{}, {"lang": "zh"}, None])},
    ),
    max_size=40,
).map(lambda records: [{"_id": number, **record} for number, record in enumerate(records)])


@settings(max_examples=150, deadline=None)
@given(RECORDS, st.sampled_from([1, 3, 100]), st.sampled_from([0, 1 << 20]))
def test_decisions_are_those_of_one_job_for_each_group(records: Records, batch: int, cache: int) -> None:
    """With a cache of nothing, the shingles of all keepers are fetched again."""
    assert decided(WITHIN, records, batch, cache) == alone(records, batch)


@pytest.mark.parametrize("text", [SEA, "ok"])
def test_texts_of_two_groups_that_share_all_keys_are_never_similar(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_separation, "_mask", lambda prints, groups: prints)
    records = [
        {"_id": number, "text": text + end, "site": "ab"[number % 2]} for number, end in enumerate("  !!")
    ]
    found = dict(decided(WITHIN, records, 10)), dict(decided(WITHIN, records, 1, 0))
    for verdicts in found:
        assert [verdict.reason for verdict in verdicts.values()] == ["", "", "near", "near"]
        assert [verdict.match and verdict.match.keeper for verdict in verdicts.values()][2:] == [
            encode({"_id": 0}),
            encode({"_id": 1}),
        ]


def prints_of(recipe: Recipe, sites: Sequence[Any], texts: Sequence[str]) -> Fingerprints:
    raws = [encode({"text": text, "site": site}) for site, text in zip(sites, texts, strict=True)]
    return fingerprinter_of(recipe)(raws)


def test_groups_can_be_taken_out_again() -> None:
    sites, texts = ["a", "b", "a", "b", "b"], [SEA, SEA, "ok", "", HILL]
    mixed, plain = prints_of(WITHIN, sites, texts), prints_of(PLAIN, sites, texts)
    assert not (mixed.digests[:3] == plain.digests[:3]).any()
    again = without_groups(mixed, WITHIN.group_words)
    for name in ("bits", "keys", "hashes"):
        assert (getattr(again, name) == getattr(plain, name)).all()
    assert [row.tolist() for row in again.shingles] == [row.tolist() for row in plain.shingles]
    assert without_groups(plain, PLAIN.group_words) is plain


def test_a_record_that_could_not_be_processed_has_no_group() -> None:
    mixed = prints_of(WITHIN, ["a"], [SEA])
    joined = Fingerprints.join([WITHIN.unchecked("poison", b""), mixed, WITHIN.unchecked("poison", b"")])
    again = without_groups(joined, WITHIN.group_words)
    assert [len(row) for row in again.shingles] == [0, len(mixed.shingles[0]) - 4, 0]
    assert (again.bits[1] == prints_of(PLAIN, ["a"], [SEA]).bits[0]).all()


def test_no_key_and_no_digest_is_shared_by_two_groups_and_all_are_within_one() -> None:
    prints = prints_of(WITHIN, ["a", "b", "a"], [SEA, SEA, SEA])
    for column in (prints.bits, prints.keys, prints.digests):
        assert (column[0] == column[2]).all()
        assert not (column[0] == column[1]).any()
    assert have_same_group(prints.take([0, 2]), WITHIN.group_words)
    assert not have_same_group(prints.take([0, 1]), WITHIN.group_words)


def test_mixed_sets_are_as_similar_within_a_group_and_not_at_all_between_two() -> None:
    prints = prints_of(WITHIN, ["a", "a", "b"], [SEA, SEA + " bag", SEA])
    plain = without_groups(prints, WITHIN.group_words).shingles
    first, second, third = (set(row.tolist()) for row in mix_groups(prints.shingles, WITHIN.group_words))
    assert len(first & second) == len(np.intersect1d(plain[0], plain[1]))
    assert not first & third
    assert all((np.diff(row.astype(np.int64)) > 0).all() for row in mix_groups(prints.shingles, 4))
