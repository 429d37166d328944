from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dedup_job.fingerprint.recipe import Matching
from dedup_job.index import candidate_index
from dedup_job.index.keepers import KeeperRef, KeeperRefetch, Keepers
from dedup_job.index.key_map_search import NO_DISTANCE
from dedup_job.mongo.ids import IdSet
from dedup_job.native.arrays import Ragged
from dedup_job.pipeline.job import AdoptedIds, KeepFirst, add_keepers, decide, make_plan
from dedup_job.records import (
    UNIQUE,
    Action,
    Batch,
    Counts,
    Fingerprints,
    KeeperMatch,
    Plan,
    RawIds,
    Verdict,
    digests,
)
from tests.support.recipes import PLAIN
from tests.support.reference_index import Bounds, Sieved, candidates, columns

BOUNDS = Bounds()


@dataclass(frozen=True)
class Text:
    """What a worker would say of one text."""

    name: str
    bits: int = 0
    shingles: frozenset[int] = frozenset({1})
    near: bool = True
    keys: tuple[int, ...] = (0,)
    reason: str = ""

    @property
    def sieved(self) -> Sieved:
        return Sieved(self.bits if self.near else None, self.keys)


def matching(radius: int = 3, min_similarity: float = 0.0, band_radius: int = 16) -> Matching:
    return replace(
        PLAIN.matching, radius=radius, bands=1, band_radius=band_radius, min_similarity=min_similarity
    )


def prints_of(texts: Sequence[Text], words: int = 1) -> Fingerprints:
    shingles = [sorted(text.shingles) for text in texts]
    bits, near, keys = columns([text.sieved for text in texts], 64 * words, 1)
    names = digests(text.name.encode() for text in texts)
    names[[bool(text.reason) for text in texts]] = 0
    return Fingerprints(
        reasons=[text.reason for text in texts],
        bits=bits,
        has_fingerprint=near,
        keys=keys,
        digests=names,
        hashes=digests(text.name.encode() for text in texts),
        shingles=Ragged(
            np.cumsum([0, *map(len, shingles)], dtype=np.int64),
            np.array([value for row in shingles for value in row], np.uint32),
        ),
        partial=np.zeros(len(texts), np.bool_),
    )


class World:
    """A source of texts, a target, and the keepers between them; record i has the id b"i"."""

    def __init__(
        self, matching: Matching, cache_bytes: int = 1 << 20, bits: int = 64, bounds: Bounds = BOUNDS
    ) -> None:
        self.matching, self.words = matching, bits // 64
        self.target: dict[bytes, Text] = {}
        recipe = replace(PLAIN, bits=bits, matching=matching)
        with mock.patch.multiple(candidate_index, LISTED=bounds.listed, FOUND=bounds.found):
            self.keepers = Keepers(recipe, cache_bytes, KeeperRefetch(self._fetch, self._fingerprint))
        self.verdicts: list[Verdict] = []
        self._named: dict[bytes, Text] = {}

    def decide(self, *texts: Text, held: Collection[int] = ()) -> list[Verdict]:
        """Decide one batch and carry it out; the target has held records with these numbers before."""
        ids = [b"%d" % (len(self.verdicts) + row) for row in range(len(texts))]
        prints = prints_of(texts, self.words)
        entered = self.keepers.add_texts(RawIds.of(ids), prints)
        there = AdoptedIds({b"%d" % number for number in held})
        verdicts = decide(ids, prints, entered.texts, self.matching, self.keepers, there).verdicts
        plan = make_plan(Batch(ids, ids), prints, verdicts)
        add_keepers(plan, entered, prints, self.keepers)
        self.target |= {ids[row]: texts[row] for row in plan.rows(Action.UNIQUE)}
        self.verdicts += verdicts
        return verdicts

    def _fetch(self, ids: Sequence[bytes]) -> Iterator[Mapping[bytes, bytes]]:
        found = {raw_id: self.target[raw_id] for raw_id in ids if raw_id in self.target}
        self._named |= {text.name.encode(): text for text in found.values()}
        for raw_id, text in found.items():
            yield {raw_id: text.name.encode()}

    def _fingerprint(self, raws: Sequence[bytes]) -> Fingerprints:
        return prints_of([self._named[raw] for raw in raws], self.words)


def exact(keeper: int) -> Verdict:
    return Verdict(Action.DUPLICATE, "exact", KeeperMatch(b"%d" % keeper, 0, 1.0))


