"""Fingerprint batches in supervised worker processes, in order and with bounded memory."""

from __future__ import annotations

import logging
import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from dedup_job.errors import NO_MEMORY, StorageFull
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.pipeline import worker_tasks
from dedup_job.pipeline.compile_after_install import ensure_compiled
from dedup_job.pipeline.fork_server import fork_server
from dedup_job.pipeline.pool import Pool, Work, WorkerLost
from dedup_job.records import Batch, FingerprintedBatch, Fingerprints, chunked
from dedup_job.signals import SHUTDOWN

POISON = "poison"

log = logging.getLogger("dedup_job")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Capacity:
    """The limits of an engine.

    Attributes:
        workers: Number of worker processes.
        nbytes: Bytes of the records in flight and of their fingerprints; one batch is always accepted.
        record_seconds: Processor time that a single record may take.
    """

    workers: int = 2
    nbytes: int = 256 << 20
    record_seconds: float = 5.0


class FingerprintWorkers:
    """Fingerprints records in worker processes; use it in a `with` statement."""

    def __init__(self, recipe: Recipe, capacity: Capacity = Capacity()) -> None:
        self._recipe = recipe
        self._capacity = capacity

    def __enter__(self) -> FingerprintWorkers:
        server = fork_server()
        # Before workers start: each of them would compile the same.
        ensure_compiled()
        self._pool = Pool(self._recipe, self._capacity.workers, server)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.stop()

    def fingerprint_batches(self, batches: Iterable[Batch]) -> Iterator[FingerprintedBatch]:
        """Yield each batch with its fingerprints, in order, while workers are busy with later batches."""
        for batch, future in self._ahead(worker_tasks.work, batches):
            yield batch, self._isolate_failures(batch.raws, future)

    def fingerprint(self, raws: Sequence[bytes]) -> Fingerprints:
        """Fingerprint some records before the batches that wait, on all workers, and wait for the answer."""
        share = max(1, math.ceil(len(raws) / self._capacity.workers))
        parts = list(chunked(raws, share)) or [raws]
        futures = [self._submit(worker_tasks.work, part, is_urgent=True) for part in parts]
        return Fingerprints.join(list(map(self._isolate_failures, parts, futures)))

    def count_terms(self, batches: Iterable[Batch]) -> Iterator[tuple[int, Counter[str]]]:
        """Yield for each batch the number of texts, and for each term the number of texts that contain it.

        A batch with a record that crashes its worker, or uses up its time, counts as empty.
        """
        for batch, future in self._ahead(worker_tasks.count_terms, batches):
            yield _outcome(future) or self._again(worker_tasks.count_terms, batch.raws) or (0, Counter())

    def _ahead(self, work: Work[T], batches: Iterable[Batch]) -> Iterator[tuple[Batch, Future[T]]]:
        """Yield each batch with a future of the work on it, in order; later batches are submitted ahead."""
        waiting: deque[tuple[Batch, Future[T]]] = deque()
        for batch in batches:
            while waiting and self._is_full(waiting, batch.nbytes):
                yield waiting.popleft()
            waiting.append((batch, self._submit(work, batch.raws)))
        while waiting:
            yield waiting.popleft()

    def _is_full(self, waiting: Collection[tuple[Batch, Future[T]]], more: int) -> bool:
        if len(waiting) > 2 * self._capacity.workers:
            return True
        in_flight = sum(batch.nbytes + _outcome_bytes(future) for batch, future in waiting)
        return in_flight + more > self._capacity.nbytes

    def _submit(
        self, work: Work[T], raws: Sequence[bytes], *, is_fresh: bool = False, is_urgent: bool = False
    ) -> Future[T]:
        seconds = self._capacity.record_seconds * min(max(len(raws), 1), 6)
        return self._pool.submit(work, raws, seconds, is_fresh=is_fresh, is_urgent=is_urgent)

    def _isolate_failures(self, raws: Sequence[bytes], future: Future[Fingerprints]) -> Fingerprints:
        """Return the fingerprints; if the worker was lost, halve the records to find the cause."""
        if (prints := _outcome(future)) is not None:
            return prints
        action = "split" if len(raws) > 1 else "retry alone"
        log.debug("worker lost", extra={"fields": {"records": len(raws), "action": action}})
        if len(raws) > 1:
            middle = len(raws) // 2
            halves = [
                (half, self._submit(worker_tasks.work, half)) for half in (raws[:middle], raws[middle:])
            ]
            return Fingerprints.join([self._isolate_failures(*half) for half in halves])
        return self._again(worker_tasks.work, raws) or self._recipe.unchecked(POISON, raws[0])

    def _again(self, work: Work[T], raws: Sequence[bytes]) -> T | None:
        """Retry work in a fresh worker; return None if it crashes again, or uses up its time.

        Raises:
            StorageFull: If the worker is lost for a reason that the records did not cause.
        """
        try:
            return SHUTDOWN.result(self._submit(work, raws, is_fresh=True))
        except WorkerLost as lost:
            if lost.is_caused_by_work:
                return None
            raise StorageFull(
                f"two workers in a row were killed, stalled or got no memory, the second with only "
                f"{len(raws)} record(s); probably {NO_MEMORY}"
            ) from lost


def _outcome_bytes(future: Future[Any]) -> int:
    """Return the bytes of finished fingerprints; 0 for unfinished or other work."""
    is_there = future.done() and not future.cancelled() and future.exception() is None
    return future.result().nbytes if is_there and isinstance(future.result(), Fingerprints) else 0


def _outcome(future: Future[T]) -> T | None:
    """Wait for a result; return None if the worker was lost."""
    try:
        return SHUTDOWN.result(future)
    except WorkerLost:
        return None
