"""The results of `doctor`'s checks, and a runner that turns a failed check into a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dedup_job.errors import DedupError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        about: The subject of the check.
        message: The result, for people.
        exit_code: What a run would exit with because of it; 0 for no fault.
        is_warning: Whether a person should look at it although a run would work.
    """

    about: str
    message: str
    exit_code: int = 0
    is_warning: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        state = "fault" if self.exit_code else "warning" if self.is_warning else "ok"
        return {"about": self.about, "state": state, "message": self.message, "exit_code": self.exit_code}


@dataclass(slots=True)
class Examination:
    """Runs one check after the other; a check that fails is a result, and the next check follows."""

    findings: list[Finding] = field(default_factory=list)

    def note(self, about: str, message: str, is_warning: bool = False) -> None:
        """Add a result."""
        self.findings.append(Finding(about, message, is_warning=is_warning))

    def tried(self, about: str, check: Callable[[], T], is_needed: bool = True) -> T | None:
        """Run a check; if it fails, add its error as a result.

        Args:
            about: The subject of the check.
            check: Does the check, and may call `note`.
            is_needed: Whether a run would fail, too; otherwise the error is a warning.

        Returns:
            The return value of the check; None if it failed.
        """
        try:
            return check()
        except DedupError as error:
            code = error.exit_code if is_needed else 0
            self.findings.append(Finding(about, str(error), code, is_warning=not is_needed))
            return None