def near(keeper: int, distance: int | None, similarity: float | None = None) -> Verdict:
    return Verdict(Action.DUPLICATE, "near", KeeperMatch(b"%d" % keeper, distance, similarity))


def keep_first(
    records: Sequence[Text], matching: Matching, bits: int, bounds: Bounds = BOUNDS
) -> list[Verdict]:
    """The contract, one record and one candidate at a time."""
    texts = list(dict.fromkeys(text for text in records if not text.reason))
    found = candidates([text.sieved for text in texts], matching, bits, bounds)
    kept: dict[Text, int] = {}
    verdicts = []
    for number, text in enumerate(records):
        if text.reason:
            verdicts.append(Verdict(Action.UNCHECKED, text.reason))
        elif text in kept:
            verdicts.append(exact(kept[text]))
        else:
            near_texts = [(distance, texts[other]) for distance, other in found[texts.index(text)]]
            verdicts.append(_compared(text, near_texts, kept, matching))
            if verdicts[-1] is UNIQUE:
                kept[text] = number
    return verdicts


def _compared(
    text: Text, found: Sequence[tuple[int, Text]], kept: Mapping[Text, int], matching: Matching
) -> Verdict:
    for distance, other in found:
        union = other.shingles | text.shingles
        similarity = len(other.shingles & text.shingles) / len(union) if union else 0.0
        if other in kept and similarity >= matching.min_similarity:
            known = None if distance == NO_DISTANCE else distance
            return near(kept[other], known, similarity if matching.min_similarity else None)
    return UNIQUE


@st.composite
def streams(draw: st.DrawFn, bits: int) -> list[Text]:
    """Records whose texts crowd around few centres, with repeats, poor texts and unchecked ones."""
    centres = draw(st.lists(st.integers(0, 2**bits - 1), min_size=1, max_size=3))
    texts = []
    for number in range(draw(st.integers(1, 12))):
        flips = draw(st.sets(st.integers(0, 7) | st.integers(0, bits - 1), max_size=4))
        value = draw(st.sampled_from(centres)) ^ sum(1 << bit for bit in flips)
        shingles = draw(st.frozensets(st.integers(0, 4), max_size=5))
        kind, key = draw(st.integers(0, 9)), draw(st.integers(0, 3))
        texts.append(
            Text(f"t{number}", value, shingles, kind not in (0, 2), (key,), "empty" if kind == 1 else "")
        )
    return draw(st.lists(st.sampled_from(texts), min_size=1, max_size=30))


@pytest.mark.parametrize("bits", [64, 128])
@pytest.mark.parametrize("cache_bytes", [0, 400, 1 << 20])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_verdicts_are_those_of_keep_first_whatever_the_batches_and_however_crowded_the_keys(
    bits: int, cache_bytes: int, data: st.DataObject
) -> None:
    records = data.draw(streams(bits))
    radius, least = data.draw(st.integers(0, 8)), data.draw(st.sampled_from([0.0, 0.3, 0.5, 1.0]))
    rule = matching(radius, least, data.draw(st.sampled_from([2, 16])))
    bounds = Bounds(data.draw(st.sampled_from([1, 2, 256])), data.draw(st.sampled_from([1, 2, 32])))
    world = World(rule, cache_bytes, bits, bounds)
    start = 0
    while start < len(records):
        stop = start + data.draw(st.integers(1, 8))
        world.decide(*records[start:stop])
        start = stop
    assert world.verdicts == keep_first(records, rule, bits, bounds)


A, B, C = Text("a", 0b000), Text("b", 0b011), Text("c", 0b111100)
BATCHES = pytest.mark.parametrize(
    "split", [lambda *t: [t], lambda *t: [(one,) for one in t]], ids=["one batch", "one each"]
)
Split = Callable[..., Iterable[Sequence[Text]]]


def decided(world: World, split: Split, *texts: Text) -> list[Verdict]:
    for batch in split(*texts):
        world.decide(*batch)
    return world.verdicts


@BATCHES
def test_a_chain_never_drops_its_end_for_its_beginning(split: Split) -> None:
    a, b, c = Text("a", 0b0), Text("b", 0b11), Text("c", 0b1111)
    assert decided(World(matching(radius=2)), split, a, b, c) == [UNIQUE, near(0, 2), UNIQUE]


