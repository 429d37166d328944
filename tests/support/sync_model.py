"""A model of `sync` as a state machine, searched exhaustively, with kills and other writers.

A record has a text and a version of it (`a0`); records with the same text are duplicates. The source has
changed since the records were decided: one record vanished, one has another text, both have unchanged
duplicates, and one has another version of the same text. Two processes apply these changes, one command per
step. Between two steps a process may be killed and restarted, the other process may take the lease, and a
process that lost the lease may continue. The source may change a second time, at any moment; until then, a
command that a killed process had sent may still arrive while another process works. Somebody may have deleted
the record with another version from the target.

Not modelled: rows of `dropped` and `exceptions`, other changes to the target, refusals by the target, and an
insert that arrives after its record was decided again (docs/explanation/promises.md: what remains).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tests.support.explorer import Violation, explore, replace_process

Records: TypeAlias = frozenset[tuple[int, str]]


class Row(NamedTuple):
    """A decision: U for unique, D for dropped, R for refused because it vanished, C for a conflict in the
    target.

    Attributes:
        judged: The version that was judged; "" for none.
        copy: In a plan that decides again, the version that an earlier decision put into the target.
        number: The number of that earlier plan.
    """

    record: int
    verdict: str
    keeper: int
    judged: str
    copy: str = ""
    number: int = 0


Rows: TypeAlias = tuple[Row, ...]


class Pending(NamedTuple):
    """An accepted plan: its rows, and whether it decides them again or only renews them."""

    rows: Rows
    renews: bool


class World(NamedTuple):
    """The state of the servers; `late` are writes of killed processes that may still arrive."""

    source: Records
    target: Records
    plans: tuple[Rows, ...]
    pending: Pending | None = None
    fence: int = 0
    late: frozenset[tuple[str, int, str]] = frozenset()
    changes: int = 1


class Process(NamedTuple):
    """A process: its next step, its fence, its plan, its progress in the plan, and the data it has read."""

    at: str = "take"
    fence: int = 0
    plan: Pending | None = None
    place: int = 0
    known: Rows | bool = ()
    # Records whose version in the target is the plan's.
    landed: frozenset[int] = frozenset()
    # Whether it continues another process's plan, and reads its records again.
    recovers: bool = False


@dataclass(frozen=True)
class Protocol:
    """The protections that are in place.

    Attributes:
        leaves_out: Outdated decisions are not keepers while other records are decided.
        hands_first: Duplicates of a record are decided again before the record itself.
        accepts: A plan, or a renewal, is accepted before it is applied.
        timed: The server refuses removals and replacements of a process that lost the lease.
        compares: A plan is rewritten only if it has not changed since it was read.
        expects: A rewritten plan must have the version that a renewal replaces.
        replaces: A record that is kept again is replaced, not removed and inserted.
        fenced: Only the holder of the lease can accept and finish a plan.
    """

    leaves_out: bool = True
    hands_first: bool = True
    accepts: bool = True
    timed: bool = True
    compares: bool = True
    expects: bool = True
    replaces: bool = True
    fenced: bool = True


State: TypeAlias = tuple[World, tuple[Process, ...], int]

BEGINNING = World(
    source=frozenset({(2, "a0"), (3, "c0"), (4, "b0"), (5, "e1")}),
    target=frozenset({(1, "a0"), (3, "b0"), (5, "e0")}),
    plans=(
        (
            Row(1, "U", 0, "a0"),
            Row(2, "D", 1, "a0"),
            Row(3, "U", 0, "b0"),
            Row(4, "D", 3, "b0"),
            Row(5, "U", 0, "e0"),
        ),
    ),
)
MISSING = (5, "e0")
# The changes that the source may make later.
FURTHER = ({1: "a0"}, {3: "d0"}, {5: "e2"}, {3: "b0"})
OUT = "out"
# Most times that a process may take the lease.
MOST_TURNS = 3
MOST_PLANS = 12


def text(record: str) -> str:
    return record[:1]


def due(protocol: Protocol, world: World) -> Pending | None:
    """Return the next plan: first renewals, then records not in the target, then records that are there."""
    source = dict(world.source)
    rows = [row._replace(number=number) for number, rows in enumerate(world.plans) for row in rows]
    overtaken = [row for row in rows if source.get(row.record, "") != row.judged]
    renewed = [
        row
        for row in overtaken
        if row.verdict == "U" and text(source.get(row.record, "")) == text(row.judged)
    ]
    if renewed:
        return Pending(
            tuple(row._replace(judged=source[row.record], copy=row.judged) for row in renewed), True
        )
    gone = {row.record for row in overtaken}
    again = [row for row in rows if row.record in gone or row.keeper in gone]
    if not again:
        return None
    again.sort(key=lambda row: (row.verdict == "U") == protocol.hands_first)
    first = [
        row for row in again if row.verdict == again[0].verdict or "U" not in (row.verdict, again[0].verdict)
    ]
    left_out = {row.record for row in again} if protocol.leaves_out else set()
    keepers = {
        text(row.judged): row.record for row in rows if row.verdict == "U" and row.record not in left_out
    }
    return Pending(tuple(_decided(row, source.get(row.record, ""), keepers) for row in first[:1]), False)


def _decided(row: Row, record: str, keepers: dict[str, int]) -> Row:
    copy = row.judged if row.verdict == "U" else ""
    if not record:
        return Row(row.record, "R", 0, "", copy, row.number)
    keeper = keepers.get(text(record), row.record)
    verdict = ("U", 0) if keeper == row.record else ("D", keeper)
    return Row(row.record, *verdict, record, copy, row.number)


def _as_now(row: Row, world: World) -> Row:
    """Return the row that a process recovering the plan finds: a changed record is kept, unchecked."""
    now = dict(world.source).get(row.record, "")
    if row.verdict != "U" or now == row.judged or (row.record, row.judged) in world.target:
        return row
    return row._replace(judged=now) if now else row._replace(verdict="R", judged="")


def writes(protocol: Protocol, plan: Pending) -> list[tuple[str, Row]]:
    """Return the writes to the target that apply a plan, in order."""
    kept = [row for row in plan.rows if row.verdict == "U"]
    moved = [row for row in kept if row.copy and row.copy != row.judged]
    instead = [("replace", row) for row in moved]
    if not protocol.replaces and not plan.renews:
        instead = [("remove", row) for row in moved]
    inserted = [("insert", row) for row in (moved if plan.renews else kept)]
    rest = [("remove", row) for row in plan.rows if row.verdict in "DR" and row.copy]
    return [*instead, *inserted, *rest]


def step(protocol: Protocol, world: World, process: Process) -> tuple[World, Process] | None:
    """Return the state after a process's next step; None if the process has ended."""
    steps = {"take": take, "compare": compare, "amend": amend, "accept": accept, "look": look}
    steps |= {"write": write, "read": read, "rewrite": rewrite, "advance": advance}
    made = steps.get(process.at)
    return made(protocol, world, process) if made else None


