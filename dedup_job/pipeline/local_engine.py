"""Fingerprint batches in supervised worker processes: in order, with bounded memory, without hanging."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from dedup_job.errors import NO_MEMORY, StorageFull
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.pipeline import worker_process
from dedup_job.pipeline.fork_server import fork_server
from dedup_job.pipeline.pool import Pool, Work, WorkerLost
from dedup_job.records import Batch, FingerprintedBatch, Fingerprints
from dedup_job.signals import SHUTDOWN

POISON = "poison"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much the engine takes on at once.

    workers        processes
    nbytes         bytes of records in flight, and of what came of them; one batch is always taken
    record_seconds how much processor time a single record may take
    """

    workers: int = 2
    nbytes: int = 256 << 20
    record_seconds: float = 5.0


class LocalEngine:
    """Fingerprints on worker processes; use it as a context manager."""

    def __init__(self, recipe: Recipe, capacity: Capacity = Capacity()) -> None:
        self._recipe = recipe
        self._capacity = capacity

    def __enter__(self) -> LocalEngine:
        self._pool = Pool(self._recipe, self._capacity.workers, fork_server())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pool.stop()

    def fingerprinted(self, batches: Iterable[Batch]) -> Iterator[FingerprintedBatch]:
        """Yield each batch with its fingerprints, in order, while later ones are worked on."""
        for batch, future in self._ahead(worker_process.work, batches):
            yield batch, self._settled(batch.raws, future)

    def fingerprint(self, raws: Sequence[bytes]) -> Fingerprints:
        """Fingerprint some records and wait for the answer."""
        return self._settled(raws, self._submit(worker_process.work, raws))

    def counted_terms(self, batches: Iterable[Batch]) -> Iterator[tuple[int, Counter[str]]]:
        """Yield for each batch the number of texts, and for each term the texts that hold it.

        A batch with a record that crashes its worker, or uses its time up, is left out.
        """
        for batch, future in self._ahead(worker_process.count_terms, batches):
            yield _outcome(future) or self._again(worker_process.count_terms, batch.raws) or (0, Counter())

    def _ahead(self, work: Work[T], batches: Iterable[Batch]) -> Iterator[tuple[Batch, Future[T]]]:
        """Yield batches in order, each with the work on it, keeping the workers busy with later ones."""
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

    def _submit(self, work: Work[T], raws: Sequence[bytes], is_fresh: bool = False) -> Future[T]:
        seconds = self._capacity.record_seconds * min(max(len(raws), 1), 6)
        return self._pool.submit(work, raws, seconds, is_fresh)

    def _settled(self, raws: Sequence[bytes], future: Future[Fingerprints]) -> Fingerprints:
        """Return the fingerprints; isolate the record that kills or stalls its worker."""
        if (prints := _outcome(future)) is not None:
            return prints
        if len(raws) > 1:
            middle = len(raws) // 2
            halves = [
                (half, self._submit(worker_process.work, half)) for half in (raws[:middle], raws[middle:])
            ]
            return Fingerprints.join([self._settled(*half) for half in halves])
        return self._again(worker_process.work, raws) or self._recipe.unjudged(POISON, raws[0])

    def _again(self, work: Work[T], raws: Sequence[bytes]) -> T | None:
        """Do work again in a fresh worker; return None where that one, too, crashes or uses its time up.

        Raises StorageFull for a worker that is lost otherwise, which says nothing of the records.
        """
        try:
            return SHUTDOWN.result(self._submit(work, raws, is_fresh=True))
        except WorkerLost as lost:
            if lost.is_of_work:
                return None
            raise StorageFull(
                f"a worker was killed, stood still or got no memory, alone with {len(raws)} record(s) and "
                f"not for the first time; probably {NO_MEMORY}"
            ) from lost


def _outcome_bytes(future: Future[Any]) -> int:
    """Return the bytes of fingerprints that have come already; 0 for other work."""
    is_there = future.done() and not future.cancelled() and future.exception() is None
    return future.result().nbytes if is_there and isinstance(future.result(), Fingerprints) else 0


def _outcome(future: Future[T]) -> T | None:
    """Return a result, or None when the worker was lost over these records."""
    try:
        return SHUTDOWN.result(future)
    except WorkerLost:
        return None
