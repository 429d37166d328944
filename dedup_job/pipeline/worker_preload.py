"""Load once, in the fork server, what nearly every worker needs."""

from __future__ import annotations

import os
import signal
import sys

from dedup_job.errors import StorageFull, is_shortage
from dedup_job.pipeline.fork_server import end_with_parent

# Bytes.  A batch of usual records takes pieces of up to 8 MiB.  To ask the system for each of them anew, and
# to give it back, took a quarter of a worker's time (scripts/README.md has the figures).
LARGE = 8 << 20


def _load() -> None:
    from bson import encode

    from dedup_job.fingerprint.fingerprinter import Fingerprinter
    from dedup_job.fingerprint.recipe import Matching, Reader, Recipe
    from dedup_job.pipeline import process_memory
    from dedup_job.pipeline.worker_process import fingerprints_of
    from dedup_job.text.fields import TextFields

    process_memory.work_in_batches(LARGE)
    fingerprinter = Fingerprinter(Recipe(Reader(TextFields(("text",))), 64, Matching()))
    first = encode({"_id": 0, "text": "<p>The first text loads the code, 第一篇文本加载代码。</p>"})
    fingerprints_of(fingerprinter, [first])


def _nothing(*_: object) -> None:
    """Say nothing of a worker that cannot begin: its parent notices, or has ended in that moment."""


for signum in (signal.SIGINT, signal.SIGTERM):
    signal.signal(signum, signal.SIG_IGN)  # the parent's business
end_with_parent()  # else it lives as long as the last of its children, the workers
try:
    _load()
except Exception as error:
    if is_shortage(error):
        os._exit(StorageFull.exit_code)  # the parent finds no process to fork workers from, and says why
    raise
sys.excepthook = _nothing
