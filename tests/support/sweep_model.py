"""A model of moving a record to the archive and back, searched exhaustively, while its owner changes it.

Processes, each of which sweeps or brings back, work on one record and its keeper, one command per step.
Between two steps a process may be killed and restarted, another process may take the lease, and the owner
may edit, delete or insert the record, or delete the keeper.  A removal that was sent may take effect later,
also when its sender is dead, until its time is over.

Each version of the record that its owner did not replace or delete must be in the source or in the archive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

from tests.support.explorer import Violation, explore, replace_process

# Versions of the record: none, the judged version, and another one.
NONE, JUDGED, OTHER = 0, 1, 2
SOURCE, ARCHIVE = "source", "archive"
OPPOSITE = {SOURCE: ARCHIVE, ARCHIVE: SOURCE}
Versions: TypeAlias = frozenset[int]


class World(NamedTuple):
    """The state of the servers.

    Attributes:
        source: The version in the source.
        archive: The version in the archive.
        has_keeper: Whether the keeper is in the source.
        owed: The versions that must exist.
        late: Removals that were sent and may still take effect: where, and the fence of their sender.
        fence: Raised by each process that takes the lease.
        removing: Where the head says that a removal may be under way.
        is_over: Whether the time of that removal is over.
        changes: Number of changes that the owner may still make.
    """

    source: int = JUDGED
    archive: int = NONE
    has_keeper: bool = True
    owed: Versions = frozenset({JUDGED})
    late: frozenset[tuple[str, int]] = frozenset()
    fence: int = 0
    removing: str = ""
    is_over: bool = True
    changes: int = 2


class Process(NamedTuple):
    """A process: where it removes, its next step, its fence, and what it knows."""

    place: str
    at: str = "take"
    fence: int = 0
    # Version that it moves.
    version: int = NONE
    # The removal that its predecessor announced at the same place.
    earlier: str = ""
    # Whether the keeper was in the source when it began.
    had_keeper: bool = True


@dataclass(frozen=True)
class Protocol:
    """The protections that are in place.

    Attributes:
        copies_first: A record is in the archive before it leaves the source.
        compares: The server removes only the version that was copied.
        sees_keeper: A record is moved only if its keeper is in the source.
        puts_back_first: A record is in the source before it leaves the archive.
        announces: The head says that a removal is coming before it is sent.
        waits: A process waits until an announced removal at the other place is over.
        keeps_earlier: A process that ends does not take back what its predecessor announced.
        timed: The server refuses removals after their time.
        spares_others: A record stays in the archive if the source has another version of it.
    """

    copies_first: bool = True
    compares: bool = True
    sees_keeper: bool = True
    puts_back_first: bool = True
    announces: bool = True
    waits: bool = True
    keeps_earlier: bool = True
    timed: bool = True
    spares_others: bool = True


def step(protocol: Protocol, world: World, process: Process) -> tuple[World, Process] | None:
    """Return the state after a process's next step; None if it waits or has ended."""
    match process.at:
        case "take":
            taken = Process(process.place, "wait", world.fence + 1, had_keeper=world.has_keeper)
            return world._replace(fence=taken.fence), taken
        case "wait":
            is_opposite = world.removing == OPPOSITE[process.place]
            if is_opposite and not world.is_over and protocol.waits:
                return None
            earlier = process.place if world.removing == process.place and not world.is_over else ""
            return world, process._replace(at="look", earlier=earlier)
        case "look":
            return _look(protocol, world, process)
        case "copy":
            return _copied(protocol, world, process)
    return _remove(protocol, world, process)


