from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dedup_job.document import UNIQUE, Action, Batch, Counts, Fingerprints, Match, Verdict, digests
from dedup_job.fingerprint.recipe import Matching
from dedup_job.job import Job, decide, planned, run
from dedup_job.match.keepers import Keepers, Recollection
from dedup_job.plan import Plan
from dedup_job.ragged import Ragged
from tests.recipes import PLAIN


@dataclass(frozen=True)
class Text:
    """What a worker would say of one text."""

    name: str
    bits: int = 0
    shingles: frozenset[int] = frozenset({1})
    near: bool = True
    short: bool = False
    reason: str = ""


def matching(radius: int = 3, min_similarity: float = 0.0) -> Matching:
    return replace(PLAIN.matching, radius=radius, min_similarity=min_similarity)


def prints_of(texts: Sequence[Text], words: int = 1) -> Fingerprints:
    shingles = [sorted(text.shingles) for text in texts]
    values = [
        [text.bits >> 64 * word & (2**64 - 1) for word in range(words)] if text.near else [0] * words
        for text in texts
    ]
    return Fingerprints(
        reasons=[text.reason for text in texts],
        bits=np.array(values, np.uint64).reshape(-1, words),
        near=np.array([text.near and not text.reason for text in texts], bool),
        short=np.array([text.short and not text.reason for text in texts], bool),
        digests=digests(text.name.encode() for text in texts),
        hashes=digests(text.name.encode() for text in texts),
        shingles=Ragged(
            np.cumsum([0, *map(len, shingles)], dtype=np.int64),
            np.array([value for row in shingles for value in row], np.uint32),
        ),
    )


class World:
    """A source of texts, a target, and the keepers between them; record i has the id b"i"."""

    def __init__(self, matching: Matching, cache_bytes: int = 1 << 20, bits: int = 64) -> None:
        self.matching, self.words = matching, bits // 64
        self.target: dict[bytes, Text] = {}
        self.keepers = Keepers(
            bits, matching.radius, cache_bytes, Recollection(self._fetch, self._fingerprint)
        )
        self.verdicts: list[Verdict] = []
        self._named: dict[bytes, Text] = {}

    def decide(self, *texts: Text) -> list[Verdict]:
        """Decide one batch and carry it out."""
        ids = [b"%d" % (len(self.verdicts) + row) for row in range(len(texts))]
        prints = prints_of(texts, self.words)
        verdicts = decide(ids, prints, self.matching, self.keepers)
        plan = planned(Batch(ids, ids), prints, verdicts, self.matching)
        self.keepers.admit(plan, prints.shingles)
        self.target |= {ids[row]: texts[row] for row in plan.rows(Action.UNIQUE)}
        self.verdicts += verdicts
        return verdicts

    def _fetch(self, ids: Sequence[bytes]) -> Mapping[bytes, bytes]:
        found = {raw_id: self.target[raw_id] for raw_id in ids if raw_id in self.target}
        self._named |= {text.name.encode(): text for text in found.values()}
        return {raw_id: text.name.encode() for raw_id, text in found.items()}

    def _fingerprint(self, raws: Sequence[bytes]) -> Fingerprints:
        return prints_of([self._named[raw] for raw in raws], self.words)


def exact(keeper: int) -> Verdict:
    return Verdict(Action.DUPLICATE, "exact", Match(b"%d" % keeper, 0, 1.0))


def near(keeper: int, distance: int | None, jaccard: float | None = None) -> Verdict:
    return Verdict(Action.DUPLICATE, "near", Match(b"%d" % keeper, distance, jaccard))


def keep_first(texts: Sequence[Text], matching: Matching) -> list[Verdict]:
    """The contract, one record and one keeper at a time."""
    kept: list[tuple[int, Text]] = []
    verdicts = []
    for number, text in enumerate(texts):
        verdict = Verdict(Action.UNJUDGED, text.reason) if text.reason else _compared(text, kept, matching)
        if verdict is UNIQUE:
            kept.append((number, text))
        verdicts.append(verdict)
    return verdicts


