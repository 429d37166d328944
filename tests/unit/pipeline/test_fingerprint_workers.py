from __future__ import annotations

import _thread
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from unittest.mock import Mock

import pytest
from bson import encode

from dedup_job.errors import DedupError, StorageFull
from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.recipe import Recipe, Resource
from dedup_job.pipeline import pool, worker_tasks
from dedup_job.pipeline.fingerprint_workers import POISON, Capacity, FingerprintWorkers
from dedup_job.records import Batch, Fingerprints
from tests.support import worker_faults
from tests.support.recipes import PLAIN
from tests.support.waiting import HANG_SECONDS, becomes

T = TypeVar("T")

ROOT = Path(__file__).parents[3]
WORDS = [
    "red",
    "orange",
    "yellow",
    "green",
    "blue",
    "indigo",
    "violet",
    "black",
    "white",
    "tan",
    "pink",
    "grey",
]


def recipe_with(idf_table: Path) -> Recipe:
    return replace(PLAIN, idf_table=Resource.at(idf_table))


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A recipe that is quick to make ready."""
    path = tmp_path_factory.mktemp("idf") / "idf.txt"
    path.write_text("red 2.0\nblue 3.0\n", "utf-8")
    return recipe_with(path)


@pytest.fixture
def _fragile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_tasks, "work", worker_faults.work)
    monkeypatch.setattr(worker_tasks, "count_terms", worker_faults.count_terms)


def batch_of(*texts: str) -> Batch:
    raws = [encode({"_id": number, "text": text}) for number, text in enumerate(texts)]
    return Batch([raw[:10] for raw in raws], raws)


def text_of(number: int) -> str:
    return " ".join(WORDS[number % 12 :] + WORDS[: number % 12 // 2]) + f" n{number}"


BATCHES = [batch_of(*(text_of(7 * batch + row) for row in range(5))) for batch in range(12)]


def as_values(prints: Fingerprints) -> tuple[Any, ...]:
    columns = (
        prints.bits,
        prints.has_fingerprint,
        prints.digests,
        prints.hashes,
        prints.shingles.offsets,
        prints.shingles.values,
    )
    return (list(prints.reasons), *(column.tolist() for column in columns))


def within_reason(ask: Callable[[], T]) -> T:
    """Return the answer; an engine that hangs fails the test instead of holding it up for ever."""
    answers: list[T | BaseException] = []

    def asking() -> None:
        try:
            answers.append(ask())
        except BaseException as error:
            answers.append(error)

    thread = threading.Thread(target=asking, daemon=True)
    thread.start()
    thread.join(HANG_SECONDS)
    assert answers, "the engine hangs"
    if isinstance(answers[0], BaseException):
        raise answers[0]
    return answers[0]


def fingerprinted(
    engine: FingerprintWorkers, batches: Sequence[Batch]
) -> list[tuple[Batch, tuple[Any, ...]]]:
    return within_reason(
        lambda: [(batch, as_values(prints)) for batch, prints in engine.fingerprint_batches(batches)]
    )


def worker_pids() -> list[int]:
    return [child.pid for child in multiprocessing.active_children() if child.pid]


@pytest.mark.parametrize("workers", [1, 2])
def test_batches_come_back_in_order_and_alike_for_any_number_of_workers(recipe: Recipe, workers: int) -> None:
    alone = Fingerprinter(recipe)
    with FingerprintWorkers(recipe, Capacity(workers)) as engine:
        found = fingerprinted(engine, BATCHES)
    assert [batch for batch, _ in found] == BATCHES
    assert [values for _, values in found] == [as_values(alone(batch.raws)) for batch in BATCHES]


def test_records_that_are_waited_for_go_to_all_workers_before_the_batches_that_wait(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[tuple[int, bool]] = []
    submit = pool.Pool.submit

    def noted(self: pool.Pool, work: Any, raws: Sequence[bytes], *args: Any, **options: Any) -> Any:
        submitted.append((len(raws), options["is_urgent"]))
        return submit(self, work, raws, *args, **options)

    monkeypatch.setattr(pool.Pool, "submit", noted)
    raws = batch_of(*map(text_of, range(7))).raws
    with FingerprintWorkers(recipe, Capacity(workers=3)) as engine:
        fingerprinted(engine, BATCHES[:1])
        assert as_values(engine.fingerprint(raws)) == as_values(Fingerprinter(recipe)(raws))
    assert submitted == [(5, False), (3, True), (3, True), (1, True)]


@pytest.fixture
def engine(recipe: Recipe, _fragile: None) -> Iterator[FingerprintWorkers]:
    """Two workers that obey orders in the text."""
    with FingerprintWorkers(recipe, Capacity(workers=2, record_seconds=0.4)) as engine:
        yield engine


def test_a_worker_that_is_killed_is_replaced_and_nothing_else_changes(
    recipe: Recipe, engine: FingerprintWorkers, tmp_path: Path
) -> None:
    dying = batch_of(text_of(1), f"KILL-ONCE {tmp_path / 'flag'} {text_of(2)}", text_of(3))
    batches = [*BATCHES[:3], dying, *BATCHES[3:6]]
    alone = Fingerprinter(recipe)
    assert fingerprinted(engine, batches) == [(batch, as_values(alone(batch.raws))) for batch in batches]
    assert (tmp_path / "flag").exists()


@pytest.mark.long
@pytest.mark.parametrize("order", ["CRASH", "SPIN"])
def test_a_record_that_takes_its_worker_down_is_poison_and_its_neighbours_are_fine(
    recipe: Recipe, engine: FingerprintWorkers, order: str
) -> None:
    texts = [text_of(1), f"{order} me", text_of(2)]
    ((_, values),) = fingerprinted(engine, [batch_of(*texts)])
    expected = as_values(Fingerprinter(recipe)(batch_of(*texts).raws))
    assert values[0] == ["", POISON, ""]
    for column, wanted in zip(values[1:4], expected[1:4], strict=True):
        assert [column[row] for row in (0, 2)] == [wanted[row] for row in (0, 2)]
    assert values[4] == expected[4], "the hash of the raw record is known even so"


@pytest.mark.parametrize("order", ["KILL", "STALL", "SHORT"])
def test_a_record_whose_worker_is_killed_stands_still_or_gets_no_memory_gets_no_verdict(
    engine: FingerprintWorkers, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """Alone in a fresh worker it goes the same way: that is this machine's doing, and the run ends."""
    monkeypatch.setattr(pool, "STALL_SECONDS", 0.5)
    monkeypatch.setattr(pool, "CHECK_SECONDS", 0.1)
    with pytest.raises(StorageFull, match="not enough memory"):
        fingerprinted(engine, [batch_of(text_of(1), f"{order} me", text_of(2))])
    with pytest.raises(StorageFull, match="not enough memory"):
        within_reason(lambda: list(engine.count_terms([batch_of(f"{order} me")])))


