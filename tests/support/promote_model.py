"""A model of `promote`: renames by name, programs that write by name, kills, and commands that arrive late.

Collections are S (the source), T (the target) and O1, O2 (made by programs while the name was free).  The
place is the name that programs use.  `search` visits every state that can be reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tests.support.explorer import Violation, explore

PLACE, ASIDE, TARGET = "pages", "pages_before", "unique"
Command = tuple[str, str]


@dataclass(frozen=True)
class Protocol:
    """The protections of the protocol; a test takes each of them out."""

    looks_first: bool = True
    notes_others: bool = True
    copies: bool = True
    reuses_noted_name: bool = True
    refuses_taken: bool = True
    spares_target: bool = True


@dataclass(frozen=True)
class World:
    """A state.

    Attributes:
        names: The collection that has a name, by name.
        writes: What programs wrote into a collection, by collection.
        state: The state in the head: what is intended, or "done".
        others: The names in the head for collections that programs made.
        at: The next step of the process; "" if there is none, "end" if it has finished.
        late: Commands of killed processes that may still arrive.
    """

    names: frozenset[tuple[str, str]]
    writes: frozenset[tuple[str, int]] = frozenset()
    state: str = ""
    others: tuple[str, ...] = ()
    at: tuple[str, ...] = ("",)
    late: frozenset[Command] = frozenset()
    to_write: int = 3
    kills: int = 2

    def having(self, name: str) -> str | None:
        return dict(self.names).get(name)

    def name_of(self, one: str) -> str | None:
        return {one: name for name, one in self.names}.get(one)

    def renamed(self, command: Command, drops: bool = False) -> tuple[World, str]:
        """Return the world after the server has carried out a rename, and its answer."""
        old, new = command
        if self.having(old) is None:
            return self, "missing"
        if self.having(new) is not None and not drops:
            return self, "taken"
        rest = {name: one for name, one in self.names if name not in command}
        return replace(self, names=frozenset((rest | {new: dict(self.names)[old]}).items())), "ok"

    def written(self) -> World:
        """Return the world after a program has written a record, which makes the collection if need be."""
        names = self.names
        if (one := self.having(PLACE)) is None:
            one = f"O{1 + sum(name.startswith('O') for _, name in names)}"
            names |= {(PLACE, one)}
        writes = self.writes | {(one, self.to_write)}
        return replace(self, names=names, writes=writes, to_write=self.to_write - 1)


@dataclass(frozen=True)
class Direction:
    """One of the two commands: which collection leaves the place, its new name, and which one enters."""

    out: str
    aside: str
    into: str
    start: frozenset[tuple[str, str]]


FORWARD = Direction("S", ASIDE, "T", frozenset({(PLACE, "S"), (TARGET, "T")}))
BACK = Direction("T", TARGET, "S", frozenset({(PLACE, "T"), (ASIDE, "S")}))
# A promotion that was killed between its renames, and is taken back.
HALF = replace(BACK, start=frozenset({(ASIDE, "S"), (TARGET, "T")}))


@dataclass
class Model:
    """All the steps that are possible in a state."""

    direction: Direction
    protocol: Protocol = field(default_factory=Protocol)

    def next(self, world: World) -> Iterator[tuple[str, World]]:
        """Yield each possible step and the state after it."""
        if world.to_write:
            yield "write", world.written()
        for command in world.late:
            after, _ = replace(world, late=world.late - {command}).renamed(
                command, not self.protocol.refuses_taken
            )
            yield f"late {' to '.join(command)}", after
        if world.at == ("",):
            yield "start", replace(world, at=("begin",))
        elif world.at != ("end",):
            if world.kills:
                killed = replace(world, at=("",), kills=world.kills - 1)
                yield "kill", killed
                if world.at[0] == "send":
                    yield "kill, in flight", replace(killed, late=world.late | {(world.at[1], world.at[2])})
            yield " ".join(world.at), self.step(world)

    def step(self, world: World) -> World:
        """Return the state after the next step of the process."""
        way, at = self.direction, world.at
        if at[0] == "begin":
            return replace(world, state="begun", at=("look out",))
        if at[0] == "look out":
            return self.look(world, way.out, way.aside, "look in")
        if at[0] == "look in":
            return self.look(world, way.into, PLACE, "copy")
        if at[0] == "look other":
            return self.look(world, at[1], at[2], "look in")
        if at[0] == "send":
            return self.send(world)
        if at[0] == "note":
            return self.note(world)
        if at[0] == "copy":
            return self.copy(world)
        return replace(world, state="done", at=("end",))

    def look(self, world: World, one: str, name: str, then: str) -> World:
        """Look where a collection is, and send a rename unless it has its name."""
        now = world.name_of(one)
        if now == name and self.protocol.looks_first:
            return replace(world, at=(then,))
        if not self.protocol.looks_first:
            # Renames by the name that the collection had at the beginning.
            now = {one: name for name, one in self.direction.start}.get(one, PLACE)
        assert now is not None
        return replace(world, at=("send", now, name, one, then))

    def send(self, world: World) -> World:
        """Let the server carry out the rename, and act on its answer."""
        _, old, new, one, then = world.at
        world, answer = world.renamed((old, new), not self.protocol.refuses_taken)
        if (
            answer == "ok"
            or (answer == "taken" and world.name_of(one) == new)
            or not self.protocol.looks_first
        ):
            return replace(world, at=(then,))
        if answer == "missing":
            look = {self.direction.out: "look out", self.direction.into: "look in"}
            return replace(world, at=(look[one],) if one in look else ("look other", one, new))
        return replace(world, at=("note",) if new == PLACE else ("look in",))

    def note(self, world: World) -> World:
        """Choose a name for the collection in the place, and store it in the head."""
        there, taken = world.having(PLACE), dict(world.names)
        if there is None or (there == self.direction.into and self.protocol.spares_target):
            return replace(world, at=("look in",))
        noted = world.others[-1] if world.others and self.protocol.reuses_noted_name else None
        if noted is None or noted in taken:
            first = 1 if self.protocol.reuses_noted_name else len(world.others) + 1
            noted = next(name for n in range(first, 9) if (name := f"{ASIDE}_{n}") not in taken)
            if self.protocol.notes_others:
                world = replace(world, others=(*world.others, noted))
        return replace(world, at=("look other", there, noted))

    def copy(self, world: World) -> World:
        """Copy what programs wrote into the collection that made room, and into those that they made."""
        place = world.having(PLACE)
        if place is None:
            raise Violation("the collections are not in their places")
        former = {world.having(name) for name in (self.direction.aside, *world.others)}
        copied = {(place, number) for one, number in world.writes if one in former}
        return replace(
            world, writes=world.writes | copied if self.protocol.copies else world.writes, at=("finish",)
        )

    def check(self, world: World) -> None:
        """Raise Violation if a promise is broken in a state."""
        there = {one for _, one in world.names}
        if not {"S", "T"} <= there or {one for one, _ in world.writes} - there:
            raise Violation("a collection is gone")
        if world.at != ("end",):
            return
        way = self.direction
        if (world.having(PLACE), world.having(way.aside)) != (way.into, way.out):
            raise Violation("the collections are not in their places")
        reached = {number for one, number in world.writes if one == way.into}
        if reached != {number for _, number in world.writes}:
            raise Violation("a record that a program wrote is not in the place")


def search(model: Model, writes: int = 3, kills: int = 3) -> int:
    """Visit every state that can be reached, and return in how many states the command has finished.

    Raises:
        Violation: If a promise is broken in one of them.
    """
    first = World(model.direction.start, to_write=writes, kills=kills)
    return sum(world.at == ("end",) for world in explore(first, model.next, model.check).states)