@BATCHES
def test_a_kept_record_is_found_by_the_next_one_at_once(split: Split) -> None:
    """A fault of the seeds: a new record was not added to a bucket that was there already."""
    a, b, c = Text("a", 0xFF_0000), Text("b", 0x00_FF00_0000), Text("c", 0x00_FF00_0001)
    assert decided(World(matching(radius=3)), split, a, b, c) == [UNIQUE, UNIQUE, near(1, 1)]


@BATCHES
@pytest.mark.parametrize("segment", range(4))
def test_each_of_the_four_segments_finds_alone(split: Split, segment: int) -> None:
    """A fault of the seeds: the slice `i*16:i*(i+1)*16` gave every record the same first key."""
    others = sum(1 << (16 * other) for other in range(4) if other != segment)
    a, b = Text("a", 0x1234 << 16 * segment), Text("b", 0x1234 << 16 * segment | others)
    assert decided(World(matching(radius=3)), split, a, b) == [UNIQUE, near(0, 3)]


@BATCHES
def test_the_same_text_is_an_exact_duplicate(split: Split) -> None:
    a = Text("a", 7)
    assert decided(World(matching()), split, a, a, a) == [UNIQUE, exact(0), exact(0)]


@BATCHES
def test_a_copy_of_a_near_duplicate_has_the_same_keeper(split: Split) -> None:
    a, b = Text("a", 0), Text("b", 1)
    assert decided(World(matching()), split, a, b, b) == [UNIQUE, near(0, 1), near(0, 1)]


@BATCHES
def test_a_copy_of_a_near_duplicate_goes_to_a_keeper_that_is_nearer_by_now(split: Split) -> None:
    """`later` is too far from `first` to be dropped, and the second `b` is nearer to it."""
    first, b, later = Text("first", 0b0), Text("b", 0b11), Text("later", 0b111)
    verdicts = decided(World(matching(radius=2)), split, first, b, later, b)
    assert verdicts == [UNIQUE, near(0, 2), UNIQUE, near(2, 1)]


def test_a_copy_of_a_near_duplicate_is_kept_when_the_keeper_is_gone() -> None:
    a, b = Text("a", 0b0), Text("b", 0b11)
    world = World(matching())
    world.decide(a, b)
    world.keepers.mark_missing([KeeperRef(0, b"0")])
    assert world.decide(b, b) == [UNIQUE, exact(2)]
    assert world.decide(b) == [exact(2)]


@BATCHES
def test_ties_go_to_the_earliest_keeper(split: Split) -> None:
    left, right, between = Text("left", 0b0011), Text("right", 0b1100), Text("between", 0b0110)
    assert decided(World(matching(radius=2)), split, right, left, between)[2] == near(0, 2)


def test_a_tie_between_an_older_batch_and_this_one_goes_to_the_older() -> None:
    world = World(matching(radius=2))
    world.decide(Text("left", 0b0011))
    assert world.decide(Text("right", 0b1100), Text("between", 0b0110)) == [UNIQUE, near(0, 2)]


@BATCHES
def test_the_nearest_keeper_wins_over_earlier_ones(split: Split) -> None:
    a, b, c = Text("a", 0b0), Text("b", 0b1111), Text("c", 0b1110)
    assert decided(World(matching(radius=3)), split, a, b, c)[2] == near(1, 1)


@BATCHES
def test_the_nearest_keeper_that_shares_enough_text_wins(split: Split) -> None:
    a = Text("a", 0b0, frozenset({1, 2, 3, 4}))
    b = Text("b", 0b1111, frozenset({9}))
    c = Text("c", 0b1110, frozenset({1, 2, 3}))
    assert decided(World(matching(radius=3, min_similarity=0.75)), split, a, b, c)[2] == near(0, 3, 0.75)


@BATCHES
def test_near_fingerprints_of_unlike_texts_do_not_match(split: Split) -> None:
    a, b = Text("a", 0, frozenset({1, 2})), Text("b", 0, frozenset({2, 3}))
    assert decided(World(matching(min_similarity=0.5)), split, a, b) == [UNIQUE, UNIQUE]


@BATCHES
def test_a_text_with_too_few_terms_matches_an_exact_copy_alone(split: Split) -> None:
    poor, other, rich = Text("poor", near=False), Text("other", near=False), Text("rich", 0)
    verdicts = decided(World(matching()), split, poor, other, rich, poor)
    assert verdicts == [UNIQUE, UNIQUE, UNIQUE, exact(0)]