def take(_: Protocol, world: World, process: Process) -> tuple[World, Process]:
    at, fence = "amend" if world.pending else "compare", world.fence + 1
    return world._replace(fence=fence), Process(at, fence, world.pending, recovers=bool(world.pending))


def compare(protocol: Protocol, world: World, process: Process) -> tuple[World, Process]:
    plan = due(protocol, world)
    at = "done" if plan is None else "accept" if protocol.accepts else "look"
    return world, process._replace(at=at, plan=plan, place=0)


def amend(protocol: Protocol, world: World, process: Process) -> tuple[World, Process]:
    """Check the present versions of the records of a plan that another process began."""
    assert process.plan
    rows = process.plan.rows
    return _amended(
        protocol, world, process, rows if process.plan.renews else tuple(_as_now(row, world) for row in rows)
    )


def _amended(protocol: Protocol, world: World, process: Process, rows: Rows) -> tuple[World, Process]:
    assert process.plan
    if world.pending != process.plan or (protocol.fenced and world.fence != process.fence):
        return world, process._replace(at=OUT)
    plan = process.plan._replace(rows=rows)
    return world._replace(pending=plan), process._replace(at="look", plan=plan, place=0)


def accept(protocol: Protocol, world: World, process: Process) -> tuple[World, Process]:
    if world.pending or (protocol.fenced and world.fence != process.fence):
        return world, process._replace(at=OUT)
    return world._replace(pending=process.plan), process._replace(at="look")


