"""Memory of processes, read from /proc (Linux)."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dedup_job.errors import StorageFull

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")
PEAK = ("VmHWM", "VmRSS")
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8  # parameters of glibc's mallopt
KEPT = 32 << 20
NEW_OBJECTS = 50_000  # after which Python looks for cycles

# What a run takes before its first record; docs/explanation/limits.md has the measurements.
LEAST_FREE = 256 << 20  # of all its processes
LEAST_SPACE, LEAST_DATA = 640 << 20, 384 << 20  # of the process that workers are forked from
OWN_SPACE, OWN_DATA, OWN_THREADS = 480 << 20, 224 << 20, 16  # of the deciding one, without stacks and workers
USUAL_STACK = 8 << 20
OWN_FILES, WORKER_FILES = 40, 6  # open files of the deciding process, and more for each worker


def resident_bytes(pid: int) -> int | None:
    """Return the bytes that a process holds now, its part of what it shares; None where nobody tells."""
    with suppress(OSError, IndexError, ValueError):
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) << 10
    return None


def peak_bytes(pid: int) -> int | None:
    """Return the most bytes that a process has held, about: its part of what it shares as it is now."""
    with suppress(OSError, IndexError, ValueError, KeyError):
        lines = (PROC / str(pid) / "status").read_text().splitlines()
        fields = (line.partition(":") for line in lines)
        sizes = {name: int(rest.split()[0]) for name, _, rest in fields if name in PEAK}
        now = resident_bytes(pid)
        return now + (sizes["VmHWM"] - sizes["VmRSS"] << 10) if now else None
    return None


def cpu_seconds(pid: int) -> float | None:
    """Return the processor time that a process has taken; None where nobody tells."""
    with suppress(OSError, IndexError, ValueError):
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return None


def available_bytes() -> int | None:
    """Return the bytes that processes may still take: of the machine's, and of what a container is allowed.

    None where nobody tells.
    """
    rooms = [_in_machine("MemAvailable") or None, *map(_in_group, _groups())]
    return min((room for room in rooms if room is not None), default=None)


def _in_machine(name: str) -> int:
    """Return bytes of the machine's memory, by the system's name for them; 0 where it does not tell."""
    with suppress(OSError, IndexError, ValueError, StopIteration):
        lines = (PROC / "meminfo").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) << 10
    return 0


def _groups() -> Iterator[Path]:
    """Yield the control group of this process and those that it is in."""
    with suppress(OSError):
        for line in (PROC / "self" / "cgroup").read_text().splitlines():
            if line.startswith("0::"):
                folder = GROUPS / line[3:].lstrip("/")
                yield from (one for one in (folder, *folder.parents) if one.is_relative_to(GROUPS))


def _in_group(folder: Path) -> int | None:
    """Return what a group may still take; what it holds of files can be given back."""
    with suppress(OSError, ValueError, KeyError):
        most = int((folder / "memory.max").read_text())  # "max" where there is no limit
        lines = (folder / "memory.stat").read_text().splitlines()
        held = {name: int(value) for name, value in map(str.split, lines)}
        return max(0, most - int((folder / "memory.current").read_text()) + held["inactive_file"])
    return None


def check_least(workers: int) -> None:
    """Check that a run with this many workers can begin: its memory and its open files.

    This runs before compiled libraries load: they abort, or retry for ever, when they get no memory.

    Raises:
        StorageFull: If a limit is too low, or too little memory is free.
    """
    _check_open_files(OWN_FILES + WORKER_FILES * workers)
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)  # which threads have as well
    stacks = (OWN_THREADS + workers) * (USUAL_STACK if stack == resource.RLIM_INFINITY else stack)
    for kind, name, least in (
        (resource.RLIMIT_AS, "address space (ulimit -v)", max(LEAST_SPACE, OWN_SPACE + stacks)),
        (resource.RLIMIT_DATA, "data (ulimit -d)", max(LEAST_DATA, OWN_DATA + stacks)),
    ):
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY and limit < least:
            raise StorageFull(
                f"the limit on a process's {name} is {limit >> 20:,} MiB, and a run with {workers} workers "
                f"needs {least >> 20:,} MiB; raise the limit"
            )
    free = available_bytes()
    if free is not None and free + _in_machine("SwapFree") < LEAST_FREE:
        raise StorageFull(
            f"{free >> 20:,} MiB of memory are free on this machine or in its container, and a run needs "
            f"{LEAST_FREE >> 20:,} MiB; free some, or raise the container's limit"
        )


def _check_open_files(least: int) -> None:
    """Raise the soft limit on open files to `least` if the hard limit allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= least:
        return
    if hard != resource.RLIM_INFINITY and hard < least:
        raise StorageFull(
            f"a process may open {hard:,} files (ulimit -n), and a run needs {least:,}; raise the limit"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (least, hard))


def work_in_batches(large: int) -> None:
    """Set the memory of this process up for work on batches; `large` as in `return_large_blocks`."""
    return_large_blocks(large)
    share_arena()
    collect_rarely()


def return_large_blocks(large: int) -> None:
    """Let each large piece of memory go back to the system when it is free, where the C library can.

    Else glibc keeps it for the next one, which seldom fits: a run on texts of a million characters held twice
    as much.  Of smaller pieces 32 MiB are kept.

    large  bytes, at most 32 MiB; what is often asked for should be smaller, as the system takes its time
    """
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(MMAP_THRESHOLD, large)
        library.mallopt(TRIM_THRESHOLD, KEPT)


def share_arena() -> None:
    """Let all threads of this process allocate from one arena, where the C library has several.

    glibc reserves 64 MiB of address space for each thread.  A run has about fifteen threads, hardly two of
    which allocate at once: under `ulimit -v` it needed twice the address space for nothing.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(ARENA_MAX, 1)


def collect_rarely() -> None:
    """Let Python look for cycles among its objects when many have come, not at each few hundred.

    A batch makes many objects, hardly one of them in a cycle, and each look goes over all the code as well.
    At the usual threshold that was a tenth of the deciding process (scripts/README.md has the figures).
    """
    gc.set_threshold(NEW_OBJECTS)


def family(pid: int | None = None) -> list[int]:
    """Return the processes that this one, or another, started, and those that they started."""
    children: dict[int, list[int]] = {}
    for entry in PROC.glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            # The name, in parentheses, may hold anything; the parent's number is the second field behind it.
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    return _below(os.getpid() if pid is None else pid, children)


def _below(pid: int, children: dict[int, list[int]]) -> list[int]:
    return [one for child in children.get(pid, []) for one in (child, *_below(child, children))]