@BATCHES
def test_a_text_without_a_fingerprint_goes_to_the_first_of_its_bands_that_is_similar_enough(
    split: Split,
) -> None:
    sets = [frozenset({1, 2, 9}), frozenset({1, 2, 3, 4, 8}), frozenset({1, 2, 3, 4})]
    texts = [Text(str(number), 0, shingles, False, (7,)) for number, shingles in enumerate(sets)]
    assert decided(World(matching(min_similarity=0.6)), split, *texts) == [UNIQUE, UNIQUE, near(1, None, 0.8)]


@BATCHES
def test_a_shared_band_makes_a_match_beyond_the_radius(split: Split) -> None:
    a, b = Text("a", 0, frozenset({1, 2}), keys=(7,)), Text("b", 0xFF, frozenset({1, 2}), keys=(7,))
    assert decided(World(matching(min_similarity=0.9)), split, a, b) == [UNIQUE, near(0, 8, 1.0)]
    assert decided(World(matching(min_similarity=0.9, band_radius=7)), split, a, b) == [UNIQUE, UNIQUE]


@BATCHES
def test_what_cannot_be_judged_is_passed_and_matches_nothing(split: Split) -> None:
    empty = Text("", reason="empty")
    verdicts = decided(World(matching()), split, empty, empty, Text("a", 0), empty)
    assert [verdict.action for verdict in verdicts] == [
        Action.UNCHECKED,
        Action.UNCHECKED,
        Action.UNIQUE,
        Action.UNCHECKED,
    ]
    assert {verdict.reason for verdict in verdicts} == {"empty", ""}


LIKE = (Text("a", 0, frozenset({1, 2, 3})), Text("b", 1, frozenset({1, 2, 3, 4})))


def test_a_keeper_that_vanished_stands_for_nothing() -> None:
    world = World(matching(min_similarity=0.5), cache_bytes=0)
    world.decide(LIKE[0])
    world.target.clear()
    assert world.decide(LIKE[1]) == [UNIQUE]


def test_a_keeper_that_has_another_text_now_stands_for_nothing() -> None:
    world = World(matching(min_similarity=0.5), cache_bytes=0)
    world.decide(LIKE[0])
    world.target[b"0"] = Text("edited", 0, frozenset({1, 2, 3}))
    assert world.decide(LIKE[1]) == [UNIQUE]


def test_a_keeper_that_is_still_there_is_recalled() -> None:
    world = World(matching(min_similarity=0.5), cache_bytes=0)
    world.decide(LIKE[0])
    assert world.decide(LIKE[1]) == [near(0, 1, 0.75)]


def test_an_empty_batch_has_no_verdicts() -> None:
    world = World(matching(min_similarity=0.5))
    world.decide(A)
    assert world.decide() == []


@dataclass(frozen=True)
class Lacking:
    """A target that lacks some records, and has no others."""

    absent: Callable[[Iterable[bytes]], set[bytes]] = lambda ids: set()

    def conflicting(self, records: Iterable[bytes]) -> set[bytes]:
        return set()


def fingerprinted(batches: Iterable[Batch], texts: Iterable[Text]) -> Iterator[tuple[Batch, Fingerprints]]:
    names = {text.name.encode(): text for text in texts}
    for batch in batches:
        yield batch, prints_of([names[raw] for raw in batch.raws])


def ran(commit: Callable[[Plan, Sequence[bytes]], Plan]) -> tuple[Counts, list[Plan]]:
    """Run a job of two batches: a b, a c."""
    world, seen = World(matching(radius=3)), []
    batches = [Batch([b"0", b"1"], [b"a", b"b"]), Batch([b"2", b"3"], [b"a", b"c"])]
    decider = KeepFirst(world.matching, world.keepers, Lacking())
    return decider.decide_batches(fingerprinted(batches, (A, B, C)), commit, seen.append), seen


def test_a_run_counts_and_shows_every_plan() -> None:
    counts, seen = ran(lambda plan, _: plan)
    assert counts == Counts(unique=2, exact=1, near=1)
    assert [list(plan.ids) for plan in seen] == [[b"0", b"1"], [b"2", b"3"]]


def test_a_run_goes_on_from_the_plan_as_it_ended() -> None:
    """The target refuses the first record: its duplicate is promoted, and stands for later ones."""
    refused = Verdict(Action.REFUSED, "validator")
    counts, seen = ran(lambda plan, _: plan.without({0: refused} if plan.ids[0] == b"0" else {}))
    assert seen[0].verdicts == [refused, UNIQUE]
    assert seen[1].verdicts[0] == near(1, 2)
    assert counts.refused == {"validator": 1}
    assert counts.read == 4


