"""An examination: looks at one thing after the other, and notes what it finds or what fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dedup_job.errors import DedupError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one thing; with another exit code than 0 it is what a run would end with."""

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
    """Looks at one thing after the other: what fails is a finding, and does not end it."""

    findings: list[Finding] = field(default_factory=list)

    def note(self, about: str, message: str, is_warning: bool = False) -> None:
        """Note what was found."""
        self.findings.append(Finding(about, message, is_warning=is_warning))

    def tried(self, about: str, look: Callable[[], T], is_needed: bool = True) -> T | None:
        """Return what a look gives; None, and a finding, where it fails: a warning if no run needs it."""
        try:
            return look()
        except DedupError as error:
            code = error.exit_code if is_needed else 0
            self.findings.append(Finding(about, str(error), code, is_warning=not is_needed))
            return None
