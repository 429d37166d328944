"""A model of the commit protocol as a state machine, searched exhaustively for two interleaved processes.

A process sends one MongoDB command at a time; each command is one step here, with the name from
`tests/support/commit_steps.py`. Between two steps a process may be killed and restarted, the lease may be
stolen (it expires at the worst moment), and the reply to a command may be lost, so that the driver repeats
the command. The target refuses some records permanently, and a run that finishes another run's plan may find
that one of its records vanished from the source. The target may be dropped, and be created again by the next
insert; a kept record may be deleted from it; or it may stop refusing records at some moment.

`search` visits every reachable state. It raises Violation at the first state that breaks a promise, with the
steps to that state. Tests remove a protection from the `Protocol` to show that the search finds violations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple, TypeAlias

from tests.support.explorer import Violation, explore, replace_process

# Number, fence, version.
PlanId: TypeAlias = tuple[int, int, int]
# Record; U, D or R; keeper or reason.
Entry: TypeAlias = tuple[int, str, "int | str | None"]


class Plan(NamedTuple):
    """The verdicts of some records, and the previous plan."""

    previous: PlanId | None
    entries: tuple[Entry, ...]

    def of(self, verdict: str) -> list[Entry]:
        return [entry for entry in self.entries if entry[1] == verdict]


class Head(NamedTuple):
    """The document that every commit changes by compare-and-set."""

    fence: int = 0
    holder: int | None = None
    watermark: int = 0
    pending: PlanId | None = None
    last: PlanId | None = None
    next: int = 0


class World(NamedTuple):
    """The state of the server."""

    head: Head = Head()
    plans: frozenset[tuple[PlanId, Plan]] = frozenset()
    target: frozenset[int] = frozenset()
    dropped: frozenset[tuple[int, int | str | None]] = frozenset()
    exceptions: frozenset[int] = frozenset()
    # The number of the next plan at the time when the target was dropped.
    lost_at: int | None = None
    # A record that somebody deleted from the target, and the fence at that time.
    removed: tuple[int, int] | None = None
    # Whether the target no longer refuses records.
    takes_all: bool = False
    # Records that the primary inserted, and that no majority has: an election undoes their insertion.
    unsure: frozenset[int] = frozenset()

    def acknowledged(self) -> World:
        """Return the world after a majority acknowledged a write: it has all earlier writes, too."""
        return self._replace(target=self.target | self.unsure, unsure=frozenset())

    def plan(self, plan_id: PlanId | None) -> Plan | None:
        return next((plan for key, plan in self.plans if key == plan_id), None)


class Process(NamedTuple):
    """The position of a process, and its memory.

    Attributes:
        at: Its next step.
        head: The head as it last read it; its fence is the process's own.
        plan: The plan that it applies.
        due: Records of the plan to insert next.
        failed: Records without the planned outcome, with the reason.
        known: Number of failed records before this round of inserts.
        gone: Keepers of the plan that are no longer in the target.
        landed: Records of the plan that were in the target when the plan was recovered.
        keepers: Records that are keepers.
        tries: Whether the records that the target refused first are noted in an accepted plan.
    """

    at: str = "idle"
    head: Head = Head()
    plan_id: PlanId | None = None
    plan: Plan | None = None
    due: tuple[int, ...] = ()
    failed: tuple[tuple[int, str], ...] = ()
    known: int = 0
    gone: frozenset[int | str | None] = frozenset()
    landed: frozenset[int] = frozenset()
    keepers: frozenset[int] = frozenset()
    tries: bool = False
    recovering: bool = False


# Steps that may need no command; they then count as part of the previous step.
LOCAL = frozenset({"restore", "decide", "land", "note_dropped", "note_exceptions"})
IDLE, OUT, DONE = Process(), Process("out"), Process("done")
Step: TypeAlias = tuple[str, World, Process]


@dataclass(frozen=True)
class Protocol:
    """The protections that are in place.

    Attributes:
        fenced: Swaps compare the fence.
        compared: Swaps compare anything at all.
        lands_first: The watermark moves after the inserts of a plan, not when the plan is accepted.
        promotes: A duplicate of a refused keeper replaces it.
        admits_landed: Only records that reached the target are keepers of later records.
        cleans: Unaccepted plans are deleted; no promise needs this.
        spares_later: Unaccepted plans are deleted by lower fence, not by number alone.
        signs: An amended plan has the fence of the run that amended it.
        notes_first: Right rows are written before wrong rows are deleted, and are never deleted.
        recognises: A record counts as inserted even if the server changed values that it sets itself, and the
            source no longer has the record.
        asks_first: The target's records with adopted ids are read before a plan is decided.
        looks_again: A run that finishes another run's plan checks whether its keepers are still in the
            target.
        checks_places: The target is checked to be the same collection before a plan is accepted, and when it
            is applied.
        in_turn: Copies of refused records are tried one after another, not all at once.
        keeps_landed: A record that a killed run inserted in such a try is kept, even if the target would
            accept the record before it now.
        confirms: A record that the primary alone accepted in a try is inserted again, with a majority.
    """

    fenced: bool = True
    compared: bool = True
    lands_first: bool = True
    promotes: bool = True
    admits_landed: bool = True
    cleans: bool = True
    spares_later: bool = True
    signs: bool = True
    notes_first: bool = True
    recognises: bool = True
    asks_first: bool = True
    looks_again: bool = True
    checks_places: bool = True
    in_turn: bool = True
    keeps_landed: bool = True
    confirms: bool = True


@dataclass(frozen=True)
class Model:
    """Records and their groups of near-duplicates, and a protocol that decides them.

    Attributes:
        adopted: Records that are in the target from the start, by group; the source has other records with
            their ids.
    """

    groups: dict[int, str] = field(default_factory=lambda: {1: "A", 2: "A", 3: "A", 4: "B", 5: "A"})
    refused: frozenset[int] = frozenset({1})
    adopted: dict[int, str] = field(default_factory=dict)
    chunk: int = 3
    protocol: Protocol = Protocol()

    @property
    def beginning(self) -> World:
        """The state of the server before the first run."""
        return World(target=frozenset(self.adopted))

    def group(self, kept: int) -> str:
        """Return the group of a record in the target."""
        return self.adopted.get(kept) or self.groups[kept]

    @cached_property
    def undisturbed(self) -> World:
        """The result of an undisturbed run."""
        world, process = self.beginning, IDLE
        while process != DONE:
            _, world, process = next(iter(self.steps(world, process, 0)))
        return world

    def steps(self, world: World, process: Process, me: int) -> Iterator[Step]:
        """Yield the possible next steps of a process: name of the step, world and process after it."""
        for name, after, then in self._step(world, process, me):
            while then.at in LOCAL and then not in (OUT, DONE):
                inner = next(self._step(after, then, me))
                if inner[0]:
                    break
                then = inner[2]
            # All commands but tries wait for a majority.
            is_acknowledged = name and not name.startswith("try")
            yield name, after.acknowledged() if is_acknowledged else after, then

    def _step(self, world: World, process: Process, me: int) -> Iterator[Step]:
        step: Callable[[World, Process, int], Iterator[Step]] = getattr(self, "_" + process.at)
        return step(world, process, me)

    # Recovery.

    def _idle(self, world: World, process: Process, me: int) -> Iterator[Step]:
        yield "", world, Process("take", world.head)

    def _take(self, world: World, process: Process, me: int) -> Iterator[Step]:
        fence = process.head.fence + 1
        if world.head.fence == process.head.fence:
            world = world._replace(head=world.head._replace(fence=fence, holder=me))
        elif (world.head.fence, world.head.holder) != (fence, me):
            yield "take", world, OUT
            return
        yield "take", world, Process("recover" if world.head.pending else "clean", world.head)

    def _recover(self, world: World, process: Process, me: int) -> Iterator[Step]:
        pending = process.head.pending
        plan = world.plan(pending)
        if plan is None:
            if world.head.fence == process.head.fence and self.protocol.fenced:
                raise Violation("the pending plan is missing")
            yield "", world, OUT
            return
        kept = tuple(record for record, _, _ in plan.of("U"))
        there = world.target.intersection(record for record, _, _ in plan.entries)
        found = process._replace(
            at="land", plan_id=pending, plan=plan, recovering=True, due=kept, landed=there
        )
        own = {record for record, _, _ in plan.entries}
        absent = frozenset(keeper for _, _, keeper in plan.of("D") if keeper not in own | world.target)
        if absent and self.protocol.looks_again:
            found = found._replace(at="store_amended", gone=absent)
        yield "", world, found
        gone = [record for record in kept if record in self.refused - world.target]
        if not self.protocol.recognises:
            gone += [record for record in kept if record in world.target]
        if gone:
            failed = tuple((record, "vanished") for record in gone)
            rest = tuple(record for record in kept if record not in gone)
            yield "", world, found._replace(at="store_amended", failed=failed, due=rest)

    def _clean(self, world: World, process: Process, me: int) -> Iterator[Step]:
        first = process.plan_id[0] if process.plan_id else process.head.next
        kept = (
            (key, plan)
            for key, plan in world.plans
            if key[0] < first
            or key == process.head.last
            or not self.protocol.cleans
            or (self.protocol.spares_later and key[1] >= process.head.fence)
        )
        yield "clean", world._replace(plans=frozenset(kept)), Process("restore", process.head)

    def _restore(self, world: World, process: Process, me: int) -> Iterator[Step]:
        kept = (record for plan in chain(world, process.head.last) for record, _, _ in plan.of("U"))
        yield "", world, process._replace(at="decide", keepers=frozenset({*kept, *self.adopted}))

    # The commit.

    def _decide(self, world: World, process: Process, me: int) -> Iterator[Step]:
        due = [record for record in self.groups if record > process.head.watermark][: self.chunk]
        if not due:
            yield "", world, process._replace(at="cover")
            return
        there = process.keepers.difference(world.removed[:1] if world.removed else ())
        keepers = {self.group(record): record for record in sorted(there, reverse=True)}
        entries: list[Entry] = []
        for record in due:
            if record in self.adopted and self.protocol.asks_first:
                entries.append((record, "R", "conflict"))
                continue
            keeper = keepers.setdefault(self.groups[record], record)
            entries.append((record, "U", None) if keeper == record else (record, "D", keeper))
        plan = Plan(process.head.last, tuple(entries))
        plan_id = (process.head.next, process.head.fence, 0)
        yield "", world, process._replace(at="store", plan_id=plan_id, plan=plan)

    def _store(self, world: World, process: Process, me: int) -> Iterator[Step]:
        yield "store", _stored(world, process), process._replace(at="accept")

    def _accept(self, world: World, process: Process, me: int) -> Iterator[Step]:
        assert process.plan_id
        assert process.plan
        if self._is_elsewhere(world):
            yield "", world, OUT
            return
        before = {"pending": None, "next": process.plan_id[0]}
        after: dict[str, object] = {"pending": process.plan_id}
        if not self.protocol.lands_first:
            after = self._advanced(process)
        admitted = process
        if not self.protocol.admits_landed:
            kept = {record for record, _, _ in process.plan.of("U")}
            admitted = process._replace(keepers=process.keepers | kept)
        kept_now = tuple(record for record, _, _ in process.plan.of("U"))
        admitted = admitted._replace(due=kept_now)
        yield self._swap("accept", world, admitted, (before, after), "land")

    def _land(self, world: World, process: Process, me: int) -> Iterator[Step]:
        if process.due:
            record, *rest = process.due
            process = process._replace(due=tuple(rest))
            if self._refuses(world, record):
                process = process._replace(failed=(*process.failed, (record, "refused")))
            else:
                world = world._replace(target=world.target | {record})
            yield f"insert {record}", world, process
        elif process.tries and (promoted := self._promoted(process)):
            at = "try" if len(promoted) == 1 else "land"
            yield "", world, process._replace(at=at, due=promoted, known=len(process.failed))
        else:
            is_over = not process.failed and not self._both(process)
            at = _first(self.protocol, process, "note_dropped") if is_over else "store_amended"
            yield "", world, process._replace(at=at)

    def _try(self, world: World, process: Process, me: int) -> Iterator[Step]:
        (record,) = process.due
        tried = process._replace(at="land")
        if self._refuses(world, record):
            tried = tried._replace(due=(), failed=(*process.failed, (record, "refused")))
        else:
            world = world._replace(unsure=world.unsure | {record} - world.target)
            tried = tried._replace(due=process.due if self.protocol.confirms else ())
        yield f"try {record}", world, tried

    def _refuses(self, world: World, record: int) -> bool:
        is_refused = record in self.refused and not world.takes_all
        return record in self.adopted or (is_refused and record not in world.target | world.unsure)

    def _promoted(self, process: Process) -> tuple[int, ...]:
        """Return the records that replace the records refused in this round."""
        before = self._without(process.plan, dict(process.failed[: process.known]), process.gone)
        after = self._without(process.plan, dict(process.failed), process.gone)
        if after == before:
            return ()
        if not self.protocol.in_turn:
            return tuple(record for record, _, _ in before.of("D"))
        return tuple(record for record, _, _ in after.of("U") if record not in _kept(before))

    def _both(self, process: Process) -> frozenset[int]:
        """Return the records inserted by a killed run that this run has inserted another record for."""
        plan = self._without(process.plan, dict(process.failed), process.gone)
        dropped = frozenset(record for record, _, _ in plan.of("D"))
        return process.landed & dropped if self.protocol.keeps_landed else frozenset()

    def _amended(self, process: Process) -> Plan:
        plan = self._without(process.plan, dict(process.failed), process.gone)
        if process.tries or not (process.failed or process.gone):
            both = self._both(process)
            kept = [
                (record, "U", None) if record in both else (record, *rest) for record, *rest in plan.entries
            ]
            plan = plan._replace(entries=tuple(kept))  # type: ignore[arg-type]
        return plan

    def _store_amended(self, world: World, process: Process, me: int) -> Iterator[Step]:
        amended = process._replace(plan_id=self._version(process), plan=self._amended(process))
        yield "store", _stored(world, amended), process._replace(at="accept_amended")

    def _accept_amended(self, world: World, process: Process, me: int) -> Iterator[Step]:
        swap = ({"pending": process.plan_id}, {"pending": self._version(process)})
        yield self._swap("accept", world, process, swap, "forget")

    def _forget(self, world: World, process: Process, me: int) -> Iterator[Step]:
        kept = frozenset(pair for pair in world.plans if pair[0] != process.plan_id)
        assert process.plan
        is_first = not process.tries and bool(process.failed or process.gone)
        promoted = _kept(self._amended(process)) - _kept(process.plan)
        amended = process._replace(
            at="land",
            plan_id=self._version(process),
            plan=self._amended(process),
            due=tuple(sorted({*process.due, *promoted})) if is_first else (),
            failed=(),
            known=0,
            gone=frozenset(),
            landed=process.landed if is_first else frozenset(),
            tries=not process.gone,
        )
        yield "forget", world._replace(plans=kept), amended

    def _note_dropped(self, world: World, process: Process, me: int) -> Iterator[Step]:
        assert process.plan
        assert process.plan_id
        rows = {(record, keeper) for record, _, keeper in process.plan.of("D")}
        about = {record for record, _ in rows}
        kept = {row for row in world.dropped if row[0] not in about}
        then = "retract_dropped" if process.plan_id[2] and self.protocol.notes_first else "note_exceptions"
        name = "note dropped" if rows else ""
        yield name, world._replace(dropped=frozenset(kept | rows)), process._replace(at=then)

    def _retract_dropped(self, world: World, process: Process, me: int) -> Iterator[Step]:
        assert process.plan
        wrong = {record for record, _, _ in process.plan.entries}
        then = "note_dropped"
        if self.protocol.notes_first:
            wrong -= {record for record, _, _ in process.plan.of("D")}
            then = "note_exceptions"
        kept = frozenset(row for row in world.dropped if row[0] not in wrong)
        yield "retract dropped", world._replace(dropped=kept), process._replace(at=then)

    def _note_exceptions(self, world: World, process: Process, me: int) -> Iterator[Step]:
        assert process.plan
        assert process.plan_id
        rows = {record for record, _, _ in process.plan.of("R")}
        then = "retract_exceptions" if process.plan_id[2] else "advance"
        name = "note exceptions" if rows else ""
        yield name, world._replace(exceptions=world.exceptions | rows), process._replace(at=then)

    def _retract_exceptions(self, world: World, process: Process, me: int) -> Iterator[Step]:
        assert process.plan
        wrong = {record for record, verdict, _ in process.plan.entries if verdict != "R"}
        kept = world._replace(exceptions=world.exceptions - wrong)
        yield "retract exceptions", kept, process._replace(at="advance")

    def _advance(self, world: World, process: Process, me: int) -> Iterator[Step]:
        assert process.plan
        if self._is_elsewhere(world):
            yield "", world, OUT
            return
        kept = {record for record, _, _ in process.plan.of("U")}
        keepers = {keeper for _, _, keeper in process.plan.of("D")} - world.target
        process = process._replace(keepers=process.keepers | kept)
        if world.removed and world.removed[0] in keepers and process.head.fence > world.removed[1]:
            raise Violation("a record was dropped for one that was gone before its run began")
        then = "clean" if process.recovering else "decide"
        if not self.protocol.lands_first:
            yield "", world, process._replace(at=then)
            return
        swap = ({"pending": process.plan_id}, self._advanced(process))
        yield self._swap("advance", world, process, swap, then)

    def _cover(self, world: World, process: Process, me: int) -> Iterator[Step]:
        if self._is_elsewhere(world):
            yield "", world, OUT
            return
        yield self._swap("cover", world, process, ({"pending": None}, {}), "end")

    def _end(self, world: World, process: Process, me: int) -> Iterator[Step]:
        name, world, process = self._swap("end", world, process, ({}, {"holder": None}), "done")
        yield name, world, DONE if process != OUT else OUT

    def _out(self, world: World, process: Process, me: int) -> Iterator[Step]:
        return iter(())

    _done = _out

    def _is_elsewhere(self, world: World) -> bool:
        return self.protocol.checks_places and world.lost_at is not None

    def _swap(
        self,
        name: str,
        world: World,
        process: Process,
        swap: tuple[Mapping[str, object], Mapping[str, object]],
        then: str,
    ) -> Step:
        """Compare and set the head; after a lost reply to the same swap, the head shows its success."""
        before, after = swap
        head = world.head
        fits = not self.protocol.fenced or head.fence == process.head.fence
        swapped = fits and all(getattr(head, name) == value for name, value in before.items())
        if swapped or not self.protocol.compared:
            head = head._replace(**after)  # type: ignore[arg-type]
        elif not (fits and all(getattr(head, name) == value for name, value in after.items())):
            return name, world, OUT
        known = head._replace(fence=process.head.fence)
        return name, world._replace(head=head), process._replace(at=then, head=known)

    def _advanced(self, process: Process) -> dict[str, object]:
        assert process.plan
        assert process.plan_id
        return {
            "pending": None,
            "last": process.plan_id,
            "next": process.plan_id[0] + 1,
            "watermark": process.plan.entries[-1][0],
        }

    def _version(self, process: Process) -> PlanId:
        assert process.plan_id
        number, fence, version = process.plan_id
        return number, process.head.fence if self.protocol.signs else fence, version + 1

    def _without(
        self, plan: Plan | None, failed: dict[int, str], gone: frozenset[int | str | None] = frozenset()
    ) -> Plan:
        """Change the verdicts of these records; promote a duplicate of each, and of each missing keeper."""
        assert plan
        entries: list[Entry] = []
        lost = set(gone)
        promoted: int | None = None
        for record, verdict, keeper in plan.entries:
            if record in failed:
                entries.append((record, "R", failed[record]))
                lost.add(record)
            elif verdict == "D" and keeper in lost and self.protocol.promotes:
                entries.append((record, "D", promoted) if promoted else (record, "U", None))
                promoted = promoted or record
            else:
                entries.append((record, verdict, keeper))
        return plan._replace(entries=tuple(entries))


def _kept(plan: Plan) -> set[int]:
    return {record for record, _, _ in plan.of("U")}


def _stored(world: World, process: Process) -> World:
    assert process.plan_id
    assert process.plan
    there = world.plan(process.plan_id)
    if there is not None and there != process.plan:
        raise Violation("a stored plan was overwritten by another")
    return world._replace(plans=world.plans | {(process.plan_id, process.plan)})


def _first(protocol: Protocol, process: Process, noting: str) -> str:
    assert process.plan_id
    return "retract_dropped" if process.plan_id[2] and not protocol.notes_first else noting


def chain(world: World, last: PlanId | None) -> list[Plan]:
    """Return the plans up to this one, in order."""
    plans: list[Plan] = []
    while last is not None:
        plan = world.plan(last)
        if plan is None:
            raise Violation("a plan that was carried out is missing")
        plans.insert(0, plan)
        last = plan.previous
    return plans


def check(model: Model, world: World) -> None:
    """Raise Violation unless the world keeps every promise; valid at any moment."""
    committed = [entry for plan in chain(world, world.head.last) for entry in plan.entries]
    pending = world.plan(world.head.pending)
    if world.head.pending is not None and pending is None:
        raise Violation("the pending plan is missing")
    accepted = committed + list(pending.entries if pending else ())
    decided = [record for record, _, _ in committed]
    if decided != [record for record in model.groups if record <= world.head.watermark]:
        raise Violation("a record below the watermark is not decided just once")
    kept = {record for record, verdict, _ in committed if verdict == "U"}
    dropped = {(record, keeper) for record, verdict, keeper in committed if verdict == "D"}
    if not kept <= world.target:
        raise Violation("lost: a record below the watermark is not in the target")
    if not {keeper for _, keeper in dropped} <= world.target:
        raise Violation("lost: a record was dropped for one that is not in the target")
    kept_or_tried = {record for record, verdict, _ in accepted if verdict == "U"} | _tried(world)
    if not world.target - model.adopted.keys() <= kept_or_tried:
        raise Violation("the target holds a record that no accepted plan keeps")
    if not world.takes_all and len({model.group(record) for record in world.target}) < len(world.target):
        raise Violation("doubled: two near-duplicates are in the target")
    if not dropped <= world.dropped:
        raise Violation("a dropped record has no row")
    if not world.dropped <= {(record, keeper) for record, verdict, keeper in accepted if verdict == "D"}:
        raise Violation("a row says of a record that it was dropped, and it was not")
    if {r for r, verdict, _ in committed if verdict == "R"} - world.exceptions:
        raise Violation("a refused record has no row")


def _tried(world: World) -> set[int]:
    """Return the records that may be in the target because a keeper, or its replacement, was refused."""
    pending = world.plan(world.head.pending)
    if pending is None or world.head.pending is None or not world.head.pending[2]:
        return set()
    return {record for record, _, keeper in pending.of("D") if keeper in _kept(pending)}


def check_lost(_: Model, world: World) -> None:
    """Raise Violation if more than the plan in progress is decided after the target was dropped."""
    assert world.lost_at is not None
    if world.head.next > world.lost_at + 1:
        raise Violation("lost: plans were carried out on a target that is not the one it was")


def check_removed(model: Model, world: World) -> None:
    """Raise Violation if a record that somebody deleted from the target has changed anything else."""
    assert world.removed is not None
    committed = [entry for plan in chain(world, world.head.last) for entry in plan.entries]
    if [record for record, _, _ in committed] != [one for one in model.groups if one <= world.head.watermark]:
        raise Violation("a record below the watermark is not decided just once")
    kept = {record for record, verdict, _ in committed if verdict == "U"}
    if not kept <= world.target | {world.removed[0]}:
        raise Violation("lost: a record below the watermark is not in the target")
    if not {(record, keeper) for record, verdict, keeper in committed if verdict == "D"} <= world.dropped:
        raise Violation("a dropped record has no row")


def outcome(world: World) -> tuple[object, ...]:
    """Return the result of a run without what may differ: fences, and the reason of a refusal."""
    plans = [
        [entry if entry[1] != "R" else entry[:2] for entry in p.entries]
        for p in chain(world, world.head.last)
    ]
    head = world.head
    return plans, head.watermark, head.pending, head.next, world.target, world.dropped, world.exceptions


@dataclass(frozen=True)
class Mishaps:
    """The number of mishaps on one path.

    Attributes:
        kills: Processes killed.
        losses: Replies lost.
        drops: Times the target is dropped.
        removals: Records deleted from the target.
        easings: Times the target stops refusing records.
        elections: Elections that undo the writes of the primary that no majority has.
    """

    kills: int = 2
    losses: int = 1
    drops: int = 0
    removals: int = 0
    easings: int = 0
    elections: int = 0


@dataclass(frozen=True)
class Searched:
    """The size of a search; `finished` counts states where some run has finished."""

    states: int
    transitions: int
    finished: int


State: TypeAlias = tuple[World, tuple[Process, ...], Mishaps]


def search(model: Model, mishaps: Mishaps = Mishaps(), processes: int = 2) -> Searched:
    """Visit every reachable state.

    Raises:
        Violation: At the first state that breaks a promise.
    """
    sound: set[World] = set()

    def check_state(state: State) -> None:
        world, runs, _ = state
        if world not in sound:
            _checks(world)(model, world)
            sound.add(world)
        is_undisturbed = _checks(world) is check and not world.takes_all
        if DONE in runs and is_undisturbed and outcome(world) != outcome(model.undisturbed):
            raise Violation("a finished run left something else than an undisturbed one")

    start: State = (model.beginning, (IDLE,) * processes, mishaps)
    explored = explore(start, partial(_moves, model), check_state)
    finished = sum(DONE in runs for _, runs, _ in explored.states)
    return Searched(len(explored.states), explored.moves, finished)


def _checks(world: World) -> Callable[[Model, World], None]:
    """Return the check for a world, depending on the changes that others made to its target."""
    if world.lost_at is not None:
        return check_lost
    return check if world.removed is None else check_removed


def _moves(model: Model, state: State) -> Iterator[tuple[str, State]]:
    world, processes, left = state
    if left.drops and world.target:
        dropped = world._replace(target=frozenset(), lost_at=world.head.next)
        yield "target dropped", (dropped, processes, replace(left, drops=left.drops - 1))
    if left.easings:
        yield "target eased", (world._replace(takes_all=True), processes, replace(left, easings=0))
    if left.elections and world.unsure:
        undone = world._replace(unsure=frozenset())
        yield "election", (undone, processes, replace(left, elections=left.elections - 1))
    if left.removals:
        kept = {entry[0] for plan in chain(world, world.head.last) for entry in plan.of("U")}
        for record in sorted(kept & world.target):
            after = world._replace(target=world.target - {record}, removed=(record, world.head.fence))
            yield f"{record} taken out", (after, processes, replace(left, removals=left.removals - 1))
    for me, process in enumerate(processes):
        for name, after, then in model.steps(world, process, me):
            yield f"{me}: {name or process.at}", (after, replace_process(processes, me, then), left)
            if left.losses and name and after != world:
                yield f"{me}: {name}, answer lost", (after, processes, replace(left, losses=left.losses - 1))
        if left.kills and process.at not in ("idle", "out", "done"):
            yield (
                f"{me}: killed",
                (world, replace_process(processes, me, IDLE), replace(left, kills=left.kills - 1)),
            )


def is_path(model: Model, runs: Iterable[Sequence[str]]) -> bool:
    """Return whether one process can make exactly these steps, run after run, each killed at its end."""
    worlds = {model.beginning}
    for run in runs:
        states = _silently(model, {(world, IDLE) for world in worlds})
        for name in run:
            states = _silently(
                model,
                {
                    (after, then)
                    for world, process in states
                    for step, after, then in model.steps(world, process, 0)
                    if step == name
                },
            )
        worlds = {world for world, _ in states}
    return bool(worlds)


def _silently(model: Model, states: set[tuple[World, Process]]) -> set[tuple[World, Process]]:
    """Add the states that can be reached by steps that change nothing on the server."""
    found, waiting = set(states), list(states)
    while waiting:
        world, process = waiting.pop()
        for name, after, then in model.steps(world, process, 0):
            if not name and (after, then) not in found:
                found.add((after, then))
                waiting.append((after, then))
    return found
