"""Keep processors, disk and memory busy while a command runs, to see which of its results depend on time.

    python -m scripts.dev.load_machine -- make test
    python -m scripts.dev.load_machine --processes 4 --memory-mb 2000 --minutes 20 -- COMMAND ...

The load ends with the command, and after the given minutes at the latest.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from multiprocessing import Process

MB = 1 << 20
FILE_MB = 64


def use_processor() -> Iterator[None]:
    """Compute; yields regularly, so that the caller can check the time."""
    while True:
        yield
        sum(range(1_000_000))


def use_disk() -> Iterator[None]:
    """Write files, and wait until they are on the disk."""
    block = os.urandom(MB)
    with tempfile.TemporaryFile() as file:
        while True:
            yield
            file.seek(0)
            for _ in range(FILE_MB):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())


def use_memory(megabytes: int) -> Iterator[None]:
    """Allocate and fill memory repeatedly."""
    held = bytearray(megabytes * MB)
    for block in cycle((b"\1" * MB, bytes(MB))):
        for start in range(0, len(held), MB):
            yield
            held[start : start + MB] = block


def keep_busy(kind: Callable[[], Iterator[None]], seconds: float) -> None:
    """Work until the time is over or the parent process has ended."""
    parent, deadline = os.getppid(), time.monotonic() + seconds
    for _ in kind():
        if time.monotonic() > deadline or os.getppid() != parent:
            return


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code of the command."""
    parser = argparse.ArgumentParser(description="Run a command beside heavy work.")
    processors = os.cpu_count() or 1
    parser.add_argument(
        "--processes", type=int, default=processors, help="that compute (default: all processors)"
    )
    parser.add_argument("--memory-mb", type=int, default=1_000, help="filled again and again (default: 1000)")
    parser.add_argument("--minutes", type=float, default=60.0, help="after which the work ends (default: 60)")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="what to run, after --")
    options = parser.parse_args(arguments)
    kinds = [*([use_processor] * options.processes), use_disk, partial(use_memory, options.memory_mb)]
    processes = [Process(target=keep_busy, args=(kind, 60 * options.minutes)) for kind in kinds]
    for process in processes:
        process.start()
    try:
        return subprocess.run(options.command, check=False).returncode
    finally:
        for process in processes:
            process.terminate()
            process.join()


if __name__ == "__main__":
    sys.exit(main())
