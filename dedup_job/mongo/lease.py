"""The lease: which process may decide for a target, and until when by the server's clock."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 60
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Holder:
    """A process: its host, the host's boot, its pid."""

    host: str
    boot: str
    pid: int

    @classmethod
    def me(cls) -> Holder:
        """Return this process."""
        boot = BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""
        return cls(socket.gethostname(), boot, os.getpid())

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Holder:
        """Take it from a head."""
        return cls(value["host"], value["boot"], value["pid"])

    @property
    def key(self) -> dict[str, Any]:
        """Return it as it is stored."""
        return {"host": self.host, "boot": self.boot, "pid": self.pid}

    def is_gone(self) -> bool:
        """Return whether this process surely does not run any more; only its own host can tell."""
        me = Holder.me()
        if self.host != me.host:
            return False
        if self.boot != me.boot or self.pid == me.pid:
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False


def until() -> dict[str, Any]:
    """Return the expression for the end of a lease taken now, by the server's clock."""
    return {"$add": ["$$NOW", SECONDS * 1000]}


EXPIRED = {"$expr": {"$lt": [{"$ifNull": ["$lease.until", None]}, "$$NOW"]}}
