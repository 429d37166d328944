from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from bson import encode
from bson.objectid import ObjectId
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.index import keepers
from dedup_job.index.find_neighbours import compare
from dedup_job.index.keeper_ids import KeeperIds
from dedup_job.index.keepers import BatchTexts, KeeperRef, KeeperRefetch, Keepers
from dedup_job.index.shingle_cache import ENTRY_BYTES
from dedup_job.index.shingle_similarity import LARGEST_SIZE, ShingleSets, jaccard, set_sizes
from dedup_job.native.arrays import Ragged
from dedup_job.pipeline.job import add_keepers
from dedup_job.records import UNIQUE, Action, Fingerprints, KeeperMatch, Plan, RawIds, Verdict, digests
from scripts.bench.index_memory import column_bytes, keepers_bytes
from tests.support.recipes import recipe_of

UNCHECKED = Verdict(Action.UNCHECKED, "empty")
REFUSED = Verdict(Action.REFUSED, "validator")
RECIPE = recipe_of("text", match={"bands": 1})
COPY = Verdict(Action.DUPLICATE, "exact", KeeperMatch(b"k", 0, 1.0))


def prints_of(texts: Sequence[bytes], near: bool = True) -> Fingerprints:
    """Fingerprints of texts; a text's bits are its length, its shingles its bytes."""
    shingles = [sorted(set(text)) for text in texts]
    return Fingerprints(
        reasons=[""] * len(texts),
        bits=np.array([[len(text)] for text in texts], np.uint64).reshape(-1, 1),
        has_fingerprint=np.full(len(texts), near),
        keys=np.array([[len(text)] for text in texts], np.uint32).reshape(-1, 1),
        digests=digests(texts),
        hashes=digests(texts),
        shingles=Ragged(
            np.cumsum([0, *map(len, shingles)], dtype=np.int64),
            np.array([value for row in shingles for value in row], np.uint32),
        ),
        partial=np.zeros(len(texts), np.bool_),
    )


def plan_of(texts: Sequence[bytes], prints: Fingerprints, verdicts: Sequence[Verdict]) -> Plan:
    ids = [b"id:" + text for text in texts]
    return Plan(
        ids, verdicts, prints.bits, prints.has_fingerprint, prints.keys, prints.digests, prints.hashes
    )


class Records:
    """A target that counts what is asked of it."""

    def __init__(self, cache_bytes: int = 0) -> None:
        self.there: dict[bytes, bytes] = {}
        self.asked: list[list[bytes]] = []
        self.keepers = Keepers(RECIPE, cache_bytes, KeeperRefetch(self._fetch, prints_of))

    def keep(self, *texts: bytes, near: bool = True) -> None:
        """Admit texts as keepers, each under the id `id:<text>`."""
        self.admit(texts, [UNIQUE] * len(texts), near)
        self.there |= {b"id:" + text: text for text in texts}

    def admit(self, texts: Sequence[bytes], verdicts: Sequence[Verdict], near: bool = True) -> BatchTexts:
        prints = prints_of(texts, near)
        plan = plan_of(texts, prints, verdicts)
        entered = self.keepers.add_texts(RawIds.of(plan.ids), prints)
        add_keepers(plan, entered, prints, self.keepers)
        return entered

    def shingles(self, texts: Sequence[int]) -> dict[int, list[int]]:
        """Return the shingles of keepers, all pieces in one."""
        pieces = self.keepers.shingles(texts)
        return {
            text: row.tolist()
            for known in pieces
            for text, row in zip(known.texts.tolist(), known.sets, strict=True)
        }

    def _fetch(self, ids: Sequence[bytes]) -> Iterator[dict[bytes, bytes]]:
        self.asked.append(list(ids))
        there = {raw_id: self.there[raw_id] for raw_id in ids if raw_id in self.there}
        if there:
            yield there


def standing(keepers: Keepers, texts: Sequence[int]) -> list[bool]:
    return keepers.have_keeper(np.array(texts, np.int64)).tolist()


def test_texts_are_numbered_as_they_first_come_and_what_cannot_be_judged_has_none() -> None:
    records = Records()
    prints = prints_of([b"b", b"a", b"b", b"c"])
    prints.digests[3] = 0
    first = records.keepers.add_texts(RawIds.of([b"1", b"2", b"3", b"4"]), prints)
    assert (first.texts.tolist(), first.is_new.tolist()) == ([0, 1, 0, -1], [True, True, False, False])
    second = records.keepers.add_texts(RawIds.of([b"5", b"6"]), prints_of([b"d", b"a"]))
    assert (second.texts.tolist(), second.is_new.tolist()) == ([2, 1], [True, False])
    assert records.keepers.texts == 3


