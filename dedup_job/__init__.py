"""A batch job that removes duplicate and near-duplicate texts from a MongoDB collection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dedup_job.library.deduplicator import Deduplicator, Match

__all__ = ["Deduplicator", "Match", "__version__"]
__version__ = "1.0.0"


def __getattr__(name: str) -> Any:
    """Import the library on first use, as commands do not need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dedup_job.library import deduplicator

    return getattr(deduplicator, name)