def test_keepers_that_are_gone_are_looked_for_until_all_that_stand_are_there() -> None:
    """`between` is near both; when the first is found to be gone the second is asked for, and is gone too."""
    left, right, between = Text("left", 0b0), Text("right", 0b111100), Text("between", 0b1100)
    world, asked = World(matching(radius=2)), []

    def absent(ids: Iterable[bytes]) -> set[bytes]:
        asked.append(set(ids))
        return set(ids)

    batches = [Batch([b"0", b"1"], [b"left", b"right"]), Batch([b"2"], [b"between"])]
    seen: list[Plan] = []
    decider = KeepFirst(world.matching, world.keepers, Lacking(absent))
    texts = fingerprinted(batches, (left, right, between))
    decider.decide_batches(texts, lambda plan, _: plan, seen.append)
    assert [ids for ids in asked if ids] == [{b"0"}, {b"1"}]
    assert seen[1].verdicts == [UNIQUE]


def test_a_commit_gets_the_raw_records_of_its_plan() -> None:
    given_raws: list[Sequence[bytes]] = []

    def commit(plan: Plan, raws: Sequence[bytes]) -> Plan:
        given_raws.append(raws)
        return plan

    ran(commit)
    assert given_raws == [[b"a", b"b"], [b"a", b"c"]]


def test_an_id_that_the_target_held_before_is_never_dropped_and_its_text_still_stands() -> None:
    world = World(matching())
    world.decide(Text("a", bits=0))
    texts = [Text("a", bits=0), Text("b", bits=1), Text("c", reason="empty"), Text("a", bits=0)]
    verdicts = world.decide(*texts, held=[1, 2, 3])
    assert verdicts == [UNIQUE, UNIQUE, Verdict(Action.UNCHECKED, "empty"), exact(0)]


class Foreign:
    """A target that others filled, its adopted records the keepers, and a source of the records to decide.

    A record is its id, the name of its text, and what tells it from others with the same text.
    """

    def __init__(self, texts: Collection[Text], rule: Matching, adopted: Mapping[int, str]) -> None:
        self.named = {text.name: text for text in texts}
        self.matching = rule
        self.target = records(adopted)
        self.held = set(self.target)
        older = KeeperRefetch(self._fetch, self._fingerprint)
        self.keepers = Keepers(replace(PLAIN, matching=rule), 0, older)
        entered = self.keepers.add_texts(RawIds.of(self.target), self._fingerprint([*self.target.values()]))
        self.keepers.keep(entered, np.ones(len(adopted), np.bool_), [*self.target])
        self.verdicts: dict[int, Verdict] = {}

    def change(self, lost: Collection[int], edited: Mapping[int, str]) -> None:
        """Let others delete and edit records of the target."""
        self.target |= {raw_id: raw for raw_id, raw in records(edited).items() if raw_id in self.target}
        for number in lost:
            self.target.pop(b"%d" % number, None)

    def run(self, source: Mapping[int, str], size: int) -> None:
        """Decide so many records of the source at a time, and hold every plan to the promise."""
        ids, raws = [*records(source)], [*records(source).values()]
        batches = [Batch(ids[at : at + size], raws[at : at + size]) for at in range(0, len(ids), size)]
        self.source = dict(zip(ids, raws, strict=True))
        decider = KeepFirst(self.matching, self.keepers, self, IdSet.of([self.held]))
        fingerprinted = ((batch, self._fingerprint(batch.raws)) for batch in batches)
        decider.decide_batches(fingerprinted, self._commit, self._observe)

    def absent(self, ids: Iterable[bytes]) -> set[bytes]:
        return set(ids) - self.target.keys()

    def conflicting(self, records: Iterable[bytes]) -> set[bytes]:
        named = {raw.split()[0]: raw for raw in records}
        return {raw_id for raw_id, raw in named.items() if self.target.get(raw_id, raw) != raw}

    def _commit(self, plan: Plan, raws: Sequence[bytes]) -> Plan:
        refused = {}
        for row in plan.rows(Action.UNIQUE, Action.UNCHECKED):
            if self.target.setdefault(plan.ids[row], raws[row]) != raws[row]:
                refused[row] = Verdict(Action.REFUSED, "conflict")
        return self._commit(plan.without(refused), raws) if refused else plan

    def _observe(self, plan: Plan) -> None:
        for raw_id, verdict in zip(plan.ids, plan.verdicts, strict=True):
            self.verdicts[int(raw_id)] = verdict
            if verdict.match is not None:
                there = self.target[verdict.match.keeper]
                assert verdict.reason != "exact" or self._text(there) == self._text(self.source[raw_id])

    def _text(self, raw: bytes) -> Text:
        return self.named[raw.split()[1].decode()]

    def _fetch(self, ids: Sequence[bytes]) -> Iterator[Mapping[bytes, bytes]]:
        for raw_id in ids:
            if raw_id in self.target:
                yield {raw_id: self.target[raw_id]}

    def _fingerprint(self, raws: Sequence[bytes]) -> Fingerprints:
        return prints_of([self._text(raw) for raw in raws])