def test_only_unique_records_stand_for_their_texts() -> None:
    records = Records()
    records.admit([b"a", b"b", b"c"], [UNIQUE, REFUSED, COPY])
    assert (len(records.keepers), records.keepers.texts) == (1, 3)
    assert standing(records.keepers, [0, 1, 2]) == [True, False, False]


def test_a_record_that_is_not_the_first_with_its_text_stands_for_it() -> None:
    records = Records()
    entered = records.keepers.add_texts(RawIds.of([b"1", b"2"]), prints_of([b"a", b"a"]))
    records.keepers.keep(entered, np.array([False, True]), [b"1", b"2"])
    assert (records.keepers.id(0), standing(records.keepers, [0])) == (b"2", [True])


def test_of_two_records_with_one_text_the_second_stands_when_the_first_is_gone() -> None:
    records = Records()
    for raw_id in (b"1", b"2"):
        entered = records.keepers.add_texts(RawIds.of([raw_id]), prints_of([b"a"]))
        records.keepers.keep(entered, np.array([True]), [raw_id])
    assert (len(records.keepers), records.keepers.id(0)) == (2, b"1")
    records.keepers.mark_missing([KeeperRef(0, b"1")])
    assert (records.keepers.id(0), standing(records.keepers, [0])) == (b"2", [True])
    records.keepers.mark_missing([KeeperRef(0, b"2")])
    assert standing(records.keepers, [0]) == [False]


def test_a_record_that_is_gone_with_one_text_and_comes_with_another_stands_for_that_one() -> None:
    records = Records()
    for text in (b"a", b"b"):
        entered = records.keepers.add_texts(RawIds.of([b"1"]), prints_of([text]))
        records.keepers.keep(entered, np.array([True]), [b"1"])
        if text == b"a":
            records.keepers.mark_missing([KeeperRef(0, b"1")])
    assert standing(records.keepers, [0, 1]) == [False, True]


def test_a_record_that_is_kept_twice_with_one_text_is_one_keeper() -> None:
    records = Records()
    for _ in range(2):
        entered = records.keepers.add_texts(RawIds.of([b"1"]), prints_of([b"a"]))
        records.keepers.keep(entered, np.array([True]), [b"1"])
    assert (len(records.keepers), standing(records.keepers, [0])) == (1, [True])


def test_an_outdated_keeper_is_gone_or_has_another_text() -> None:
    records = Records()
    records.keep(b"ab", b"cd", b"ef")
    del records.there[b"id:ab"]
    records.there[b"id:cd"] = b"ef"
    standings = [KeeperRef(text, records.keepers.id(text)) for text in range(3)]
    assert records.keepers.find_outdated(standings) == set(standings[:2])
    assert records.keepers.find_outdated([]) == set()


def test_a_keeper_of_the_past_is_seen_once_looked_up_and_one_that_is_kept_since_at_once() -> None:
    records = Records(cache_bytes=1 << 20)
    records.keepers.load_plan(plan_of([b"ab"], prints_of([b"ab"]), [UNIQUE]).texts)
    records.there[b"id:ab"] = b"ab"
    old = KeeperRef(0, b"id:ab")
    assert not records.keepers.is_checked(old)
    records.keep(b"cd")
    assert records.keepers.is_checked(KeeperRef(1, b"id:cd"))
    assert records.keepers.find_outdated([old]) == set()
    assert records.keepers.is_checked(old)


def test_a_dropped_text_is_found_too_as_what_a_key_finds_must_not_depend_on_what_was_kept() -> None:
    records = Records()
    prints = prints_of([b"aa", b"bb", b"cc"])
    records.admit([b"aa", b"bb", b"cc"], [UNIQUE, COPY, UNIQUE])
    found = records.keepers.candidates(np.array([2]), prints.keys[2:])
    assert found.texts.tolist() == [0, 1]


def test_no_keepers_and_no_questions_are_fine() -> None:
    keepers = Records().keepers
    entered = keepers.add_texts(RawIds.of([]), prints_of([]))
    assert entered.texts.tolist() == []
    assert keepers.candidates(entered.texts, np.empty((0, 1), np.uint32)).offsets.tolist() == [0]
    assert list(keepers.shingles([])) == []


def test_recent_keepers_are_not_asked_for() -> None:
    records = Records(cache_bytes=1 << 10)
    records.keep(b"ab", b"cd")
    assert records.shingles([0, 1]) == {0: [97, 98], 1: [99, 100]}
    assert records.asked == []


def test_the_others_are_asked_for_at_once_and_each_once() -> None:
    records = Records()
    records.keep(b"ab", b"cd")
    assert set(records.shingles([0, 1, 0])) == {0, 1}
    assert records.asked == [[b"id:ab", b"id:cd"]]


