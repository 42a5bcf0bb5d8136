"""The verdict word of an exit code, one for every report of a run."""

from __future__ import annotations

from ..verdicts import ExitCode


def verdict_word(code: ExitCode) -> str:
    match code:
        case ExitCode.PROVED:
            return "proved"
        case ExitCode.REFUSED:
            return "refused"
        case ExitCode.UNMEASURABLE:
            return "unmeasurable"
        case ExitCode.UNREACHABLE:
            return "unreachable"
        case ExitCode.CREDENTIALS:
            return "credentials"
        case ExitCode.PARTIAL:
            return "partial"
        case ExitCode.DIFFERENCE:
            return "difference"
        case ExitCode.INTERRUPTED:
            return "interrupted"
        case ExitCode.FAULT | ExitCode.USAGE:
            return "failed"