def records(texts: Mapping[int, str]) -> dict[bytes, bytes]:
    return {b"%d" % number: b"%d %s" % (number, text.encode()) for number, text in texts.items()}


SIZES = pytest.mark.parametrize("size", [1, 2, 3])
CONFLICT = Verdict(Action.REFUSED, "conflict")


def verdicts_of(
    adopted: Mapping[int, str], lost: Collection[int], source: Mapping[int, str], size: int
) -> Any:
    world = Foreign((A, B, C), matching(radius=2), adopted)
    world.change(lost, {})
    world.run(source, size)
    return world.verdicts


@SIZES
def test_an_adopted_record_that_came_again_with_another_text_stands_for_that_one_alone(size: int) -> None:
    verdicts = verdicts_of({0: "a"}, [0], {0: "c", 1: "a", 2: "c"}, size)
    assert verdicts == {0: UNIQUE, 1: UNIQUE, 2: exact(0)}


@SIZES
def test_an_adopted_record_that_came_again_with_its_text_stands_after_those_before_it(size: int) -> None:
    verdicts = verdicts_of({1: "a"}, [1], {0: "a", 1: "a again", 2: "b"}, size)
    assert verdicts == {0: UNIQUE, 1: UNIQUE, 2: near(0, 2)}


@SIZES
def test_an_adopted_record_stands_though_the_source_has_another_one_of_its_id(size: int) -> None:
    """The text of the other one stands for nothing: it is nowhere in the target."""
    verdicts = verdicts_of({0: "a"}, [], {0: "c", 1: "a", 2: "b", 3: "c"}, size)
    assert verdicts == {0: CONFLICT, 1: exact(0), 2: near(0, 2), 3: UNIQUE}


@SIZES
def test_an_adopted_record_that_others_edit_does_not_stand_for_what_it_was(size: int) -> None:
    world = Foreign((A, B, C), matching(), {0: "a"})
    world.change([], {0: "c"})
    world.run({1: "a", 2: "a"}, size)
    assert world.verdicts == {1: UNIQUE, 2: exact(1)}


@SIZES
def test_where_an_adopted_record_is_gone_another_with_its_text_is_compared(size: int) -> None:
    world = Foreign(LIKE, matching(min_similarity=0.5), {0: "a", 1: "a"})
    world.change([0], {})
    world.run({2: "b", 3: "a"}, size)
    assert world.verdicts == {2: near(1, 1, 0.75), 3: exact(1)}


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_adopted_records_give_the_same_verdicts_whatever_the_batches(data: st.DataObject) -> None:
    """Some are deleted or edited before the run, and some are in the source: alike, changed, of another text.

    Every plan is held to the promise as it is carried out.
    """
    texts = [A, *{text.name: text for text in data.draw(streams(64)) if not text.reason}.values()]
    kinds = st.sampled_from([f"{text.name}{more}" for text in texts for more in ("", " other")])
    drawn = st.dictionaries(st.integers(0, 8), kinds, max_size=6)
    adopted, source, edited = data.draw(drawn), dict(sorted(data.draw(drawn).items())), data.draw(drawn)
    lost = data.draw(st.sets(st.integers(0, 8), max_size=3))
    rule = matching(data.draw(st.integers(0, 8)), data.draw(st.sampled_from([0.0, 0.3, 1.0])))
    outcomes = []
    for size in (1, 2, 9):
        world = Foreign(texts, rule, adopted)
        world.change(lost, edited)
        world.run(source, size)
        outcomes.append((world.verdicts, world.target))
    assert outcomes[1:] == outcomes[:1] * 2
