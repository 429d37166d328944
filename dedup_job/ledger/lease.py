"""The lease: which process may decide for a target, and until when by the server's clock."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SECONDS = 60
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PROCESSES = Path("/proc")
ENDED = "ZX"  # states of a process that does nothing any more: its parent has not asked for it yet


@dataclass(frozen=True, slots=True)
class Holder:
    """A process, told from all others.

    host       what its machine calls itself, for people: two may have one name
    boot       the boot of its kernel; "" where that is not known
    pid        its number, which is another's in another namespace
    namespace  that of its number; "" where that is not known
    start      when it was started, in ticks of that boot: a number may be given again
    """

    host: str
    boot: str
    pid: int
    namespace: str = ""
    start: int = 0

    @classmethod
    def me(cls) -> Holder:
        """Return this process."""
        boot, pid = _text(BOOT_ID), os.getpid()
        namespace = ""
        with suppress(OSError):
            namespace = os.readlink(PROCESSES / "self/ns/pid")
        _, start = _stat(pid)
        return cls(socket.gethostname(), boot, pid, namespace, start)

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Holder:
        """Take it from a head."""
        return cls(
            value["host"], value["boot"], value["pid"], value.get("namespace", ""), value.get("start", 0)
        )

    @property
    def key(self) -> dict[str, Any]:
        """Return it as it is stored."""
        return asdict(self)

    def is_near(self) -> bool:
        """Return whether this process can tell of that one: it has its number in the same place."""
        me = Holder.me()
        return self == me or ("" not in (me.boot, me.namespace) and self._place == me._place)

    def is_gone(self) -> bool:
        """Return whether this process surely does not run any more; where nothing proves that, it may."""
        me = Holder.me()
        if self == me:
            return True  # it is what this process held before
        if not self.is_near():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        state, start = _stat(self.pid)
        return state in ENDED if start == self.start else bool(start)

    @property
    def _place(self) -> tuple[str, str]:
        return self.boot, self.namespace


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str, int]:
    """Return the state of a process and when it was started; ("?", 0) where the system does not tell."""
    fields = _text(PROCESSES / f"{pid}/stat").rpartition(")")[2].split()
    return (fields[0], int(fields[19])) if len(fields) > 19 else ("?", 0)


def until() -> dict[str, Any]:
    """Return the expression for the end of a lease taken now, by the server's clock."""
    return {"$add": ["$$NOW", SECONDS * 1000]}


EXPIRED = {"$expr": {"$lt": [{"$ifNull": ["$lease.until", None]}, "$$NOW"]}}
