"""Wait for a state, never for a fixed time: a busy machine is slow at anything, and only a hang fails."""

from __future__ import annotations

import time
from collections.abc import Callable

# A process or a state that takes longer hangs. Beside heavy work a test takes many times as long as alone.
HANG_SECONDS = 600.0
POLL_SECONDS = 0.02


def becomes(condition: Callable[[], object]) -> bool:
    """Wait until a condition holds; return False if it never does."""
    deadline = time.monotonic() + HANG_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
