from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import pytest

from dedup_job.records import Action, Batch, Plan, Verdict, digests
from dedup_job.spark.check_and_commit_verdicts import (
    Deviations,
    ExpectedMatch,
    ExpectedRows,
    Phase,
    commit_verdicts,
)

BATCH = 5


@dataclass
class Collection:
    """Records by number: `texts[i]` is the first record with the text of record i, -1 for one without."""

    texts: list[int]
    matching: dict[int, list[tuple[int, int]]]  # of a text: distance and number of those that match it

    @classmethod
    def drawn(cls, rng: Random, count: int = 40) -> Collection:
        texts: list[int] = []
        for number in range(count):
            firsts = [text for text in set(texts) if text >= 0]
            kind = rng.random()
            texts.append(-1 if kind < 0.1 else rng.choice(firsts) if firsts and kind < 0.4 else number)
        firsts = sorted({text for text in texts if text >= 0})
        matching: dict[int, list[tuple[int, int]]] = {text: [] for text in firsts}
        for one in firsts:
            for other in firsts:
                if other < one and rng.random() < 0.12:
                    distance = rng.randrange(4)
                    matching[one].append((distance, other))
                    matching[other].append((distance, one))
        return cls(texts, {text: sorted(near) for text, near in matching.items()})

    def keepers(
        self, gone: frozenset[int] = frozenset(), failing: frozenset[int] = frozenset()
    ) -> list[object]:
        """Say one record after the other what stands for it: a number, itself, or why it is not there.

        gone     are not read
        failing  are refused; what relied on them in their own batch becomes unique, the first of each text
        """
        standing: dict[int, int] = {}
        found: list[object] = []
        here = [number for number in range(len(self.texts)) if number not in gone]
        chunks = [[n for n in here if n // BATCH == chunk] for chunk in range(len(self.texts) // BATCH + 1)]
        for chunk in chunks:
            trial, decided = dict(standing), {}
            for number in chunk:
                decided[number] = self._keeper(number, trial)
                if decided[number] == number:
                    trial[self.texts[number]] = number
            lost, promoted = set(), {}
            for number in chunk:
                if decided[number] == number and number in failing:
                    decided[number] = "refused"
                    lost.add(number)
                elif decided[number] in lost:
                    text = self.texts[number]
                    decided[number] = promoted.setdefault(text, number)
            found += [decided[number] for number in chunk]
            standing |= {self.texts[n]: n for n in chunk if decided[n] == n}
        return found

    def _keeper(self, number: int, standing: dict[int, int]) -> object:
        text = self.texts[number]
        if text < 0:
            return "unchecked"
        candidates = [text, *(other for _, other in self.matching[text])]
        return next((standing[other] for other in candidates if other in standing), number)

    def expected(self) -> ExpectedRows:
        """What was expected for each record, when all is read and carried out."""
        found = self.keepers()
        count = len(self.texts)

        def near(text: int) -> list[ExpectedMatch]:
            return [
                ExpectedMatch(other, raw_id(other), found[other] == other, distance, 0.9, other)
                for distance, other in self.matching.get(text, [])
            ]

        column = digests(raw(number) for number in range(count))
        by_text = digests(str(text).encode() for text in self.texts)
        return ExpectedRows(
            ids=[raw_id(number) for number in range(count)],
            text=np.array(self.texts),
            is_kept=np.array([text >= 0 and found[text] == text for text in self.texts]),
            turn=np.arange(count),
            best_turn=np.array(self.texts),
            best=[raw_id(text) for text in self.texts],
            phase=np.full(count, Phase.MAIN),
            preferences=[b""] * count,
            near=[near(text) for text in self.texts],
            reasons=["" if text >= 0 else "empty" for text in self.texts],
            partial=np.zeros(count, np.bool_),
            bits=column[:, :1],
            has_fingerprint=np.ones(count, bool),
            keys=np.zeros((count, 0), np.uint32),
            digests=by_text,
            hashes=column,
        )


@dataclass
class World:
    """A source and a target: what is gone from one, what another refuses, what was taken out of it."""

    gone: frozenset[int] = frozenset()
    failing: frozenset[int] = frozenset()
    changed: frozenset[int] = frozenset()
    removed: set[bytes] = field(default_factory=set)
    plans: list[Plan] = field(default_factory=list)
    left: int = 0

    def commit_verdicts(self, rows: ExpectedRows, deviations: Deviations | None = None) -> Deviations:
        parts = [rows.take(np.arange(at, min(at + BATCH, len(rows)))) for at in range(0, len(rows), BATCH)]
        deviations = Deviations() if deviations is None else deviations
        _, self.left = commit_verdicts(
            parts, self.records, self.taken_out, self.commit, lambda *_: None, deviations
        )
        return deviations

    def records(self, ids: Sequence[bytes]) -> list[Batch]:
        there = [raw_id for raw_id in ids if number_of(raw_id) not in self.gone]
        return (
            [Batch(there, [raw(number_of(one), number_of(one) in self.changed) for one in there])]
            if there
            else []
        )

    def taken_out(self, keepers: Mapping[bytes, int]) -> set[bytes]:
        return self.removed & keepers.keys()

    def commit(self, plan: Plan, raws: Sequence[bytes], phase: Phase = Phase.MAIN) -> Plan:
        assert digests(raws).tolist() == plan.hashes.tolist()
        failed = {
            row: Verdict(Action.REFUSED, "validator")
            for row in plan.rows(Action.UNIQUE)
            if number_of(plan.ids[row]) in self.failing
        }
        while failed:
            plan = plan.without(failed)
            failed = {
                row: Verdict(Action.REFUSED, "validator")
                for row in plan.rows(Action.UNIQUE)
                if number_of(plan.ids[row]) in self.failing
            }
        self.plans.append(plan)
        return plan

    def ended(self) -> list[object]:
        return [ended for _, ended in self._ended()]

    def by_number(self) -> dict[int, object]:
        return dict(self._ended())

    def _ended(self) -> list[tuple[int, object]]:
        found: list[tuple[int, object]] = []
        for plan in self.plans:
            for raw_id, verdict in zip(plan.ids, plan.verdicts, strict=True):
                names = {
                    Action.UNIQUE: number_of(raw_id),
                    Action.REFUSED: "refused",
                    Action.UNCHECKED: "unchecked",
                }
                ended = number_of(verdict.match.keeper) if verdict.match else names[verdict.action]
                found.append((number_of(raw_id), ended))
        return found


def raw_id(number: int) -> bytes:
    return b"id %d" % number


def number_of(raw_id: bytes) -> int:
    return int(raw_id.split()[1])


def raw(number: int, is_changed: bool = False) -> bytes:
    return b"record %d %d" % (number, is_changed)


@pytest.mark.parametrize("seed", range(20))
def test_what_was_expected_is_what_deciding_in_order_gives(seed: int) -> None:
    collection, world = Collection.drawn(Random(seed)), World()
    deviations = world.commit_verdicts(collection.expected())
    assert world.ended() == collection.keepers()
    assert not deviations.standing


@pytest.mark.parametrize("seed", range(40))
def test_what_does_not_land_is_decided_around_as_in_order(seed: int) -> None:
    rng = Random(seed)
    collection = Collection.drawn(rng)
    gone = frozenset(number for number in range(40) if rng.random() < 0.1)
    world = World(gone, frozenset(number for number in range(40) if rng.random() < 0.02 * (seed % 3)))
    world.commit_verdicts(collection.expected())
    assert world.ended() == collection.keepers(gone, world.failing)


def test_a_record_that_is_another_by_now_is_copied_and_stands_for_nothing() -> None:
    collection = Collection([0, 0, 2, 0], {0: [], 2: []})
    world = World(changed=frozenset({0}))
    world.commit_verdicts(collection.expected())
    assert world.ended() == ["unchecked", 1, 2, 1]
    assert world.plans[0].verdicts[0].reason == "changed"


def test_a_keeper_that_somebody_took_out_of_the_target_stands_for_nothing() -> None:
    collection = Collection([0, 1, 2, 3, 4, 0, 6, 0], {**{n: [] for n in range(5)}, 6: [(1, 0), (2, 3)]})
    world = World(removed={raw_id(0)})
    world.commit_verdicts(collection.expected())
    assert world.ended() == [0, 1, 2, 3, 4, 5, 5, 5]


def test_a_duplicate_is_told_with_its_distance_and_similarity() -> None:
    collection, world = Collection([0, 1, 1, 0], {0: [], 1: [(3, 0)]}), World()
    world.commit_verdicts(collection.expected())
    told = [(verdict.reason, verdict.match) for verdict in world.plans[0].verdicts[1:]]
    assert [(reason, match and (match.distance, match.similarity)) for reason, match in told] == [
        ("near", (3, 0.9)),
        ("near", (3, 0.9)),
        ("exact", (0, 1.0)),
    ]


@dataclass
class Preferred(Collection):
    """Records of which a later one may be better: the one with the smaller turn."""

    turns: list[int] = field(default_factory=list)

    @classmethod
    def shuffled(cls, rng: Random) -> Preferred:
        drawn = Collection.drawn(rng)
        return cls(drawn.texts, drawn.matching, rng.sample(range(len(drawn.texts)), len(drawn.texts)))

    @property
    def best(self) -> dict[int, int]:
        """The best record of each text."""
        worst_first = sorted(range(len(self.texts)), key=lambda number: -self.turns[number])
        return {self.texts[number]: number for number in worst_first if self.texts[number] >= 0}

    def kept(self, without: frozenset[int] = frozenset()) -> set[int]:
        """Say what keep-first keeps of the records, best first."""
        kept: dict[int, int] = {}
        for number in sorted(set(range(len(self.texts))) - without, key=self.turns.__getitem__):
            text = self.texts[number]
            if text >= 0 and kept.keys().isdisjoint([text, *(other for _, other in self.matching[text])]):
                kept[text] = number
        return set(kept.values())

    def verdicts(self) -> list[ExpectedRows]:
        """What is expected, in batches of one phase: first of the records that are kept."""
        best, kept = self.best, self.kept()

        def near(text: int) -> list[ExpectedMatch]:
            return [
                ExpectedMatch(
                    other, raw_id(best[other]), best[other] in kept, distance, 0.9, self.turns[best[other]]
                )
                for distance, other in self.matching.get(text, [])
            ]

        is_last = np.array([text >= 0 and number not in kept for number, text in enumerate(self.texts)])
        found = replace(
            self.expected(),
            turn=np.array(self.turns),
            best_turn=np.array([self.turns[best[text]] if text >= 0 else -1 for text in self.texts]),
            best=[raw_id(best.get(text, 0)) for text in self.texts],
            is_kept=np.array([best.get(text) in kept for text in self.texts]),
            phase=np.where(is_last, Phase.DUPLICATES, Phase.MAIN),
            near=[near(text) for text in self.texts],
        )
        return [found.take(np.flatnonzero(is_last == last)) for last in (False, True)]


@pytest.mark.parametrize("seed", range(40))
def test_with_prefer_each_duplicate_gets_the_nearest_better_keeper(seed: int) -> None:
    collection, world = Preferred.shuffled(Random(seed)), World()
    for rows in collection.verdicts():
        world.commit_verdicts(rows)
    ended = world.by_number()
    assert ended.keys() == set(range(len(collection.texts)))
    assert {number for number, keeper in ended.items() if keeper == number} == collection.kept()
    for number, keeper in ended.items():
        text = collection.texts[number]
        if text >= 0 and keeper != number:
            matching = [text, *(other for _, other in collection.matching[text])]
            better = [
                collection.best[other]
                for other in matching
                if collection.best[other] in collection.kept()
                and collection.turns[collection.best[other]] < collection.turns[number]
            ]
            assert keeper == better[0]


@pytest.mark.parametrize("seed", range(40))
def test_with_prefer_a_duplicate_without_a_keeper_is_left_to_a_local_run(seed: int) -> None:
    rng = Random(seed)
    collection = Preferred.shuffled(rng)
    gone = frozenset(number for number in range(40) if rng.random() < 0.1)
    world = World(gone, failing=frozenset(number for number in range(40) if rng.random() < 0.05))
    deviations, left = Deviations(), 0
    for rows in collection.verdicts():
        deviations = world.commit_verdicts(rows, deviations)
        left += world.left
    ended = world.by_number()
    there = {number for number, keeper in ended.items() if keeper == number}
    # No record is kept that was to be dropped, and nothing is dropped for a record that is not kept.
    assert there == collection.kept() - gone - world.failing
    assert {keeper for keeper in ended.values() if isinstance(keeper, int)} <= there
    undecided = set(range(len(collection.texts))) - gone - ended.keys()
    assert left == len(undecided)
    # What is left has no better keeper.
    for number in undecided:
        text = collection.texts[number]
        matching = [text, *(other for _, other in collection.matching[text])]
        keepers = {collection.best[other] for other in matching} & there
        assert all(collection.turns[keeper] > collection.turns[number] for keeper in keepers)
