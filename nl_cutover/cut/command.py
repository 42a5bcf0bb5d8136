"""Run the landing command: its output goes on to stderr as it comes, and its tail into the receipt."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from .report import CommandResult

_TAIL = 4_000  # bytes


def run_command(argv: Sequence[str], *, echo: Callable[[bytes], None], redact: Callable[[str], str]) -> CommandResult:
    """Run `argv` without a shell. A command that cannot be started has exit code 127, as in a shell."""
    began = time.monotonic()
    tail = b""
    try:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        text = f"{argv[0]}: {error.strerror}"
        return CommandResult(redact(shlex.join(argv)), 127, text, round(time.monotonic() - began, 3))
    assert child.stdout is not None
    try:
        while chunk := os.read(child.stdout.fileno(), 65536):
            echo(chunk)
            tail = (tail + chunk)[-_TAIL:]
        code = child.wait()
    except BaseException:
        child.terminate()
        child.wait()
        raise
    finally:
        child.stdout.close()
    return CommandResult(
        redact(shlex.join(argv)),
        code,
        redact(tail.decode("utf-8", "backslashreplace")),
        round(time.monotonic() - began, 3),
    )


def echo_to_stderr(chunk: bytes) -> None:
    try:
        sys.stderr.buffer.write(chunk)
        sys.stderr.buffer.flush()
    except (BrokenPipeError, AttributeError):
        pass