def test_what_was_recalled_is_remembered() -> None:
    records = Records(cache_bytes=8 + ENTRY_BYTES)  # room for one
    records.keep(b"ab", b"cd")
    records.shingles([0])
    records.shingles([0])
    assert records.asked == [[b"id:ab"]]


def test_a_keeper_that_is_gone_or_has_another_text_is_left_out() -> None:
    records = Records()
    records.keep(b"ab", b"cd", b"ef")
    del records.there[b"id:ab"]
    records.there[b"id:cd"] = b"changed"
    assert set(records.shingles([0, 1, 2])) == {2}


def test_a_keeper_that_took_over_the_text_of_another_is_left_out() -> None:
    records = Records()
    records.keep(b"ab", b"cd")
    records.there[b"id:cd"] = b"ab"
    assert set(records.shingles([0, 1])) == {0}


def test_all_gone_is_no_error() -> None:
    records = Records()
    records.keep(b"ab")
    records.there.clear()
    assert records.shingles([0]) == {}


def test_the_shingles_that_are_remembered_do_not_hold_the_whole_batch_in_memory() -> None:
    """A view of the recalled batch's array keeps all of it: the bound in bytes would bound nothing."""
    records = Records(cache_bytes=12 + ENTRY_BYTES)
    records.keep(b"abc", bytes(range(200)))
    records.shingles([1, 0])
    kept = records.keepers._recent.get(0)
    assert kept is not None
    assert kept.base is None or kept.base.nbytes <= kept.nbytes


def test_admitting_without_shingles_recalls_them_later() -> None:
    records = Records(cache_bytes=1 << 10)
    records.keepers.load_plan(plan_of([b"ab"], prints_of([b"ab"]), [UNIQUE]).texts)
    records.there[b"id:ab"] = b"ab"
    assert records.shingles([0])[0] == [97, 98]


def ragged(*sets: Sequence[int]) -> Ragged:
    return Ragged(
        np.cumsum([0, *map(len, sets)]), np.array([value for row in sets for value in row], np.uint32)
    )


@given(
    st.binary(min_size=1, max_size=60),
    st.binary(min_size=1, max_size=60),
    st.sampled_from([0.1, 1 / 3, 0.5, 0.6, 2 / 3, 0.75, 0.8, 1.0]),
)
def test_sizes_rule_out_no_text_that_is_similar_enough(first: bytes, second: bytes, least: float) -> None:
    records = Records()
    records.keep(first)
    own, other = prints_of([second]).shingles[0], prints_of([first]).shingles[0]
    sizes, text = np.array([len(own)], np.uint16), np.array([0])
    can_be = records.keepers.can_be_similar(sizes, text, least)[0]
    assert can_be == (min(len(own), len(other)) / max(len(own), len(other)) >= least)
    assert can_be or jaccard(own, other) < least


def test_very_large_sets_are_not_told_apart_by_their_sizes() -> None:
    sets = ragged(range(LARGEST_SIZE + 9), range(LARGEST_SIZE), range(5))
    sizes = set_sizes(ShingleSets(sets.offsets, sets.values, header=2))
    assert sizes.tolist() == [LARGEST_SIZE, LARGEST_SIZE - 2, 3]


def test_a_keeper_whose_size_rules_out_similarity_is_not_fetched() -> None:
    records = Records()
    records.keep(b"ab", b"abcdefgh", b"abcdefgx")
    shingles = prints_of([b"abcdefgh"]).shingles
    sets = ShingleSets(shingles.offsets, shingles.values)
    similarities = compare(np.zeros(3, np.int64), np.arange(3), sets, 0.5, records.keepers)
    assert similarities.tolist() == [0.0, 1.0, 7 / 9]
    assert records.asked == [[b"id:abcdefgh", b"id:abcdefgx"]]


def test_the_size_of_a_text_of_the_ledger_is_known_once_its_keeper_was_fetched() -> None:
    records = Records()
    records.keepers.load_plan(plan_of([b"ab"], prints_of([b"ab"]), [UNIQUE]).texts)
    records.there[b"id:ab"] = b"ab"
    sizes, text = np.array([9], np.uint16), np.array([0])
    assert records.keepers.can_be_similar(sizes, text, 0.5).tolist() == [True]
    records.shingles([0])
    assert records.keepers.can_be_similar(sizes, text, 0.5).tolist() == [False]


OBJECT_IDS = st.binary(min_size=12, max_size=12).map(lambda value: encode({"_id": ObjectId(value)}))
LOOKALIKES = st.binary(min_size=22, max_size=22)
RAW_IDS = st.lists(OBJECT_IDS | LOOKALIKES | st.binary(min_size=1, max_size=40), max_size=6)