def test_a_worker_that_is_kept_from_the_processor_for_long_does_not_lose_its_record(
    recipe: Recipe, engine: FingerprintWorkers
) -> None:
    """The limit is one of processor time: SLOW takes twice that by the clock, asleep."""
    texts = [f"SLOW {text_of(1)}", text_of(2)]
    ((_, values),) = fingerprinted(engine, [batch_of(*texts)])
    assert values == as_values(Fingerprinter(recipe)(batch_of(*texts).raws))


def test_counting_goes_on_without_a_batch_that_kills_its_worker(engine: FingerprintWorkers) -> None:
    batches = [batch_of("red blue"), batch_of("CRASH"), batch_of("red")]
    counted = within_reason(lambda: list(engine.count_terms(batches)))
    assert counted == [(1, Counter(red=1, blue=1)), (0, Counter()), (1, Counter(red=1))]


def test_an_error_in_the_work_ends_the_run_with_a_name_and_no_text(engine: FingerprintWorkers) -> None:
    with pytest.raises(DedupError, match="RuntimeError") as caught:
        fingerprinted(engine, [batch_of("RAISE secret words")])
    assert "secret" not in str(caught.value)


def test_an_idle_worker_that_is_killed_is_replaced(recipe: Recipe, engine: FingerprintWorkers) -> None:
    """The kernel may take any process when memory is short, also one that has nothing to do just now."""
    alone = as_values(Fingerprinter(recipe)(BATCHES[0].raws))
    fingerprinted(engine, BATCHES[:1])
    for pid in worker_pids():
        os.kill(pid, signal.SIGKILL)
    assert fingerprinted(engine, BATCHES[:1]) == [(BATCHES[0], alone)]


def test_the_companions_of_a_killed_worker_are_not_left_behind(recipe: Recipe) -> None:
    with FingerprintWorkers(recipe, Capacity(workers=2)) as engine:
        fingerprinted(engine, BATCHES[:1])
        assert becomes(lambda: len(worker_pids()) == 2)
        killed, companion = worker_pids()
        os.kill(killed, signal.SIGKILL)
        fingerprinted(engine, BATCHES[:1])
    assert becomes(lambda: not _is_running(companion)), f"still running: {companion}"