def look(protocol: Protocol, world: World, process: Process) -> tuple[World, Process]:
    """Check whether the copy to be overwritten next is still the copy that was read."""
    assert process.plan
    if process.place == len(writes(protocol, process.plan)):
        landed = {row.record for row in process.plan.rows if (row.record, row.judged) in world.target}
        return world, process._replace(at="read", place=0, landed=frozenset(landed))
    what, row = writes(protocol, process.plan)[process.place]
    there = dict(world.target).get(row.record)
    # A renewal inserts only where the target has no record with this id.
    is_put_back = what == "insert" and process.plan.renews
    if what == "insert" and not is_put_back and there not in (None, row.judged) and protocol.accepts:
        rows = tuple(one._replace(verdict="C") if one == row else one for one in process.plan.rows)
        return _amended(protocol, world, process, rows)
    is_own = there is None if is_put_back else what == "insert" or there == row.copy
    if process.plan.renews and process.recovers and (row.record, row.judged) not in world.source:
        # The source no longer has this version, so a recovering process has nothing to write.
        is_own = False
    return world, process._replace(at="write", known=is_own)


def write(protocol: Protocol, world: World, process: Process) -> tuple[World, Process]:
    assert process.plan
    what, row = writes(protocol, process.plan)[process.place]
    is_taken_over = protocol.timed if what != "insert" else _is_taken_over(world, row)
    if process.known and not (world.fence != process.fence and is_taken_over):
        world = written(world, what, row.record, row.judged)
    return world, process._replace(at="look", place=process.place + 1, known=())


def read(_: Protocol, world: World, process: Process) -> tuple[World, Process]:
    numbers = _numbers(process)
    if process.place == len(numbers):
        return world, process._replace(at="advance")
    return world, process._replace(at="rewrite", known=world.plans[numbers[process.place]])


def rewrite(protocol: Protocol, world: World, process: Process) -> tuple[World, Process]:
    """Rewrite an earlier plan; if it changed since it was read, read it again."""
    number, plans = _numbers(process)[process.place], list(world.plans)
    if protocol.compares and plans[number] != process.known:
        return world, process._replace(at="read", known=())
    plans[number] = rewritten(protocol, process)
    after = process._replace(at="read", place=process.place + 1, known=())
    return world._replace(plans=tuple(plans)), after


def advance(protocol: Protocol, world: World, process: Process) -> tuple[World, Process]:
    assert process.plan
    holds = world.fence == process.fence and world.pending == process.plan
    if protocol.accepts and protocol.fenced and not holds:
        return world, process._replace(at=OUT)
    rows = tuple(row._replace(copy="", number=0) for row in process.plan.rows)
    plans = world.plans if process.plan.renews else (*world.plans, rows)
    after = process._replace(at="compare", plan=None, place=0, landed=frozenset())
    return world._replace(plans=plans, pending=None), after


def _numbers(process: Process) -> list[int]:
    return sorted({row.number for row in _rows(process.plan)})


def _is_taken_over(world: World, row: Row) -> bool:
    """Return whether a record to be inserted was decided again by a later plan."""
    decided = {one.record: one for rows in (*world.plans, _rows(world.pending)) for one in rows}
    return decided[row.record][:4] != (row.record, "U", 0, row.judged)


def _rows(plan: Pending | None) -> Rows:
    return plan.rows if plan else ()


def written(world: World, what: str, record: int, judged: str) -> World:
    """Return the world after a write to the target."""
    there = dict(world.target)
    if what == "remove":
        there.pop(record, None)
    elif (what == "insert") != (record in there):
        there[record] = judged
    return world._replace(target=frozenset(there.items()))


def rewritten(protocol: Protocol, process: Process) -> Rows:
    """Return the earlier plan without rows that are decided again, and with the renewals in the target."""
    assert process.plan
    assert not isinstance(process.known, bool)
    ours = {row.record: row for row in process.plan.rows}
    if not process.plan.renews:
        return tuple(row for row in process.known if row.record not in ours)
    renewed = {record: row for record, row in ours.items() if record in process.landed}
    return tuple(
        row._replace(judged=renewed[row.record].judged)
        if row.record in renewed and (row.judged == renewed[row.record].copy or not protocol.expects)
        else row
        for row in process.known
    )


