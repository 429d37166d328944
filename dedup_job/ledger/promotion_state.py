"""A promotion: the target replaces its source, and the ledger continues without copies.

The head says what will be renamed before anything is, so a killed promotion is finished by the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from dedup_job.pasteable_command import command_line

# The states: the collections are being renamed, have been renamed, or are being renamed back.
BEGUN, DONE, RETURNING = "begun", "done", "returning"


@dataclass(frozen=True, slots=True)
class Promotion:
    """A promotion of a target.

    Attributes:
        state: BEGUN, DONE or RETURNING.
        kept_as: Name of the former source.
        former: UUID of the former source.
        promoted: UUID of the target that has the source's name now.
        plans: Number of plans before the promotion; their dropped records are in the former source alone.
        absent: Number of records that these plans decided and that the target does not have.
        others: Names of collections that programs made while no collection had the source's name.
        mark: How far the former source is marked, as in the head; None if it has no marks.
    """

    state: str
    kept_as: str
    former: str
    promoted: str
    plans: int
    absent: int
    others: Sequence[str] = ()
    mark: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Self:
        """Read a promotion from the head."""
        return cls(**{**stored, "others": tuple(stored["others"])})

    @property
    def key(self) -> dict[str, Any]:
        """The stored form."""
        return {**asdict(self), "others": list(self.others)}

    @property
    def is_done(self) -> bool:
        """Whether the target has the source's name, and nothing is being renamed."""
        return self.state == DONE

    @property
    def command(self) -> str:
        """The command that finishes it."""
        return command_line("promote --back" if self.state == RETURNING else "promote")
