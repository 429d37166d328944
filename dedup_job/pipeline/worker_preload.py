"""Load the code and data that workers need, once, in the fork server."""

from __future__ import annotations

import os
import signal
import sys

from dedup_job.errors import StorageFull, is_shortage
from dedup_job.pipeline.fork_server import end_with_parent

# Bytes.  A batch of usual records allocates blocks of up to 8 MiB.  When the system allocated and freed each
# block, that took a quarter of a worker's time (scripts/README.md has the figures).
LARGE = 8 << 20


def _load() -> None:
    from bson import encode

    from dedup_job.fingerprint.fingerprinter import Fingerprinter
    from dedup_job.fingerprint.recipe import Matching, Recipe
    from dedup_job.pipeline import measure_and_limit_memory
    from dedup_job.pipeline.worker_tasks import fingerprints_of
    from dedup_job.text.extract_and_clean import Reader
    from dedup_job.text.fields import TextFields

    measure_and_limit_memory.work_in_batches(LARGE)
    # As in `main`: numba would load it.
    sys.modules["scipy.linalg"] = None  # type: ignore[assignment]
    fingerprinter = Fingerprinter(Recipe(Reader(TextFields(("text",))), 64, Matching()))
    first = encode({"_id": 0, "text": "<p>The first text loads the code, 第一篇文本加载代码。</p>"})
    fingerprints_of(fingerprinter, [first])


def _ignore_error(*_: object) -> None:
    """Print nothing when a worker cannot start: its parent reports it, or has just ended."""


for signum in (signal.SIGINT, signal.SIGTERM):
    # The parent handles signals.
    signal.signal(signum, signal.SIG_IGN)
# By default the fork server lives as long as the last worker.
end_with_parent()
try:
    _load()
except Exception as error:
    if is_shortage(error):
        # The parent reports that it cannot start workers.
        os._exit(StorageFull.exit_code)
    raise
sys.excepthook = _ignore_error
