"""A proxy that is a bad line: so many bytes a second on each connection, and each part comes late."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Self

from pymongo.uri_parser import parse_uri

PART = 4096


class SlowLine:
    """A line to a server; use it as a context manager."""

    def __init__(self, uri: str, bytes_a_second: float, delay: float = 0.0) -> None:
        host, port = parse_uri(uri)["nodelist"][0]
        self._server = (host, port or 27017)
        self._rate, self._delay = bytes_a_second, delay
        self._listener = socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    @property
    def uri(self) -> str:
        return f"mongodb://127.0.0.1:{self._listener.getsockname()[1]}/?directConnection=true"

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

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