@pytest.mark.longest
def test_workers_that_are_killed_or_stopped_at_any_moment_change_nothing(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while they take records from a pipe or send fingerprints through one."""
    monkeypatch.setattr(pool, "STALL_SECONDS", 1.0)
    long = [batch_of(*(text_of(number + row) * 40 for row in range(40))) for number in range(60)]
    alone = Fingerprinter(recipe)
    rng = Random(7)
    with FingerprintWorkers(recipe, Capacity(workers=2, record_seconds=0.1)) as engine:
        found = engine.fingerprint_batches(long)
        for batch in long:
            if rng.random() < 0.4 and (pids := worker_pids()):
                with suppress(ProcessLookupError):
                    os.kill(rng.choice(pids), rng.choice((signal.SIGKILL, signal.SIGSTOP)))
            assert as_values(within_reason(lambda: next(found))[1]) == as_values(alone(batch.raws))


def test_a_fork_server_that_is_killed_is_replaced(recipe: Recipe) -> None:
    alone = as_values(Fingerprinter(recipe)(BATCHES[0].raws))
    with FingerprintWorkers(recipe, Capacity(workers=2)) as engine:
        for _ in range(3):
            server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
            os.kill(server, signal.SIGKILL)
            assert fingerprinted(engine, BATCHES[:1]) == [(BATCHES[0], alone)]


def test_a_worker_that_is_started_while_another_thread_starts_the_fork_server_anew_is_tried_again(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's address is None in that moment."""
    server = forkserver._forkserver  # type: ignore[attr-defined]
    connect, asked = server.connect_to_new_process, list[Sequence[int]]()

    def connected(fds: Sequence[int]) -> Any:
        asked.append(fds)
        with monkeypatch.context() as patch:
            if len(asked) < 3:
                patch.setattr(server, "ensure_running", lambda: None)
                patch.setattr(server, "_forkserver_address", None)
            return connect(fds)

    monkeypatch.setattr(forkserver, "connect_to_new_process", connected)
    with FingerprintWorkers(recipe, Capacity(workers=1)) as engine:
        alone = as_values(Fingerprinter(recipe)(BATCHES[0].raws))
        assert fingerprinted(engine, BATCHES[:1]) == [(BATCHES[0], alone)]
    assert len(asked) == 3


class Unreadable:
    """An answer that nobody can read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)


def unreadable(_: Sequence[bytes]) -> Unreadable:
    return Unreadable()


@pytest.mark.long
def test_answers_that_nobody_can_read_end_the_run_and_hold_nobody_up(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FingerprintWorkers(recipe, Capacity(workers=1)) as engine:
        alone = as_values(Fingerprinter(recipe)(BATCHES[0].raws))
        with monkeypatch.context() as patch:
            patch.setattr(worker_tasks, "work", unreadable)
            with pytest.raises(DedupError, match="ValueError"):
                fingerprinted(engine, BATCHES[:3])
        assert fingerprinted(engine, BATCHES[:1]) == [(BATCHES[0], alone)]


def test_where_no_thread_can_be_had_the_run_ends_for_want_of_memory(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = RuntimeError("can't start new thread")
    monkeypatch.setattr(_thread, "start_new_thread", Mock(side_effect=error))
    with (
        pytest.raises(StorageFull, match="not enough memory"),
        FingerprintWorkers(recipe, Capacity(workers=1)),
    ):
        pass


def test_all_threads_are_there_when_the_engine_is(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    with FingerprintWorkers(recipe, Capacity(workers=2, record_seconds=0.4)) as engine:
        monkeypatch.setattr(_thread, "start_new_thread", Mock(side_effect=AssertionError("a late thread")))
        assert [batch for batch, _ in engine.fingerprint_batches(BATCHES)] == BATCHES


def test_a_worker_that_could_not_be_prepared_is_not_lost(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = iter([MemoryError()])
    prepare = pool._Worker.prepare

    def fails_once(worker: pool._Worker) -> None:
        for error in outcomes:
            raise error
        prepare(worker)

    monkeypatch.setattr(pool._Worker, "prepare", fails_once)
    with FingerprintWorkers(recipe, Capacity(workers=1)) as engine:
        assert [batch for batch, _ in fingerprinted(engine, BATCHES[:1])] == BATCHES[:1]


def gone_at_once(*_: object) -> None:
    os._exit(1)


def test_workers_that_die_as_soon_as_they_start_end_the_run_and_say_so(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_serve", gone_at_once)
    with FingerprintWorkers(recipe) as engine, pytest.raises(StorageFull, match="not enough memory"):
        fingerprinted(engine, BATCHES[:1])


def test_workers_that_cannot_start_end_the_run_and_say_why(tmp_path: Path) -> None:
    path = tmp_path / "idf.txt"
    path.write_text("fox 1\n", "utf-8")
    recipe = recipe_with(path)
    path.write_text("fox 2\n", "utf-8")
    with FingerprintWorkers(recipe) as engine, pytest.raises(DedupError, match=r"idf\.txt changed"):
        fingerprinted(engine, BATCHES[:1])


def test_an_empty_question_has_an_empty_answer(engine: FingerprintWorkers) -> None:
    assert len(within_reason(lambda: engine.fingerprint([]))) == 0
    assert fingerprinted(engine, []) == []


class Reading:
    """A source that knows how many batches were taken from it."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches
        self.taken = 0

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._batches:
            self.taken += 1
            yield batch


@pytest.mark.parametrize(("nbytes", "ahead"), [(1, 2), (1 << 30, 6)])
def test_the_source_is_read_ahead_within_bounds(recipe: Recipe, nbytes: int, ahead: int) -> None:
    source = Reading(BATCHES)
    with FingerprintWorkers(recipe, Capacity(workers=2, nbytes=nbytes)) as engine:
        for done, _ in enumerate(engine.fingerprint_batches(source)):
            assert source.taken <= done + ahead
    assert source.taken == len(BATCHES)


PARENT = """
import multiprocessing, sys, time
from pathlib import Path
from bson import encode
from dedup_job.records import Batch
from dedup_job.pipeline.fingerprint_workers import Capacity
from dedup_job.pipeline.fingerprint_workers import FingerprintWorkers
from tests.unit.pipeline.test_fingerprint_workers import recipe_with

if __name__ == "__main__":
    recipe = recipe_with(Path(sys.argv[1]))
    with FingerprintWorkers(recipe, Capacity(workers=2)) as engine:
        engine.fingerprint([encode({"_id": 1, "text": "red"})])
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        time.sleep(60)
"""


@pytest.mark.long
def test_workers_die_with_a_parent_that_is_killed(recipe: Recipe, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT, "utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    parent = subprocess.Popen(
        [sys.executable, str(script), recipe.idf_table.path],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout
        pids = list(map(int, parent.stdout.readline().split()))
        parent.kill()
    assert len(pids) == 2
    assert becomes(lambda: not any(map(_is_running, pids))), f"still running: {pids}"


def test_no_worker_is_left_behind(recipe: Recipe) -> None:
    with FingerprintWorkers(recipe) as engine:
        fingerprinted(engine, BATCHES[:2])
        pids = worker_pids()
    assert pids
    assert becomes(lambda: not any(map(_is_running, pids)))


def _is_running(pid: int) -> bool:
    """Tell whether there is such a process; one that ended and was not waited for does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.long
def test_fingerprints_that_wait_to_be_decided_count_as_in_flight(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records alone of ten batches would fit."""
    source = Reading(BATCHES * 4)
    sent: list[Future[Any]] = []
    submit = FingerprintWorkers._submit
    monkeypatch.setattr(
        FingerprintWorkers, "_submit", lambda *question: (sent.append(one := submit(*question)), one)[1]
    )
    with FingerprintWorkers(
        recipe, Capacity(workers=8, nbytes=10 * max(batch.nbytes for batch in BATCHES))
    ) as engine:
        for done, (batch, prints) in enumerate(engine.fingerprint_batches(source)):
            assert prints.nbytes > 2 * batch.nbytes
            wait(sent)
            assert done < 20 or source.taken <= done + 8


def test_large_records_are_fingerprinted_a_few_at_a_time_and_as_all_at_once(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    raws = [raw for batch in BATCHES for raw in batch.raws]
    monkeypatch.setattr(worker_tasks, "_fingerprinter", Fingerprinter(recipe))
    whole = as_values(worker_tasks.work(raws))
    counted = worker_tasks.count_terms(raws)
    asked: list[int] = []
    made = Fingerprinter.__call__
    monkeypatch.setattr(
        Fingerprinter, "__call__", lambda self, some: (asked.append(len(some)), made(self, some))[1]
    )
    monkeypatch.setattr(worker_tasks, "PIECE_BYTES", 3 * min(map(len, raws)))
    assert as_values(worker_tasks.work(raws)) == whole
    assert worker_tasks.count_terms(raws) == counted
    assert sum(asked) == len(raws)
    assert max(asked) <= 3