def _remove(protocol: Protocol, world: World, process: Process) -> tuple[World, Process] | None:
    """Return the state after a step of a removal, or of the end."""
    is_lost = world.fence != process.fence
    match process.at:
        case "announce" if is_lost:
            return world, process._replace(at="done")
        case "announce":
            place = process.place if protocol.announces else world.removing
            return world._replace(removing=place, is_over=False), process._replace(at="send")
        case "send" if (is_lost or world.is_over) and protocol.timed:
            # The server's clock has passed the time of the removal.
            return world, process._replace(at="done")
        case "send":
            if process.place == SOURCE and not process.had_keeper:
                raise Violation("unrepresented: a record is moved though its keeper was gone before")
            return world._replace(late=world.late | {(process.place, process.fence)}), process._replace(
                at="answer"
            )
        case "answer" if (process.place, process.fence) not in world.late:
            return world, process._replace(at="copy late" if _copies_late(protocol, process) else "end")
        case "copy late":
            after, _ = _copied(protocol, world, process)
            return after, process._replace(at="end")
        case "end" if not is_lost:
            if world.removing == process.place:
                kept = process.earlier if protocol.keeps_earlier else ""
                world = world._replace(removing=kept, is_over=world.is_over if kept else True)
            return world, process._replace(at="done")
    return None


def _look(protocol: Protocol, world: World, process: Process) -> tuple[World, Process]:
    found = world.source if process.place == SOURCE else world.archive
    is_due = found == JUDGED and (process.place == ARCHIVE or world.has_keeper or not protocol.sees_keeper)
    is_first = protocol.copies_first if process.place == SOURCE else protocol.puts_back_first
    then = ("copy" if is_first else "announce") if is_due else "end"
    return world, process._replace(at=then, version=found)


def _copies_late(protocol: Protocol, process: Process) -> bool:
    return not (protocol.copies_first if process.place == SOURCE else protocol.puts_back_first)


def _copied(protocol: Protocol, world: World, process: Process) -> tuple[World, Process]:
    """Insert the record at the other place, unless another version is there."""
    if process.place == SOURCE:
        if world.archive in (NONE, process.version):
            return world._replace(archive=process.version), process._replace(at="announce")
        return world, process._replace(at="end")
    if world.source in (NONE, process.version):
        return world._replace(source=process.version), process._replace(at="announce")
    return world, process._replace(at="end" if protocol.spares_others else "announce")


def events(protocol: Protocol, world: World) -> Iterator[World]:
    """Yield the states after a removal takes effect, time passes, or the owner changes something."""
    for place, fence in world.late:
        rest = world.late - {(place, fence)}
        if place == ARCHIVE:
            yield world._replace(archive=NONE, late=rest)
        else:
            is_hit = world.source == JUDGED or not protocol.compares
            yield world._replace(source=NONE if is_hit else world.source, late=rest)
    if world.late or not world.is_over:
        yield world._replace(late=frozenset() if protocol.timed else world.late, is_over=True)
    if world.changes:
        left = world._replace(changes=world.changes - 1)
        owed = world.owed - {world.source}
        for version in {NONE, JUDGED, OTHER} - {world.source}:
            yield left._replace(source=version, owed=owed | {version} - {NONE})
        if world.has_keeper:
            yield left._replace(has_keeper=False)


def check(world: World) -> None:
    """Raise Violation if a version that its owner left alone is neither in the source nor in the archive."""
    if not world.owed <= {world.source, world.archive}:
        raise Violation("lost: a version of the record is neither in the source nor in the archive")


State: TypeAlias = tuple[World, tuple[Process, ...], int]


def search(protocol: Protocol, places: Sequence[str], kills: int = 1, changes: int = 1) -> int:
    """Visit every reachable state of these processes, and return the number of states.

    Raises:
        Violation: At the first promise that is broken.
    """
    start: State = (World(changes=changes), tuple(map(Process, places)), kills)
    explored = explore(start, partial(_moves, protocol), lambda state: check(state[0]))
    return len(explored.states)


def _moves(protocol: Protocol, state: State) -> Iterator[tuple[str, State]]:
    world, processes, left = state
    for after in events(protocol, world):
        yield "others", (after, processes, left)
    for me, process in enumerate(processes):
        if moved := step(protocol, world, process):
            yield f"{me}: {process.at}", (moved[0], replace_process(processes, me, moved[1]), left)
        if left and process.at != "take":
            restarted = replace_process(processes, me, Process(process.place))
            yield f"{me}: killed", (world, restarted, left - 1)