@given(st.lists(RAW_IDS, max_size=5), st.integers(0, 20))
def test_ids_come_back_as_they_went_in(chunks: list[list[bytes]], room: int) -> None:
    ids = KeeperIds()
    ids.reserve(room)
    for chunk in chunks:
        ids.extend(RawIds.of(chunk))
    flat = [raw_id for chunk in chunks for raw_id in chunk]
    assert len(ids) == len(flat)
    assert [ids[ordinal] for ordinal in range(len(ids))] == flat


def test_an_object_id_takes_little_more_than_twelve_bytes() -> None:
    ids = KeeperIds()
    for first in range(0, 50_000, 5_000):
        chunk = [encode({"_id": ObjectId(b"%012d" % number)}) for number in range(first, first + 5_000)]
        ids.extend(RawIds.of(chunk))
    assert column_bytes(ids) / len(ids) < 12.5


@given(st.lists(RAW_IDS.map(RawIds.of), max_size=3), st.data())
def test_some_of_the_ids_are_taken(chunks: list[RawIds], data: st.DataObject) -> None:
    for ids in chunks:
        flat = list(ids)
        rows = data.draw(st.lists(st.integers(0, len(flat) - 1), max_size=4)) if flat else []
        assert list(ids.take(np.array(rows, np.intp))) == [flat[row] for row in rows]
        start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(flat))] * 2)))
        assert ids.between(start, stop).joined.tobytes() == b"".join(flat[start:stop])


def test_what_is_restored_as_columns_is_what_was_decided() -> None:
    admitted, restored = Records(), Records()
    texts = [bytes([97 + number % 7]) * (1 + number % 60) for number in range(400)]
    for first in range(0, 400, 50):
        chunk = texts[first : first + 50]
        prints = prints_of(chunk, near=bool(first % 100))
        verdicts = [(UNIQUE, UNCHECKED, COPY)[number % 3] for number in range(50)]
        prints.digests[1::3] = 0
        plan = plan_of(chunk, prints, verdicts)
        add_keepers(plan, admitted.keepers.add_texts(RawIds.of(plan.ids), prints), prints, admitted.keepers)
        restored.keepers.load_plan(plan.texts)
    one, other = admitted.keepers, restored.keepers
    assert (len(one), one.texts) == (len(other), other.texts) == (136, 264)
    every = np.arange(one.texts)
    assert standing(one, every) == standing(other, every)
    assert [one.id(text) for text in every.tolist()] == [other.id(text) for text in every.tolist()]
    keys = np.array([[len(one.id(text)) - 3] for text in every.tolist()], np.uint32)
    for column in ("offsets", "texts", "distances"):
        found = [getattr(keepers.candidates(every, keys), column) for keepers in (one, other)]
        assert np.array_equal(*found)
    assert keepers_bytes(one)["ids"] == keepers_bytes(other)["ids"]


def test_a_sample_has_each_keeper_once_and_the_newest_are_the_last() -> None:
    records = Records()
    texts = [b"text" + b"%d" % n for n in range(30)]
    records.keep(*texts)
    ids = [b"id:" + text for text in texts]
    assert sorted(records.keepers.sample(100)) == sorted(ids)
    assert len(set(records.keepers.sample(7))) == 7
    assert records.keepers.newest(4) == ids[-4:]
    assert records.keepers.newest(100) == ids
    assert Records().keepers.sample(5) == Records().keepers.newest(5) == []


def test_keepers_of_many_megabytes_are_recalled_and_fingerprinted_piece_by_piece() -> None:
    """A keeper's shingles are dropped before the next keeper is fetched, where there is room for no more."""
    steps = []
    texts = [b"text%d" % n for n in range(4)]

    def fetch(ids: Sequence[bytes]) -> Iterator[dict[bytes, bytes]]:
        for raw_id in ids:
            steps.append("fetch")
            yield {raw_id: raw_id.removeprefix(b"id:")}

    keepers = Keepers(RECIPE, 0, KeeperRefetch(fetch, prints_of))
    keepers.load_plan(plan_of(texts, prints_of(texts), [UNIQUE] * 4).texts)
    for known in keepers.shingles(range(4)):
        steps.append(f"compare {known.texts.tolist()}")
    assert steps == [step for n in range(4) for step in ("fetch", f"compare [{n}]")]


def test_the_shingles_at_hand_are_looked_at_some_megabytes_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepers, "PIECE_BYTES", 16)
    records = Records(cache_bytes=1 << 10)
    records.keep(b"ab", b"cd", b"ef", b"abcdef", b"gh")
    found = [known.texts.tolist() for known in records.keepers.shingles(range(5))]
    assert found == [[0, 1], [2, 3], [4]]
    assert records.asked == []
