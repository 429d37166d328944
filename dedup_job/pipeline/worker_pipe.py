"""Send objects through the pipe between a process and its worker; arrays are copied once on each side.

`Connection.send` and `recv` copy them four times.  Of a run's processor time that is a fortieth
(`scripts.bench.end_to_end`).
"""

from __future__ import annotations

import os
import pickle
import struct
from multiprocessing.connection import Connection
from typing import Any

NUMBER = struct.Struct("<Q")


def send(pipe: Connection, value: object) -> None:
    """Send an object.

    Raises:
        OSError: If the pipe is closed.
    """
    arrays: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, protocol=5, buffer_callback=arrays.append)
    parts: list[bytes | memoryview] = [pickled, *(array.raw() for array in arrays)]
    _write(pipe, NUMBER.pack(len(parts)))
    for part in parts:
        _write(pipe, NUMBER.pack(len(part)))
        _write(pipe, part)


def receive(pipe: Connection) -> Any:
    """Wait for an object that `send` sends at the other end, and return it.

    Raises:
        OSError, EOFError: If the pipe is closed.
    """
    pickled, *arrays = [_read(pipe, _read_number(pipe)) for _ in range(_read_number(pipe))]
    return pickle.loads(pickled, buffers=arrays)


def _write(pipe: Connection, content: bytes | memoryview) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(pipe.fileno(), rest) :]


def _read_number(pipe: Connection) -> int:
    number: int = NUMBER.unpack(_read(pipe, NUMBER.size))[0]
    return number


def _read(pipe: Connection, size: int) -> bytearray:
    content = bytearray(size)
    rest = memoryview(content)
    while rest:
        count = os.readv(pipe.fileno(), [rest])
        if not count:
            raise EOFError
        rest = rest[count:]
    return content
