from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from bson import encode
from bson.objectid import ObjectId
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.document import UNIQUE, Action, Fingerprints, Match, Verdict, digests
from dedup_job.match.ids import Ids
from dedup_job.match.keepers import Keepers, Ordinals, Recollection
from dedup_job.match.recent import ENTRY
from dedup_job.match.shingle_index import prefixes
from dedup_job.plan import Plan, RawIds
from dedup_job.ragged import Ragged

UNJUDGED = Verdict(Action.UNJUDGED, "empty")
COPY = Verdict(Action.DUPLICATE, "exact", Match(b"k", 0, 1.0))


def prints_of(texts: Sequence[bytes], near: bool = True) -> Fingerprints:
    """Fingerprints of texts; a text's bits are its length, its shingles its bytes."""
    shingles = [sorted(set(text)) for text in texts]
    return Fingerprints(
        reasons=[""] * len(texts),
        bits=np.array([[len(text)] for text in texts], np.uint64).reshape(-1, 1),
        near=np.full(len(texts), near),
        short=np.full(len(texts), not near),
        digests=digests(texts),
        hashes=digests(texts),
        shingles=Ragged(
            np.cumsum([0, *map(len, shingles)], dtype=np.int64),
            np.array([value for row in shingles for value in row], np.uint32),
        ),
    )


def plan_of(texts: Sequence[bytes], prints: Fingerprints, verdicts: Sequence[Verdict]) -> Plan:
    ids = [b"id:" + text for text in texts]
    found_by = prefixes(prints.shingles, prints.short, 0.5)
    return Plan(ids, verdicts, prints.bits, prints.near, found_by, prints.digests, prints.hashes)


class Records:
    """A target that counts what is asked of it."""

    def __init__(self, cache_bytes: int = 0) -> None:
        self.there: dict[bytes, bytes] = {}
        self.asked: list[list[bytes]] = []
        self.keepers = Keepers(64, 3, cache_bytes, Recollection(self._fetch, prints_of))

    def keep(self, *texts: bytes, near: bool = True) -> None:
        """Admit texts as keepers, each under the id `id:<text>`."""
        self.admit(texts, [UNIQUE] * len(texts), near)
        self.there |= {b"id:" + text: text for text in texts}

    def admit(self, texts: Sequence[bytes], verdicts: Sequence[Verdict], near: bool = True) -> None:
        prints = prints_of(texts, near)
        self.keepers.admit(plan_of(texts, prints, verdicts), prints.shingles)

    def _fetch(self, ids: Sequence[bytes]) -> dict[bytes, bytes]:
        self.asked.append(list(ids))
        return {raw_id: self.there[raw_id] for raw_id in ids if raw_id in self.there}


def test_only_unique_records_are_taken_in() -> None:
    records = Records()
    records.admit([b"a", b"b", b"c"], [UNIQUE, UNJUDGED, COPY])
    assert len(records.keepers) == 1
    assert records.keepers.with_text(digests([b"a", b"b", b"c"])).tolist() == [0, -1, -1]


def test_ordinals_count_the_keepers_in_the_order_of_decision() -> None:
    records = Records()
    records.admit([b"a", b"b", b"c"], [UNIQUE, UNJUDGED, UNIQUE])
    records.admit([b"d", b"e"], [COPY, UNIQUE])
    assert [records.keepers.id(ordinal) for ordinal in range(3)] == [b"id:a", b"id:c", b"id:e"]


def test_a_near_keeper_is_found_by_its_ordinal_among_all_keepers() -> None:
    records = Records()
    records.keep(b"poor", near=False)
    records.keep(b"abcdefg")
    found = records.keepers.near(np.array([[0b111]], np.uint64))
    assert (found.positions.tolist(), found.distances.tolist()) == ([1], [0])


def test_a_poor_text_is_found_as_the_same_text_and_never_as_near() -> None:
    records = Records()
    records.keep(b"poor", near=False)
    assert records.keepers.with_text(digests([b"poor"])).tolist() == [0]
    assert records.keepers.near(np.array([[4]], np.uint64)).positions.size == 0


def test_no_keepers_and_no_questions_are_fine() -> None:
    keepers = Records().keepers
    assert keepers.near(np.zeros((2, 1), np.uint64)).offsets.tolist() == [0, 0, 0]
    assert keepers.near(np.zeros((0, 1), np.uint64)).offsets.tolist() == [0]
    assert keepers.with_text(digests([])).tolist() == []
    assert keepers.shingles([]) == {}


def test_recent_keepers_are_not_asked_for() -> None:
    records = Records(cache_bytes=1 << 10)
    records.keep(b"ab", b"cd")
    assert {ordinal: row.tolist() for ordinal, row in records.keepers.shingles([0, 1]).items()} == {
        0: [97, 98],
        1: [99, 100],
    }
    assert records.asked == []


def test_the_others_are_asked_for_at_once_and_each_once() -> None:
    records = Records()
    records.keep(b"ab", b"cd")
    assert set(records.keepers.shingles([0, 1, 0])) == {0, 1}
    assert records.asked == [[b"id:ab", b"id:cd"]]


def test_what_was_recalled_is_remembered() -> None:
    records = Records(cache_bytes=8 + ENTRY)  # room for one
    records.keep(b"ab", b"cd")
    records.keepers.shingles([0])
    records.keepers.shingles([0])
    assert records.asked == [[b"id:ab"]]


