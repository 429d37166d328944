"""A proxy between a job and its server that counts commands, and causes a fault at one of them.

It understands as much of MongoDB's wire protocol as it needs: whole messages, one request and reply at a
time. Only commands with a session count: all of a job's own commands have one, and the driver's heartbeats
have none.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bson import decode
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from tests.support.proxy import Proxy

HEADER = struct.Struct("<iiii")
OP_MSG = 2013
BODY, DOCUMENTS = 0, 1
RAW: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)


class Kind(StrEnum):
    """The kind of a fault."""

    # The job is killed before the command reaches the server.
    KILLED_BEFORE = "killed before"
    # The job is killed after the server has executed the command.
    KILLED_AFTER = "killed after"
    # The connection closes before the command reaches the server.
    REQUEST_LOST = "request lost"
    # The connection closes after the server has executed the command.
    REPLY_LOST = "reply lost"
    # The connection closes, and so does every later connection.
    GONE = "gone for good"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at `times` commands in a row, beginning with command `number`, counted from 1."""

    kind: Kind
    number: int
    times: int = 1

    def strikes(self, number: int) -> bool:
        return self.number <= number < self.number + self.times


@dataclass(frozen=True, slots=True)
class Command:
    """A command on the wire; `documents` are the documents of an insert, update or delete."""

    body: dict[str, Any]
    documents: tuple[Any, ...]

    @property
    def name(self) -> str:
        return next(iter(self.body))


class Wire(Proxy):
    """A proxy for one job at a time; use it as a context manager."""

    # Only polled heartbeats consist of one request and one reply.
    options = "directConnection=true&serverMonitoringMode=poll"

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._lock = threading.Lock()
        self.arm(None)

    def arm(
        self, fault: Fault | None, kill: Callable[[], None] = lambda: None, records: bool = False
    ) -> None:
        """Restart the count, and cause this fault at its command."""
        with self._lock:
            self._fault, self._kill, self._records = fault, kill, records
            self._is_gone = False
            self.sent = 0
            self.commands: list[Command] = []

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(self._server) as server:
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while request := _message(client):
                fault = self._harm_to(request)
                if self._is_gone or fault is Kind.REQUEST_LOST:
                    return
                if fault is Kind.KILLED_BEFORE:
                    return self._kill()
                server.sendall(request)
                reply = _message(server)
                if fault is Kind.KILLED_AFTER:
                    return self._kill()
                if fault is Kind.REPLY_LOST or not reply:
                    return
                client.sendall(reply)

    def _harm_to(self, request: bytes) -> Kind | None:
        if HEADER.unpack_from(request)[3] != OP_MSG or b"lsid\0" not in request:
            return None
        with self._lock:
            self.sent += 1
            if self._records:
                self.commands.append(read(request))
            if self._fault is None or not self._fault.strikes(self.sent):
                return None
            self._is_gone = self._fault.kind is Kind.GONE
            return self._fault.kind


def _message(sock: socket.socket) -> bytes:
    """Return one whole message, or b"" if the other side has closed the connection."""
    header = _exactly(sock, HEADER.size)
    if not header:
        return b""
    return header + _exactly(sock, HEADER.unpack(header)[0] - HEADER.size)


def _exactly(sock: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = sock.recv(min(size - len(parts), 1 << 20))
        if not part:
            return b""
        parts += part
    return bytes(parts)


def read(message: bytes) -> Command:
    """Parse a command from an OP_MSG: a body, and possibly a sequence of documents."""
    body: dict[str, Any] = {}
    documents: list[Any] = []
    place = HEADER.size + 4
    while place < len(message):
        kind = message[place]
        size = struct.unpack_from("<i", message, place + 1)[0]
        section = message[place + 1 : place + 1 + size]
        if kind == BODY:
            body = decode(section)
        else:
            start = section.index(0, 4) + 1
            while start < size:
                length = struct.unpack_from("<i", section, start)[0]
                documents.append(decode(section[start : start + length]))
                start += length
        place += 1 + size
    for name in ("documents", "updates", "deletes"):
        documents += body.get(name, [])
    return Command(body, tuple(documents))
