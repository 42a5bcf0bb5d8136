"""The error tree. Every error says what, where and why in its message, and what to do in `hint`.

    CutoverError
    ├── UsageError              the command line or the configuration contradicts itself       2
    ├── RefusedError            a policy, or rows that are not accounted for                   3
    │   ├── WrongPlaneError     the ingress answers for another plane than the expected one
    │   └── SurfaceError        the server lacks an operation or a field that would be sent
    ├── UnmeasurableError       a host store or a path could not be read                       4
    ├── UnreachableError        the ingress could not be reached, nothing was sent             5
    ├── CredentialsError        no token, or a token that the ingress does not take            6
    ├── DifferenceError         what MC gives back is not what was saved                       8
    ├── CustodyError            the ledger or a receipt: missing, torn, foreign, full           4
    └── InterruptedRunError     Ctrl-C or SIGTERM; the same command resumes                  130

The number is the exit code (`verdicts.ExitCode`). Anything that is not a CutoverError is a fault of this program.
"""

from __future__ import annotations

from .verdicts import ExitCode


class CutoverError(Exception):
    """Base of all expected failures. `message` is one sentence; `hint` is the next thing to do."""

    exit_code: ExitCode = ExitCode.FAULT

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(CutoverError):
    exit_code = ExitCode.USAGE


class RefusedError(CutoverError):
    exit_code = ExitCode.REFUSED


class WrongPlaneError(RefusedError):
    pass


class SurfaceError(RefusedError):
    pass


class UnmeasurableError(CutoverError):
    exit_code = ExitCode.UNMEASURABLE


class UnreachableError(CutoverError):
    exit_code = ExitCode.UNREACHABLE


class CredentialsError(CutoverError):
    exit_code = ExitCode.CREDENTIALS


class DifferenceError(CutoverError):
    exit_code = ExitCode.DIFFERENCE


class CustodyError(CutoverError):
    exit_code = ExitCode.UNMEASURABLE


class InterruptedRunError(CutoverError):
    exit_code = ExitCode.INTERRUPTED
