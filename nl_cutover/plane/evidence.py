"""Questions to the graph, answered inside the container, read-only: an answer counts only when it is whole."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from ..errors import UnreachableError
from .engine import Engine
from .execution import Ran, execute
from .inside import MARK
from .locate import Pin

_HERE = Path(__file__).parent
_LINE = 256 << 20  # bytes of a node's text; what is longer is no answer
_FACTS = 1 << 20  # bytes of what a graph's facts may be
_STRAY = 1 << 16  # bytes of what may come in place of a reader
_NO_SUCH_PROGRAM = (126, 127)


class Answer(msgspec.Struct, frozen=True):
    """`asked_at`: this host's clock before the question, ms since epoch. `clock_offset_s`: the container's, ahead of it.

    `reader`: what read the graph, with its versions.
    """

    reader: str
    asked_at: float
    clock_offset_s: float


class Facts(msgspec.Struct, frozen=True):
    """`counts`: nodes by label. `bytes`: the size of the graph's main file. `revision`: of Neo, where the image says it."""

    counts: dict[str, int]
    bytes: int
    revision: str | None = None


def graph_facts(engine: Engine, pin: Pin, clock: Callable[[], float]) -> tuple[Facts, Answer]:
    """What the graph holds. Raises UnreachableError."""
    found: list[Facts] = []
    answer = _ask(
        engine, pin, clock, lambda value: found.append(msgspec.convert(value, Facts)), {"op": "facts"}, _FACTS
    )
    if len(found) != 1:
        raise _no_answer(pin)
    return found[0], answer


def nodes(
    engine: Engine,
    pin: Pin,
    clock: Callable[[], float],
    label: str,
    each: Callable[[str], object],
    *,
    since: float = 0,
    tokens: list[str] | None = None,
) -> Answer:
    """Give `each` the JSON text of every node with this label, stored at or after `since` (ms) or under `tokens`.

    Raises UnreachableError: no answer is never an answer of nothing. What `each` has had is then worth nothing.
    """
    orders = {"op": "nodes", "label": label, "since": since, "tokens": tokens}
    return _ask(engine, pin, clock, lambda line: each(base64.b64decode(line).decode("utf-8")), orders)


def run_reader(engine: Engine, pin: Pin, orders: dict[str, Any], out: Callable[[bytes], object]) -> Ran:
    """Run the reader with what the image has, Python or Node; its stdout goes to `out`.

    Raises UnreachableError with the reader's own last words unless it ended with 0.
    """
    pin.running()
    line = json.dumps(orders | {"db": pin.home.path}).encode() + b"\n"
    for command in _commands():
        ran = execute(engine, pin, command, line, _AfterMark(pin, out).feed)
        if ran.code not in _NO_SUCH_PROGRAM:
            break
    else:
        raise UnreachableError(
            f"{pin.words} has neither python3 with sqlite3 nor node: its graph cannot be read inside it",
            "go on without backup and evidence: --engine none; the receipt then says what could not be proved",
        )
    if ran.code != 0:
        words = ran.err.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no word"]
        why = "it was cut off" if ran.code is None else f"exit {ran.code}: {words[0][:300]}"
        raise UnreachableError(f"the graph {pin.home.path} inside {pin.words} could not be read: {why}")
    return ran


def _commands() -> Iterator[list[str]]:
    # Isolated and without site: no PYTHONPATH and no .pth file of the image runs.
    yield ["python3", "-I", "-S", "-c", (_HERE / "inside.py").read_text("utf-8")]
    yield ["node", "--input-type=commonjs", "-e", (_HERE / "inside.cjs").read_text("utf-8")]


def _ask(
    engine: Engine,
    pin: Pin,
    clock: Callable[[], float],
    each: Callable[[Any], object],
    orders: dict[str, Any],
    most: float = math.inf,
) -> Answer:
    asked_at = clock()
    lines, came = _Lines(each), 0

    def feed(chunk: bytes) -> None:
        nonlocal came
        came += len(chunk)
        if came > most:
            what = f"the answer from inside {pin.words} does not end: more than {most} bytes came"
            raise UnreachableError(what, "look at what runs in it")
        lines.feed(chunk)

    try:
        run_reader(engine, pin, orders, feed)
        head = lines.end()
        return Answer(str(head["reader"]), asked_at, round((head["now"] - asked_at) / 1000, 1))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, msgspec.ValidationError):
        raise _no_answer(pin) from None


def _no_answer(pin: Pin) -> UnreachableError:
    return UnreachableError(
        f"the answer from inside {pin.words} was cut short, or is none",
        "nothing can be told from it; see that it runs, then again",
    )


class _AfterMark:
    """Passes on what follows the reader's mark: what an engine says in a missing program's place comes as output too."""

    def __init__(self, pin: Pin, out: Callable[[bytes], object]) -> None:
        self._pin, self._out, self._head, self._stray = pin, out, b"", 0

    def feed(self, chunk: bytes) -> None:
        if len(self._head) < len(MARK):
            self._head += chunk
            chunk = self._head[len(MARK) :]
            self._head = self._head[: len(MARK)]
        if self._head != MARK:
            self._stray += len(chunk)
            if self._stray > _STRAY:
                raise _no_answer(self._pin)
        elif chunk:
            self._out(chunk)


class _Lines:
    """JSON lines out of chunks: a head, what is passed on, and an end that counts it."""

    def __init__(self, each: Callable[[Any], object]) -> None:
        self._each, self._count = each, 0
        self._rest: list[bytes] = []
        self._held = 0
        self._head: Any = None
        self._last: Any = None

    def feed(self, chunk: bytes) -> None:
        self._rest.append(chunk)
        self._held += len(chunk)
        if self._held > _LINE:
            raise ValueError
        if b"\n" not in chunk:
            return
        *lines, rest = b"".join(self._rest).split(b"\n")
        self._rest, self._held = [rest], len(rest)
        for line in lines:
            value = json.loads(line)
            if self._head is None:
                self._head = value
                continue
            if self._last is not None:
                self._each(self._last)
                self._count += 1
            self._last = value

    def end(self) -> dict[str, Any]:
        """The head. Raises ValueError unless everything that was sent has come."""
        if self._held or self._last["end"] != self._count:
            raise ValueError
        head: dict[str, Any] = self._head
        return head
