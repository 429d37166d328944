"""What nearly every worker needs, loaded once in the process that all workers are forked from."""

from __future__ import annotations

import gc
import signal
import sys


def _load() -> None:
    from dedup_job import compiled
    from dedup_job.engine import worker
    from dedup_job.fingerprint.characters import lower_case
    from dedup_job.fingerprint.fingerprinter import shared_idf
    from dedup_job.fingerprint.idf import jieba_idf_path
    from dedup_job.fingerprint.recipe import Resource
    from dedup_job.fingerprint.scan import simple_texts
    from dedup_job.fingerprint.segment import rust_segmenter

    worker.end_with_parent()  # else it lives as long as the last of its children, the workers
    compiled.load()
    shared_idf(Resource.at(jieba_idf_path()))
    rust_segmenter(())
    lower_case([])  # makes its table
    simple_texts([""])


def _nothing(*_: object) -> None:
    """Say nothing of a worker that cannot begin: its parent notices, or has ended in that moment."""


for signum in (signal.SIGINT, signal.SIGTERM):
    signal.signal(signum, signal.SIG_IGN)  # the parent's business
gc.disable()  # what is made here stays
_load()
gc.freeze()
sys.excepthook = _nothing
