"""The server of one's own: writable, on the loopback only, and gone when its holder is."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import socketserver
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any, Self
from unittest.mock import Mock

import pytest
from pymongo import MongoClient, WriteConcern
from pymongo.errors import OperationFailure

from scripts.dev import local_mongod
from scripts.dev.local_mongod import LocalMongod, ServerError, open_server
from tests.support.processes import alive
from tests.support.waiting import HANG_SECONDS, becomes


class Hesitation(socketserver.BaseRequestHandler):
    """Says nothing for a second, and hangs up."""

    def handle(self) -> None:
        time.sleep(1)


class Squatter(socketserver.ThreadingTCPServer):
    """Holds a port."""

    allow_reuse_address = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), Hesitation)

    def __enter__(self) -> Self:
        Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


@contextlib.contextmanager
def client_of(server: LocalMongod) -> Iterator[MongoClient[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](server.uri, serverSelectionTimeoutMS=1_000 * HANG_SECONDS) as client:
        yield client


def count(server: LocalMongod) -> int:
    with client_of(server) as client:
        return client["test"]["things"].count_documents({})


def put(server: LocalMongod) -> None:
    with client_of(server) as client:
        things = client["test"].get_collection("things", write_concern=WriteConcern("majority", j=True))
        things.insert_one({})


def test_it_is_the_primary_of_a_set_of_one() -> None:
    with LocalMongod() as server, client_of(server) as client:
        hello = client.admin.command("hello")
        put(server)

        assert hello["isWritablePrimary"]
        assert hello["hosts"] == [f"127.0.0.1:{server.port}"]
        assert count(server) == 1


def test_it_can_be_a_standalone() -> None:
    with LocalMongod(replica_set=False) as server, client_of(server) as client:
        put(server)

        assert "setName" not in client.admin.command("hello")


def test_it_listens_on_the_loopback_only() -> None:
    with LocalMongod() as server, client_of(server) as client:
        net = client.admin.command("getCmdLineOpts")["parsed"]["net"]

        assert net["bindIp"] == "127.0.0.1"
        assert not Path(f"/tmp/mongodb-{server.port}.sock").exists()


def test_a_temporary_one_leaves_nothing_behind() -> None:
    with LocalMongod() as server:
        directory, pid = server.dbpath, server.pid

    assert not directory.exists()
    assert not alive(pid)


def test_a_failing_block_stops_it_too() -> None:
    pids: list[int] = []

    def fail(server: LocalMongod) -> None:
        with server:
            pids.append(server.pid)
            raise KeyboardInterrupt

    server = LocalMongod()
    with pytest.raises(KeyboardInterrupt):
        fail(server)

    assert not alive(pids[0])
    assert not server.dbpath.exists()


@pytest.mark.long
def test_data_stays_in_a_named_directory(tmp_path: Path) -> None:
    for times_before in range(2):
        with LocalMongod(tmp_path / "db") as server:
            assert count(server) == times_before
            put(server)


def test_after_a_crash_it_comes_back_on_the_same_port() -> None:
    with LocalMongod() as server:
        put(server)
        port = server.port
        server.stop(signal.SIGKILL)
        server.start()

        assert server.port == port
        assert count(server) == 1


@pytest.mark.long
def test_after_a_crash_it_comes_back_although_its_port_was_taken() -> None:
    with LocalMongod() as server:
        put(server)
        server.stop(signal.SIGKILL)
        port = server.port
        with Squatter(port):
            server.start()

            assert server.port != port
            assert count(server) == 1


def test_a_port_taken_at_the_last_moment_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    lost, free = local_mongod._free_port(0), local_mongod._free_port(0)
    monkeypatch.setattr(local_mongod, "_free_port", Mock(side_effect=[lost, free]))
    with Squatter(lost), LocalMongod() as server:
        put(server)

        assert server.port == free


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with LocalMongod(tmp_path) as first:
        with pytest.raises(ServerError, match="another mongod is using"):
            LocalMongod(tmp_path).start()
        put(first)

        assert count(first) == 1


def test_with_auth_a_stranger_is_refused_and_a_reader_only_reads() -> None:
    with LocalMongod(auth=True) as server:
        put(server)
        with client_of(server) as root:
            root.admin.command(
                "createUser", "reader", pwd="p@ss/word", roles=[{"role": "read", "db": "test"}]
            )
        with MongoClient[dict[str, Any]](server.uri_as("reader", "p@ss/word")) as reader:
            assert reader["test"]["things"].count_documents({}) == 1
            with pytest.raises(OperationFailure, match="not authorized"):
                reader["test"]["things"].insert_one({})
        with (
            MongoClient[dict[str, Any]]("127.0.0.1", server.port) as stranger,
            pytest.raises(OperationFailure, match="authentication"),
        ):
            stranger["test"]["things"].find_one()


@pytest.mark.long
@pytest.mark.parametrize("replica_set", [True, False])
def test_with_auth_it_comes_back_on_another_port(replica_set: bool, tmp_path: Path) -> None:
    with LocalMongod(tmp_path, replica_set=replica_set, auth=True) as server:
        put(server)
    with Squatter(server.port), LocalMongod(tmp_path, replica_set=replica_set, auth=True) as server:
        assert count(server) == 1


def test_a_mongod_that_will_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalMongod, "_options", lambda _self: ["--nonsense"])
    server = LocalMongod()

    with pytest.raises(ServerError, match="nonsense"), server:
        pass

    assert not server.dbpath.exists()


def test_without_any_mongod_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(local_mongod, "MONGOD_WHEEL", "no-such-wheel")

    with pytest.raises(ServerError, match="put one on PATH, or set DEDUP_TEST_URI"):
        local_mongod.find_mongod()


def test_a_mongod_on_path_is_preferred(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mongod = tmp_path / "mongod"
    mongod.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert local_mongod.find_mongod() == mongod


def test_a_missing_libcurl_is_named() -> None:
    words = "mongod: error while loading shared libraries: libcurl.so.4: cannot open shared object file"

    assert "apt-get install libcurl4" in local_mongod._reason(127, words, Path("db"))


def test_a_given_server_is_used_and_none_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEDUP_TEST_URI", "mongodb://example.org/")
    monkeypatch.setattr(LocalMongod, "start", pytest.fail)

    with open_server() as server:
        assert server.uri == "mongodb://example.org/"


def command(program: str, *options: str) -> list[str]:
    return [sys.executable, local_mongod.__file__, *options, "--", sys.executable, "-c", program]


@pytest.fixture
def no_given_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEDUP_TEST_URI", raising=False)


@pytest.mark.usefixtures("no_given_server")
def test_the_command_gets_a_writable_server_and_its_exit_code_is_passed_on() -> None:
    program = """
