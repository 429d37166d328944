"""Measure and limit the memory of processes; figures come from /proc (Linux)."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dedup_job.errors import StorageFull

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")
# Parameters of glibc's mallopt.
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8
# Bytes of free memory that glibc keeps for small blocks.
KEPT = 32 << 20
# New objects between two runs of the garbage collector.
NEW_OBJECTS = 50_000

# Memory of a run before its first record; docs/explanation/limits.md has the measurements.
# All processes together.
LEAST_FREE = 256 << 20
# The fork server.
LEAST_SPACE, LEAST_DATA = 640 << 20, 384 << 20
# The main process, without stacks and workers.
OWN_SPACE, OWN_DATA, OWN_THREADS = 480 << 20, 224 << 20, 16
USUAL_STACK = 8 << 20
# Open files of the main process, and further files for each worker.
OWN_FILES, WORKER_FILES = 40, 6


class GroupVersion(NamedTuple):
    """Where a version of Linux control groups keeps the memory of a group.

    Attributes:
        controller: Its name in /proc/self/cgroup, and its folder below `GROUPS`.
        limit: File with the limit.
        usage: File with the bytes in use.
        cached: Name in `memory.stat` of cached files, of the group and of the groups below it.
    """

    controller: str
    limit: str
    usage: str
    cached: str


GROUP_VERSIONS = (
    GroupVersion("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    GroupVersion("", "memory.max", "memory.current", "inactive_file"),
)


def resident_bytes(pid: int) -> int | None:
    """Return the resident bytes of a process, with its share of shared pages (PSS); None without /proc."""
    return _read_sizes(f"{pid}/smaps_rollup").get("Pss")


def peak_bytes(pid: int) -> int | None:
    """Return the peak of `resident_bytes`, approximately; None without /proc.

    The kernel only stores the peak of all resident pages, so the present share of shared pages is used.
    """
    sizes = _read_sizes(f"{pid}/status")
    now = resident_bytes(pid)
    return now + sizes["VmHWM"] - sizes["VmRSS"] if now and "VmHWM" in sizes and "VmRSS" in sizes else None


def _read_sizes(file: str) -> dict[str, int]:
    """Return the sizes in a file such as /proc/meminfo, in bytes, by name; none if it cannot be read."""
    with suppress(OSError, ValueError):
        fields = [line.split() for line in (PROC / file).read_text().splitlines()]
        return {words[0].rstrip(":"): int(words[1]) << 10 for words in fields if words[-1:] == ["kB"]}
    return {}


def cpu_seconds(pid: int) -> float | None:
    """Return the processor time of a process, in seconds; None without /proc."""
    with suppress(OSError, IndexError, ValueError):
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return None


def available_bytes() -> int | None:
    """Return the bytes of memory that processes can still allocate; None without /proc.

    This is the smallest of the machine's available memory and the room in each control group.
    """
    rooms = [_read_sizes("meminfo").get("MemAvailable") or None]
    rooms += [_in_group(version, folder) for version in GROUP_VERSIONS for folder in _group_folders(version)]
    return min((room for room in rooms if room is not None), default=None)


def _group_folders(version: GroupVersion) -> Iterator[Path]:
    """Yield the folders of this process's control group and of its ancestors."""
    root = GROUPS / version.controller
    with suppress(OSError, ValueError):
        for line in (PROC / "self" / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if version.controller in controllers.split(","):
                folder = root / path.lstrip("/")
                yield from (one for one in (folder, *folder.parents) if one.is_relative_to(root))


def _in_group(version: GroupVersion, folder: Path) -> int | None:
    """Return the bytes that a control group can still allocate; None without a limit."""
    with suppress(OSError, ValueError, KeyError):
        # Without a limit, the file of version 2 has the word "max", which raises ValueError. Version 1 has a
        # number larger than any memory.
        most = int((folder / version.limit).read_text())
        lines = (folder / "memory.stat").read_text().splitlines()
        held = {name: int(value) for name, value in map(str.split, lines)}
        # The kernel can free cached files.
        return max(0, most - int((folder / version.usage).read_text()) + held[version.cached])
    return None


def check_least(workers: int) -> None:
    """Check that a run with this many workers can begin: its memory and its open files.

    This runs before compiled libraries load: they abort, or retry for ever, when they get no memory.

    Raises:
        StorageFull: If a limit is too low, or too little memory is free.
    """
    _check_open_files(OWN_FILES + WORKER_FILES * workers)
    # Threads get stacks of the same size.
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    stacks = (OWN_THREADS + workers) * (USUAL_STACK if stack == resource.RLIM_INFINITY else stack)
    for kind, name, least in (
        (resource.RLIMIT_AS, "address space (ulimit -v)", max(LEAST_SPACE, OWN_SPACE + stacks)),
        (resource.RLIMIT_DATA, "data (ulimit -d)", max(LEAST_DATA, OWN_DATA + stacks)),
    ):
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY and limit < least:
            raise StorageFull(
                f"the limit on a process's {name} is {limit >> 20:,} MiB, and a command with workers = "
                f"{workers} needs {least >> 20:,} MiB; raise the limit"
            )
    free = available_bytes()
    if free is not None and free + _read_sizes("meminfo").get("SwapFree", 0) < LEAST_FREE:
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
    """Configure the memory of this process for work on batches.

    Args:
        large: Size of a large block, at most 32 MiB. Frequent allocations should be smaller, because the
            system is slow.
    """
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        # Each large block goes back to the system when it is freed.  By default glibc keeps them for reuse,
        # but the next block seldom fits: a run on texts of a million characters took twice the memory.
        library.mallopt(MMAP_THRESHOLD, large)
        library.mallopt(TRIM_THRESHOLD, KEPT)
        # One arena for all threads.  By default glibc reserves 64 MiB of address space for each of about
        # fifteen threads, which seldom allocate at the same time: under `ulimit -v` a run needed twice the
        # address space.
        library.mallopt(ARENA_MAX, 1)
    # A batch creates many objects and hardly any cycles, and each collection also visits the objects of all
    # loaded code.  With the default threshold, collections took a tenth of the main process's time
    # (scripts/README.md has the figures).
    gc.set_threshold(NEW_OBJECTS)


def family(pid: int | None = None) -> list[int]:
    """Return the ids of all descendants of a process; None for this process."""
    children: dict[int, list[int]] = {}
    for entry in PROC.glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            # The name, in parentheses, may contain spaces; the parent's id is the second field behind it.
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    return _below(os.getpid() if pid is None else pid, children)


def _below(pid: int, children: dict[int, list[int]]) -> list[int]:
    return [one for child in children.get(pid, []) for one in (child, *_below(child, children))]
