"""A model of undoing a plan as a state machine, searched exhaustively, while the source loses records.

Two processes undo the same plan, one command per step. Between two steps a process may be killed and
restarted, the other process may take the lease, and somebody may delete a record from the source. After the
undo, a run may decide the source's records again, and a process that lost the lease may still continue.

A record that is removed from the target while the source does not have it must be in the backup until it is
in the target again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

from tests.support.explorer import Violation, explore, replace_process

Records: TypeAlias = frozenset[int]
NONE: Records = frozenset()


class World(NamedTuple):
    """The state of the servers; `deletions` are those that may still happen in the source."""

    source: Records
    target: Records
    aside: Records = NONE
    owed: Records = NONE
    fence: int = 0
    is_undone: bool = False
    is_decided_again: bool = False
    deletions: int = 1


class Process(NamedTuple):
    """A process: its next step, its fence, and the records that it works on."""

    at: str = "take"
    fence: int = 0
    held: Records = NONE
    stay: Records = NONE
    # Whether it settles its own backup.
    ended: bool = False


@dataclass(frozen=True)
class Protocol:
    """The protections that are in place.

    Attributes:
        puts_aside: Records are backed up before they are removed.
        looks_again: The source is read again before a backup is deleted.
        puts_back_first: A record that left the source is in the target again before its backup is deleted.
        timed: The server refuses removals of a process that lost the lease.
    """

    puts_aside: bool = True
    looks_again: bool = True
    puts_back_first: bool = True
    timed: bool = True


def step(protocol: Protocol, world: World, process: Process) -> tuple[World, Process] | None:
    """Return the state after a process's next step; None if the process has ended."""
    held = process.held
    is_refused = world.fence != process.fence and protocol.timed
    match process.at:
        case "take":
            taken = Process("done" if world.is_undone else "list", world.fence + 1)
            return world._replace(fence=taken.fence), taken
        case "list":
            return world, process._replace(at="look again", held=world.aside)
        case "look again":
            stay = held - world.source if protocol.looks_again else NONE
            then = "put back" if protocol.puts_back_first else "let go"
            return world, process._replace(at=then, stay=stay)
        case "put back":
            then = "let go" if protocol.puts_back_first else _after(process)
            return _inserted(world, process.stay), process._replace(at=then)
        case "let go":
            aside = world.aside if is_refused else world.aside - held
            then = _after(process) if protocol.puts_back_first else "put back"
            return world._replace(aside=aside), process._replace(at=then)
        case "look":
            return world, process._replace(at="put aside", held=world.target & world.source)
        case "put aside":
            aside = world.aside | held if protocol.puts_aside else world.aside
            return world._replace(aside=aside), process._replace(at="remove")
        case "remove":
            after = world if is_refused else _removed(world, held)
            return after, process._replace(at="list", ended=True)
        case "step back" if world.fence == process.fence:
            return world._replace(is_undone=True), process._replace(at="done")
    return None


def _inserted(world: World, records: Records) -> World:
    target = world.target | records
    return world._replace(target=target, owed=world.owed - target)


def _removed(world: World, records: Records) -> World:
    owed = world.owed | (world.target & records) - world.source
    return world._replace(target=world.target - records, owed=owed)


def _after(process: Process) -> str:
    return "step back" if process.ended else "look"


def check(world: World) -> None:
    """Raise Violation if a record is neither in the source, nor in the target, nor in the backup."""
    if not world.owed <= world.target | world.aside:
        raise Violation("lost: a record was removed that the source had not got any more")
    if world.is_undone and not world.owed <= world.target:
        raise Violation("lost: an undo has ended and a record that was its to put back is not in the target")


State: TypeAlias = tuple[World, tuple[Process, ...], int]


def search(protocol: Protocol, records: Records = frozenset({1, 2}), kills: int = 2) -> int:
    """Visit every reachable state, and return the number of states.

    Raises:
        Violation: At the first lost record.
    """
    start: State = (World(records, records), (Process(), Process()), kills)
    explored = explore(start, partial(_moves, protocol), lambda state: check(state[0]))
    return len(explored.states)


def _moves(protocol: Protocol, state: State) -> Iterator[tuple[str, State]]:
    world, processes, left = state
    for after in _by_others(world):
        yield "others", (after, processes, left)
    for me, process in enumerate(processes):
        if moved := step(protocol, world, process):
            yield f"{me}: {process.at}", (moved[0], replace_process(processes, me, moved[1]), left)
        if left and process.at not in ("take", "done"):
            yield f"{me}: killed", (world, replace_process(processes, me, Process()), left - 1)


def _by_others(world: World) -> Iterator[World]:
    if world.deletions:
        for record in sorted(world.source):
            yield world._replace(source=world.source - {record}, deletions=world.deletions - 1)
    if world.is_undone and not world.is_decided_again:
        yield _inserted(world, world.source)._replace(is_decided_again=True)
