"""Run the landing command: its output goes on to stderr as it comes, and its tail into the receipt."""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from .report import CommandResult

_TAIL = 4_000  # bytes


class InterruptedLanding(KeyboardInterrupt):
    """Ctrl-C or SIGTERM came while the command ran. It has ended, and this is how."""

    def __init__(self, result: CommandResult) -> None:
        self.result = result


def run_command(argv: Sequence[str], *, echo: Callable[[bytes], None], redact: Callable[[str], str]) -> CommandResult:
    """Run `argv` without a shell. A command that cannot be started has exit code 127, as in a shell.

    Raises InterruptedLanding: at the first interrupt the command is asked to end, at the next one it is killed.
    """
    began = time.monotonic()
    tail = b""

    def result(code: int) -> CommandResult:
        text = tail.decode("utf-8", "backslashreplace")
        return CommandResult(redact(shlex.join(argv)), code, redact(text), round(time.monotonic() - began, 3))

    try:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        tail = os.fsencode(f"{argv[0]}: {error.strerror}")
        return result(127)
    assert child.stdout is not None
    try:
        # The command's end counts, not the end of its output: what it started may hold its stdout for ever.
        while True:
            ended = child.poll() is not None
            if select.select([child.stdout], [], [], 0 if ended else 0.1)[0]:
                if chunk := os.read(child.stdout.fileno(), 65536):
                    echo(chunk)
                    tail = (tail + chunk)[-_TAIL:]
                    continue
                child.wait()
                break
            if ended:
                break
        return result(child.wait())
    except KeyboardInterrupt as error:
        child.terminate()
        try:
            child.wait()
        except KeyboardInterrupt:
            child.kill()
        raise InterruptedLanding(result(child.wait())) from error
    finally:
        child.stdout.close()


def echo_to_stderr(chunk: bytes) -> None:
    try:
        sys.stderr.buffer.write(chunk)
        sys.stderr.buffer.flush()
    except (OSError, AttributeError, ValueError):
        pass  # what cannot be shown is still in the receipt
