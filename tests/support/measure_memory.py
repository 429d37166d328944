"""Run the command line, and print its peak memory in bytes on the last line of stderr.

Workers are separate processes and are not counted.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dedup_job import __main__


def peak_bytes() -> int:
    """Return the peak memory of this process since it started this program, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) << 10


if __name__ == "__main__":
    try:
        __main__.main()
    finally:
        sys.stderr.write(f"{peak_bytes()}\n")
