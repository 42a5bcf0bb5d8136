"""One `docker exec`, its two streams kept apart, its end known or not."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ..errors import UnreachableError
from .engine import Engine
from .locate import Pin

_KEPT = 1 << 16  # bytes
_SAID = 1 << 20  # bytes on stderr that are listened to
_SILENCE_S = 120.0  # a large graph is walked without a word


class Ran(msgspec.Struct, frozen=True):
    """`code` None: nobody knows how it ended, which is not 0 (docker-py#1381). `err`: the last 64 KiB of stderr."""

    code: int | None
    err: bytes


def execute(engine: Engine, pin: Pin, command: list[str], stdin: bytes, out: Callable[[bytes], object]) -> Ran:
    """Run `command`; its stdout goes to `out`. It must read `stdin` before it writes.

    What a program wrote before the client has read the headers would be lost in the client's buffer.
    """
    err, said = bytearray(), 0
    with engine.asking(f"the look into {pin.words}") as api:
        # NODE_OPTIONS may preload Neo.
        made = api.exec_create(pin.id, command, stdin=True, environment={"NODE_OPTIONS": ""})
        stream = api.exec_start(made["Id"], socket=True)
        try:
            wire: socket.socket = getattr(stream, "_sock", stream)
            wire.settimeout(_SILENCE_S)
            wire.sendall(stdin)
            for number, chunk in _frames(wire):
                if number == 1:
                    out(chunk)
                else:
                    err += chunk
                    if (said := said + len(chunk)) > _SAID:
                        what = f"what a reader inside {pin.words} says of its errors does not end"
                        raise UnreachableError(what, "look at what runs in it")
                    del err[:-_KEPT]
        finally:
            stream.close()
        facts = _ended(api, made["Id"])
    return Ran(None if facts.get("Running") else facts.get("ExitCode"), bytes(err))


def _ended(api: Any, exec_id: str) -> dict[str, Any]:
    """The engine notes the exit code a moment after it closed the streams."""
    for _ in range(50):
        facts: dict[str, Any] = api.exec_inspect(exec_id)
        if not facts.get("Running"):
            break
        time.sleep(0.02)
    return facts


def _frames(wire: socket.socket) -> Iterator[tuple[int, bytes]]:
    """(1 for stdout or 2 for stderr, bytes); ends at the end of the stream, be it in the middle of a frame."""
    while len(head := _exactly(wire, 8)) == 8:
        left = int.from_bytes(head[4:], "big")
        while left and (chunk := wire.recv(min(left, 1 << 16))):
            left -= len(chunk)
            yield head[0], chunk
        if left:
            return


def _exactly(wire: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (chunk := wire.recv(count - len(data))):
        data += chunk
    return data
