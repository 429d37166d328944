"""Runs the command line, and says on the last line of stderr how many bytes of memory it held at most.

Workers are processes of their own, and are not counted in.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dedup_job import __main__


def peak_bytes() -> int:
    """Return the most bytes that this process has held since it began to run this program."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) << 10


if __name__ == "__main__":
    try:
        __main__.main()
    finally:
        sys.stderr.write(f"{peak_bytes()}\n")
