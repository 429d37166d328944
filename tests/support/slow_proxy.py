"""A proxy that simulates a slow connection: a limited number of bytes per second, and a delay."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

from tests.support.proxy import Proxy

PART = 4096


class SlowLine(Proxy):
    """A slow connection to a server; use it as a context manager."""

    def __init__(self, uri: str, bytes_a_second: float, delay: float = 0.0) -> None:
        super().__init__(uri)
        self._rate, self._delay = bytes_a_second, delay

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._server) as server:
            back = threading.Thread(target=self._pass_on, args=(server, client), daemon=True)
            back.start()
            self._pass_on(client, server)
            back.join()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while part := one.recv(PART):
                time.sleep(self._delay + len(part) / self._rate)
                other.sendall(part)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
