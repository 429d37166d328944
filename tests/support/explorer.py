"""Visit every reachable state of a protocol's model, and name the steps to a state that breaks a promise."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)
Process = TypeVar("Process")


class Violation(Exception):
    """Raised if a promise is broken; the message names the promise, `steps` lists the steps to the state."""

    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explored(Generic[State]):
    """The result of a search: all states that can be reached, and the number of moves between them."""

    states: Collection[State]
    moves: int


def explore(
    start: State,
    moves: Callable[[State], Iterable[tuple[str, State]]],
    check: Callable[[State], None],
) -> Explored[State]:
    """Visit every state that can be reached from a state, nearest first.

    Args:
        start: The first state.
        moves: Returns the moves from a state, with their names.
        check: Raises Violation if a state breaks a promise; so may `moves`.

    Raises:
        Violation: At the first state that breaks a promise, with the shortest way to it.
    """
    came_from: dict[State, tuple[State, str] | None] = {start: None}
    queue, count = deque([start]), 0
    while queue:
        state = queue.popleft()
        try:
            check(state)
            for name, after in moves(state):
                count += 1
                if after not in came_from:
                    came_from[after] = (state, name)
                    queue.append(after)
        except Violation as violation:
            violation.steps = _steps_to(state, came_from)
            raise
    return Explored(came_from.keys(), count)


def _steps_to(state: State, came_from: dict[State, tuple[State, str] | None]) -> tuple[str, ...]:
    steps: list[str] = []
    while (before := came_from[state]) is not None:
        state, name = before
        steps.append(name)
    return tuple(reversed(steps))


def replace_process(processes: tuple[Process, ...], me: int, process: Process) -> tuple[Process, ...]:
    """Return the processes with another state of one of them."""
    return (*processes[:me], process, *processes[me + 1 :])