def _compared(text: Text, kept: Sequence[tuple[int, Text]], matching: Matching) -> Verdict:
    same = [number for number, keeper in kept if keeper.name == text.name]
    if same:
        return exact(same[0])
    near_matches, short_matches = [], []
    for number, keeper in kept:
        distance = (keeper.bits ^ text.bits).bit_count()
        union = keeper.shingles | text.shingles
        jaccard = len(keeper.shingles & text.shingles) / len(union) if union else 0.0
        if jaccard < matching.min_similarity:
            continue
        if text.near and keeper.near and distance <= matching.radius:
            near_matches.append((distance, number, jaccard if matching.min_similarity else None))
        if text.short and keeper.short:
            short_matches.append((-jaccard, number))
    if near_matches:
        distance, number, similarity = min(near_matches)
        return near(number, distance, similarity)
    if short_matches:
        dissimilarity, number = min(short_matches)
        return near(number, None, -dissimilarity)
    return UNIQUE


@st.composite
def streams(draw: st.DrawFn, bits: int) -> list[Text]:
    """Records whose texts crowd around few centres, with repeats, poor texts and unjudged ones."""
    centres = draw(st.lists(st.integers(0, 2**bits - 1), min_size=1, max_size=3))
    texts = []
    for number in range(draw(st.integers(1, 12))):
        flips = draw(st.sets(st.integers(0, 7) | st.integers(0, bits - 1), max_size=4))
        value = draw(st.sampled_from(centres)) ^ sum(1 << bit for bit in flips)
        shingles = draw(st.frozensets(st.integers(0, 4), max_size=5))
        kind = draw(st.integers(0, 9))
        reason = "empty" if kind == 1 else ""
        texts.append(Text(f"t{number}", value, shingles, kind not in (0, 2), kind in (2, 3), reason))
    return draw(st.lists(st.sampled_from(texts), min_size=1, max_size=30))


@pytest.mark.parametrize("bits", [64, 128])
@pytest.mark.parametrize("cache_bytes", [0, 400, 1 << 20])
@settings(max_examples=60)
@given(data=st.data())
def test_verdicts_are_those_of_keep_first_whatever_the_batches(
    bits: int, cache_bytes: int, data: st.DataObject
) -> None:
    texts = data.draw(streams(bits))
    rule = matching(data.draw(st.integers(0, 8)), data.draw(st.sampled_from([0.0, 0.3, 0.5, 1.0])))
    if not rule.min_similarity:
        texts = [replace(text, short=False) for text in texts]
    world = World(rule, cache_bytes, bits)
    start = 0
    while start < len(texts):
        stop = start + data.draw(st.integers(1, 8))
        world.decide(*texts[start:stop])
        start = stop
    assert world.verdicts == keep_first(texts, rule)


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
def test_a_short_text_goes_to_the_most_similar_short_keeper(split: Split) -> None:
    texts = [frozenset({1, 2, 3, 9}), frozenset({1, 2, 3, 4, 8}), frozenset({1, 2, 3, 4})]
    short = [Text(str(number), 0, shingles, near=False, short=True) for number, shingles in enumerate(texts)]
    assert decided(World(matching(min_similarity=0.6)), split, *short) == [UNIQUE, UNIQUE, near(1, None, 0.8)]


@BATCHES
def test_what_cannot_be_judged_is_passed_and_matches_nothing(split: Split) -> None:
    empty = Text("", reason="empty")
    verdicts = decided(World(matching()), split, empty, empty, Text("a", 0), empty)
    assert [verdict.action for verdict in verdicts] == [
        Action.UNJUDGED,
        Action.UNJUDGED,
        Action.UNIQUE,
        Action.UNJUDGED,
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


class Echo:
    """An engine that knows the texts already."""

    def fingerprinted(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Fingerprints]]:
        names = {text.name.encode(): text for text in (A, B, C)}
        for batch in batches:
            yield batch, prints_of([names[raw] for raw in batch.raws])


def ran(commit: Callable[[Plan, Sequence[bytes]], Plan]) -> tuple[Counts, list[Plan]]:
    """Run a job of two batches: a b, a c."""
    world, seen = World(matching(radius=3)), []
    batches = [Batch([b"0", b"1"], [b"a", b"b"]), Batch([b"2", b"3"], [b"a", b"c"])]
    job = Job(
        batches=batches,
        engine=Echo(),
        matching=world.matching,
        keepers=world.keepers,
        absent=lambda ids: set(),
        commit=commit,
        observe=lambda _, plan: seen.append(plan),
    )
    return run(job), seen


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
    ids = [b"10", b"11", b"12", b"13"]
    verdicts = decide(ids, prints_of(texts), world.matching, world.keepers, held={b"10", b"11", b"12"})
    assert verdicts == [UNIQUE, UNIQUE, Verdict(Action.UNJUDGED, "empty"), exact(0)]
