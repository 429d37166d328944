"""A worker process: gets raw records, returns fingerprints; knows nothing else."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections import Counter
from collections.abc import Sequence

from dedup_job.document import Fingerprints
from dedup_job.fingerprint.recipe import Fingerprinter, Recipe

PR_SET_PDEATHSIG = 1

_fingerprinter: Fingerprinter | None = None


def begin(recipe: Recipe) -> None:
    """Make this process a worker for a recipe: signals are the parent's business, its death is the end."""
    global _fingerprinter
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _fingerprinter = Fingerprinter(recipe)


def work(raws: Sequence[bytes]) -> Fingerprints:
    """Fingerprint raw records."""
    assert _fingerprinter is not None, "begin() runs first"
    return _fingerprinter(raws)


def count_terms(raws: Sequence[bytes]) -> tuple[int, Counter[str]]:
    """Count texts, and for each term the texts that hold it."""
    assert _fingerprinter is not None, "begin() runs first"
    return _fingerprinter.document_frequencies(raws)