import os, sys, pymongo
assert os.environ["DEDUP_SOURCE_URI"] == os.environ["DEDUP_TARGET_URI"]
pymongo.MongoClient(os.environ["DEDUP_TARGET_URI"]).test.things.insert_one({})
sys.exit(7)
"""

    assert subprocess.run(command(program)).returncode == 7


def test_the_command_gets_the_given_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEDUP_TEST_URI", "mongodb://example.org/")
    program = "import os; print(os.environ['DEDUP_SOURCE_URI'])"
    done = subprocess.run(command(program), capture_output=True, text=True)

    assert done.stdout == "mongodb://example.org/\n"
    assert "DEDUP_TEST_URI" in done.stderr


@pytest.mark.usefixtures("no_given_server")
def test_a_command_that_is_not_there_is_named() -> None:
    done = subprocess.run(
        [sys.executable, local_mongod.__file__, "--", "no-such-command"], capture_output=True, text=True
    )

    assert done.returncode == 69
    assert done.stderr == "local_mongod: cannot run no-such-command: No such file or directory\n"


# Tells its own pid and that of the server, then waits for a signal.
WAITING = """
import os, pymongo, time
client = pymongo.MongoClient(os.environ["DEDUP_SOURCE_URI"])
print(os.getpid(), client.admin.command("serverStatus")["pid"], flush=True)
time.sleep(600)
"""


@pytest.mark.usefixtures("no_given_server")
def test_a_terminated_command_takes_its_server_along(tmp_path: Path) -> None:
    with subprocess.Popen(command(WAITING, "--dbpath", str(tmp_path)), stdout=subprocess.PIPE) as wrapper:
        assert wrapper.stdout
        waiting, server = map(int, wrapper.stdout.readline().split())
        wrapper.terminate()

        assert wrapper.wait(HANG_SECONDS) == 128 + signal.SIGTERM
        assert not alive(waiting)
        assert not alive(server)


# On Ctrl-C it takes its time, uses the server once more, and ends with a code of its own.
FINISHING = """
import signal, sys
def finish(*_):
    time.sleep(1)
    client.admin.command("ping")
    sys.exit(5)
signal.signal(signal.SIGINT, finish)
"""


@pytest.mark.long
@pytest.mark.usefixtures("no_given_server")
def test_ctrl_c_is_left_to_the_command(tmp_path: Path) -> None:
    line = command(FINISHING + WAITING, "--dbpath", str(tmp_path))
    with subprocess.Popen(line, stdout=subprocess.PIPE, start_new_session=True) as wrapper:
        assert wrapper.stdout
        _, server = map(int, wrapper.stdout.readline().split())
        os.killpg(wrapper.pid, signal.SIGINT)  # as a terminal does

        assert wrapper.wait(HANG_SECONDS) == 5
        assert not alive(server)


if sys.platform == "linux":

    @pytest.mark.usefixtures("no_given_server")
    def test_the_server_of_a_killed_holder_stops(tmp_path: Path) -> None:
        with subprocess.Popen(command(WAITING, "--dbpath", str(tmp_path)), stdout=subprocess.PIPE) as wrapper:
            assert wrapper.stdout
            waiting, server = map(int, wrapper.stdout.readline().split())
            wrapper.kill()

            assert becomes(lambda: not alive(server))
            os.kill(waiting, signal.SIGKILL)


if sys.platform == "linux" and platform.machine() == "x86_64":

    def test_the_libcurl_of_pycurl_serves_where_the_system_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ctypes, "CDLL", Mock(side_effect=OSError))
        with LocalMongod() as server:
            put(server)
            loaded = Path(f"/proc/{server.pid}/maps").read_text()

        assert "pycurl.libs/libcurl-" in loaded


def test_quick_data_is_in_memory_only_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(local_mongod, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(local_mongod, "ROOM", 1)
    assert local_mongod.memory_folder() == tmp_path
    assert LocalMongod(is_quick=True).dbpath.parent == tmp_path
    monkeypatch.setattr(local_mongod, "ROOM", 1 << 60)
    assert local_mongod.memory_folder() is None
    monkeypatch.setattr(local_mongod, "SHARED_MEMORY", tmp_path / "missing")
    assert local_mongod.memory_folder() is None
