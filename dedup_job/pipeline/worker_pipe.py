"""Send objects through the pipe between a process and its worker; arrays are copied once on each side.

`Connection.send` and `recv` copy them four times.  Of a run's processor time that is a fortieth
(`scripts.bench.end_to_end`).
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

NUMBER_BYTES = 8


def send(pipe: Connection, value: object) -> None:
    """Send an object.

    Raises:
        OSError: If the pipe is closed.
    """
    arrays: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, protocol=5, buffer_callback=arrays.append)
    parts: list[bytes | memoryview] = [pickled, *(array.raw() for array in arrays)]
    sizes = [len(part) for part in parts]
    for content in (_pack([len(parts)]), _pack(sizes), *parts):
        _write(pipe.fileno(), memoryview(content))


def receive(pipe: Connection) -> Any:
    """Wait for an object that `send` sends at the other end, and return it.

    Raises:
        OSError, EOFError: If the pipe is closed.
    """
    descriptor = pipe.fileno()
    (count,) = _unpack(_read(descriptor, NUMBER_BYTES))
    sizes = _unpack(_read(descriptor, NUMBER_BYTES * count))
    pickled, *arrays = [_read(descriptor, size) for size in sizes]
    return pickle.loads(pickled, buffers=arrays)


def _pack(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def _unpack(packed: bytearray) -> tuple[int, ...]:
    return struct.unpack(f"<{len(packed) // NUMBER_BYTES}Q", packed)


def _write(descriptor: int, rest: memoryview) -> None:
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _read(descriptor: int, size: int) -> bytearray:
    content = bytearray(size)
    rest = memoryview(content)
    while rest:
        count = os.readv(descriptor, [rest])
        if not count:
            raise EOFError
        rest = rest[count:]
    return content