def test_a_keeper_that_is_gone_or_has_another_text_is_left_out() -> None:
    records = Records()
    records.keep(b"ab", b"cd", b"ef")
    del records.there[b"id:ab"]
    records.there[b"id:cd"] = b"changed"
    assert set(records.keepers.shingles([0, 1, 2])) == {2}


def test_a_keeper_that_took_over_the_text_of_another_is_left_out() -> None:
    records = Records()
    records.keep(b"ab", b"cd")
    records.there[b"id:cd"] = b"ab"
    assert set(records.keepers.shingles([0, 1])) == {0}


def test_all_gone_is_no_error() -> None:
    records = Records()
    records.keep(b"ab")
    records.there.clear()
    assert records.keepers.shingles([0]) == {}


def test_the_shingles_that_are_remembered_do_not_hold_the_whole_batch_in_memory() -> None:
    """A view of the recalled batch's array keeps all of it: the bound in bytes would bound nothing."""
    records = Records(cache_bytes=12)
    records.keep(b"abc", bytes(range(200)))
    records.keepers.shingles([1, 0])
    kept = records.keepers.shingles([0])[0]
    assert kept.base is None or kept.base.nbytes <= kept.nbytes


def test_admitting_without_shingles_recalls_them_later() -> None:
    records = Records(cache_bytes=1 << 10)
    prints = prints_of([b"ab"])
    records.keepers.admit(plan_of([b"ab"], prints, [UNIQUE]))
    records.there[b"id:ab"] = b"ab"
    assert records.keepers.shingles([0])[0].tolist() == [97, 98]


OBJECT_IDS = st.binary(min_size=12, max_size=12).map(lambda value: encode({"_id": ObjectId(value)}))
LOOKALIKES = st.binary(min_size=22, max_size=22)
RAW_IDS = st.lists(OBJECT_IDS | LOOKALIKES | st.binary(min_size=1, max_size=40), max_size=6)


@given(st.lists(RAW_IDS, max_size=5))
def test_ids_come_back_as_they_went_in(chunks: list[list[bytes]]) -> None:
    ids = Ids()
    for chunk in chunks:
        ids.extend(RawIds.of(chunk))
    flat = [raw_id for chunk in chunks for raw_id in chunk]
    assert len(ids) == len(flat)
    assert [ids[ordinal] for ordinal in range(len(ids))] == flat


def test_an_object_id_takes_little_more_than_twelve_bytes() -> None:
    ids = Ids()
    for first in range(0, 50_000, 5_000):
        chunk = [encode({"_id": ObjectId(b"%012d" % number)}) for number in range(first, first + 5_000)]
        ids.extend(RawIds.of(chunk))
    assert ids.nbytes / len(ids) < 12.5


@given(st.lists(RAW_IDS.map(RawIds.of), max_size=3), st.data())
def test_some_of_the_ids_are_taken(chunks: list[RawIds], data: st.DataObject) -> None:
    for ids in chunks:
        flat = list(ids)
        rows = data.draw(st.lists(st.integers(0, len(flat) - 1), max_size=4)) if flat else []
        assert list(ids.take(np.array(rows, np.intp))) == [flat[row] for row in rows]
        start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(flat))] * 2)))
        assert ids.between(start, stop).joined.tobytes() == b"".join(flat[start:stop])


@given(st.lists(st.lists(st.integers(0, 3), max_size=5)))
def test_ordinals_are_remembered_from_where_they_differ(gaps: list[list[int]]) -> None:
    ordinals, expected = Ordinals(), []
    for chunk in gaps:
        last = expected[-1] if expected else -1
        new = [last + place + sum(chunk[: place + 1]) + 1 for place in range(len(chunk))]
        ordinals.extend(np.array(new, np.int64))
        expected += new
    assert ordinals.of(np.arange(len(expected), dtype=np.uint32)).tolist() == expected
    assert (ordinals.nbytes == 0) == (expected == list(range(len(expected))))


def test_what_is_restored_as_columns_is_what_is_admitted_as_a_plan() -> None:
    admitted, restored = Records(), Records()
    texts = [bytes([97 + number % 7]) * (1 + number % 60) for number in range(400)]
    for first in range(0, 400, 50):
        chunk = texts[first : first + 50]
        prints = prints_of(chunk, near=bool(first % 100))
        verdicts = [(UNIQUE, UNJUDGED, COPY)[number % 3] for number in range(50)]
        plan = plan_of(chunk, prints, verdicts)
        admitted.keepers.admit(plan, prints.shingles)
        restored.keepers.restore(plan.kept)
        assert list(plan.kept.ids) == [plan.ids[row] for row in plan.rows(Action.UNIQUE)]
    asked = prints_of(texts)
    one, other = admitted.keepers, restored.keepers
    assert len(one) == len(other) == 136
    assert [one.id(ordinal) for ordinal in range(136)] == [other.id(ordinal) for ordinal in range(136)]
    assert (one.with_text(asked.digests) == other.with_text(asked.digests)).all()
    for column in ("offsets", "positions", "distances"):
        assert np.array_equal(getattr(one.near(asked.bits), column), getattr(other.near(asked.bits), column))
    found_by = prefixes(asked.shingles, np.ones(400, bool), 0.5)
    owners = one.owners(found_by.values)
    assert len(owners.values)
    assert [row.tolist() for row in owners] == [row.tolist() for row in other.owners(found_by.values)]
    assert one.parts == other.parts


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
