"""Who holds a lease, and when it is proven that this process is no more."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from dedup_job.ledger import head
from dedup_job.ledger.head import Holder
from tests.support.waiting import becomes

SLEEPS = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]


def holder_of(pid: int) -> Holder:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return replace(Holder.me(), pid=pid, start=int(fields[19]))


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(SLEEPS, stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_holder_is_stored_with_all_that_tells_it_from_others() -> None:
    me = Holder.me()
    assert Holder.read(asdict(me)) == me
    assert me.boot
    assert me.namespace.startswith("pid:")
    assert me.start > 0


def test_a_process_that_lives_is_not_gone_and_one_that_has_ended_is(child: subprocess.Popen[bytes]) -> None:
    holder = holder_of(child.pid)
    assert (holder.is_near(), holder.is_gone()) == (True, False)
    child.kill()
    assert becomes(holder.is_gone)  # as soon as it has ended, though nobody has asked for it
    child.wait()
    assert holder.is_gone()


def test_another_process_with_the_same_number_is_not_the_holder(child: subprocess.Popen[bytes]) -> None:
    assert replace(holder_of(child.pid), start=1).is_gone()


@pytest.mark.parametrize(
    "elsewhere", [{"boot": "another"}, {"namespace": "pid:[1]"}, {"boot": ""}, {"namespace": ""}], ids=str
)
def test_nothing_is_proven_of_a_process_elsewhere_whatever_its_host_is_called(
    elsewhere: dict[str, str],
) -> None:
    """Two containers, or two machines, may have one host name, and number 1 is in each of them."""
    for pid in (1, Holder.me().pid, 2**22 + 1):
        holder = replace(Holder.me(), pid=pid, **elsewhere)
        assert (holder.is_near(), holder.is_gone()) == (False, False)


def test_a_lease_of_an_earlier_version_is_waited_for() -> None:
    me = Holder.me()
    assert not Holder.read({"host": me.host, "boot": me.boot, "pid": 2**22 + 1}).is_gone()


def test_what_this_process_held_before_is_free() -> None:
    assert Holder.me().is_gone()


def test_where_the_system_tells_nothing_nothing_is_proven(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(head, "PROCESSES", tmp_path)
    monkeypatch.setattr(head, "BOOT_ID", tmp_path / "none")
    me = Holder.me()
    assert me.is_gone()
    assert not replace(me, pid=2**22 + 1).is_gone()
