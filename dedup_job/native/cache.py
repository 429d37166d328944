"""Choose the folder that compiled code is cached in, by a digest of the sources it is compiled from."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
# Compiled code uses nothing from other packages.
ROOMS = ("native", "text", "fingerprint", "match", "lab", "engine/spark")


def find_cache_folder() -> Path | None:
    """Return the first candidate folder that this user can write to and nobody else; None if there is none.

    numba compiles a function again when the function's own file has changed. The code and constants that it
    uses from other files are compiled in, too, but numba does not check those files (numba issue 1833). So
    each version of the packages with compiled functions has a folder of its own, and outdated code is never
    loaded.
    """
    return next(filter(_is_private, _candidate_folders(source_digest()[:16])), None)


def source_digest() -> str:
    """Return the digest of all modules that compiled code is made from."""
    digest = hashlib.sha256()
    for file in sorted(file for room in ROOMS for file in (PACKAGE / room).rglob("*.py")):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(PACKAGE)} {len(content)} ".encode() + content)
    return digest.hexdigest()


def _candidate_folders(version: str) -> Iterator[Path]:
    """Yield the user's choice, and folders in the package, the user's cache and the temporary folder."""
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(chosen) / version
    yield PACKAGE / "__pycache__" / "native" / version
    caches = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    # A user without a home has no cache: "~" then stays in the path.
    if caches.is_absolute():
        yield caches / "dedup-job" / version
    # Safe among other users' files: the sticky bit keeps them from renaming our folder.
    yield Path(tempfile.gettempdir()) / f"dedup-job-{os.getuid()}-{version}"


def _is_private(folder: Path) -> bool:
    """Create the folder if it is missing; return whether this user can write to it, and no other user."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A symbolic link in the temporary folder may point anywhere, and its owner can change it.
        status = folder.stat(follow_symlinks=False)
        with tempfile.TemporaryFile(dir=folder):
            return status.st_uid == os.getuid() and not status.st_mode & 0o022
    except OSError:
        return False
