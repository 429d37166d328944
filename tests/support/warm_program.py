"""A program `dedup-job` for shell scripts that starts at once: a warm process is forked for each call.

As a program, this module listens at a socket. The client, `dedup-job`, sends its arguments, environment and
standard files.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.support.forked_commands import PR_SET_PDEATHSIG, run_command, warm_up
from tests.support.job import ROOT
from tests.support.waiting import HANG_SECONDS

CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({place!r})
    call = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(server, [len(call).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(call)
    code = server.recv(1)
sys.exit(code[0] if code else 137)
"""


class WarmProgram:
    """Puts `dedup-job` into a folder; use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._place = folder / "socket"

    def __enter__(self) -> Self:
        client = self.folder / "dedup-job"
        client.write_text(CLIENT.format(python=sys.executable, place=str(self._place)))
        client.chmod(0o755)
        command = [sys.executable, "-m", __name__, str(self._place)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
        assert self._process.stdout
        assert self._process.stdout.readline()  # it is warm
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(HANG_SECONDS)
        assert self._process.stdout
        self._process.stdout.close()


def main() -> None:
    """Serve calls until the process is killed, or its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    warm_up()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        sys.stdout.write("warm\n")
        sys.stdout.flush()
        # No child becomes a zombie.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            call, _ = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _answer(call)
            call.close()


def _answer(call: socket.socket) -> None:
    """Run a call in this child, and tell the client its exit code; never returns."""
    head, files, _, _ = socket.recv_fds(call, 8, 3)
    with call.makefile("rb") as stream:
        arguments, environment, folder = json.loads(stream.read(int.from_bytes(head, "big")))
    os.chdir(folder)
    code = run_command(arguments, environment, files)
    call.sendall(bytes([code]))
    os._exit(code)


if __name__ == "__main__":
    main()
