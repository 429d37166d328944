"""A proxy between a job and its server; subclasses decide how to serve a connection."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self

from pymongo.uri_parser import parse_uri


class Proxy:
    """Accepts connections; use it as a context manager."""

    # Options of its connection string.
    options = "directConnection=true"

    def __init__(self, uri: str) -> None:
        host, port = parse_uri(uri)["nodelist"][0]
        self._server = (host, port or 27017)
        self._listener = socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    @property
    def uri(self) -> str:
        """Connection string."""
        return f"mongodb://127.0.0.1:{self._listener.getsockname()[1]}/?{self.options}"

    def _accept(self) -> None:
        # The socket was closed.
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Serve a connection until it ends."""
        raise NotImplementedError