def check(world: World, is_missing: bool = False) -> None:
    """Check that all records the source has in their decided version are in the target.

    Args:
        world: The state to check.
        is_missing: Whether somebody deleted MISSING from the target.

    Raises:
        Violation: If a record is missing.
    """
    decided = [row for rows in world.plans for row in rows]
    records = [row.record for row in decided]
    if len(records) > len(set(records)):
        raise Violation("decided twice")
    pending = {row.record for row in _rows(world.pending)}
    if not set(range(1, 6)) <= {*records, *pending}:
        raise Violation("lost: a record is not decided any more")
    if len(world.plans) > MOST_PLANS:
        raise Violation("it does not end")
    kept = {(row.record, row.judged) for row in decided if row.verdict == "U"}
    if is_missing:
        kept -= {MISSING}
    if world.pending is None and not kept <= world.target:
        raise Violation("altered: the target has a record otherwise than the decisions say")
    there = {text(judged) for _, judged in world.target}
    held = {
        text(row.judged) for row in decided if row.verdict != "C" and (row.record, row.judged) in world.source
    }
    if not held <= there:
        raise Violation("lost: nothing in the target says what a record of the source says")


def check_end(world: World) -> None:
    """Raise Violation unless target and decisions match the source."""
    decided = [row for rows in world.plans for row in rows]
    kept = {(row.record, row.judged) for row in decided if row.verdict == "U"}
    conflicts = {row.record for row in decided if row.verdict == "C"}
    if kept != {(record, judged) for record, judged in world.target if record not in conflicts}:
        raise Violation("outdated: the target is not what the decisions say")
    if {(row.record, row.judged) for row in decided if row.judged} != world.source:
        raise Violation("outdated: the decisions are not on what the source says")
    if any(row.verdict == "D" and row.keeper not in {record for record, _ in kept} for row in decided):
        raise Violation("lost: a record is dropped for one that is not kept")


def search(protocol: Protocol, kills: int = 1, changes: int = 1, is_missing: bool = False) -> int:
    """Visit every reachable state, and return the number of states.

    Raises:
        Violation: At the first state that breaks a promise.
    """

    def check_state(state: State) -> None:
        world, processes, _ = state
        check(world, is_missing)
        if any(one.at == "done" and one.fence == world.fence for one in processes) and not world.late:
            check_settled(protocol, world)

    def moves(state: State) -> Iterator[tuple[str, State]]:
        return ((name, after) for name, after in _moves(protocol, state) if after[0].fence <= MOST_TURNS)

    target = BEGINNING.target - {MISSING} if is_missing else BEGINNING.target
    start: State = (BEGINNING._replace(target=target, changes=changes), (Process(), Process()), kills)
    return len(explore(start, moves, check_state).states)


def _moves(protocol: Protocol, state: State) -> Iterator[tuple[str, State]]:
    world, processes, left = state
    for after in _by_others(world):
        yield "others", (after, processes, left)
    for me, process in enumerate(processes):
        if moved := step(protocol, world, process):
            yield f"{me}: {process.at}", (moved[0], replace_process(processes, me, moved[1]), left)
        if left and process.at not in ("take", "done", OUT):
            yield (
                f"{me}: killed",
                (_sent(protocol, world, process), replace_process(processes, me, Process()), left - 1),
            )
        if process.at in ("done", OUT):
            yield f"{me}: again", (world, replace_process(processes, me, Process()), left)


def _sent(protocol: Protocol, world: World, process: Process) -> World:
    """Return the world where the next write of a killed process may still arrive."""
    is_sent = process.at == "write" and process.known and process.fence == world.fence
    if not is_sent or not process.plan or (world.changes == 0 and world.source != BEGINNING.source):
        return world
    what, row = writes(protocol, process.plan)[process.place]
    return world._replace(late=world.late | {(what, row.record, row.judged)})


def check_settled(protocol: Protocol, world: World) -> None:
    """Check the end of an apply without changes of the source."""
    if due(protocol, world) is None and world.pending is None:
        check_end(world)


def _by_others(world: World) -> Iterator[World]:
    for write in world.late:
        yield written(world, *write)._replace(late=world.late - {write})
    if world.changes:
        for further in FURTHER:
            source = frozenset({**dict(world.source), **further}.items())
            yield world._replace(source=source, changes=world.changes - 1, late=frozenset())
