"""Verification that owes nothing to the run: source rows, the id map and MC are compared anew.

It imports neither the run nor the ledger's writer. What it cannot see: telemetry (write-only by contract), anything
that MC holds under another identity or beyond the map, and rows that reach the host after the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set

import msgspec

from ..contract.archives import compare
from ..contract.rows import ARCHIVES, Row, Twins, key_text
from ..custody.reading import Mapped
from ..ingress.preflight import error_of
from ..ingress.sessions import Sessions
from ..verdicts import Delivered, ExitCode, Mismatch, NotSent
from ..wording import counted, fitted
from .contents import Contents
from .progress import Progress
from .source import Source
from .words import verdict_word

SCHEMA = "nl-cutover/verify/1"
UNREAD = "could not be read"


class Difference(msgspec.Struct, frozen=True):
    """By source key: the old id first, the new id second. `what` never holds a value."""

    old: str
    new: str | None
    what: str


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """`expected` archives stand in the stores, `checked` were read from MC, `equal` of them are what they were."""

    schema: str = SCHEMA
    run: str
    verdict: str
    exit_code: int
    at: str
    expected: int
    checked: int
    equal: int
    bytes_equal: int
    missing: int
    excluded: int
    differences: list[Difference]
    next_steps: list[str]
    receipt: str | None = None
    waited_s: float = 0.0  # seconds, for a busy server
    proxy: str | None = None


def verify(
    source: Source,
    mapped: Callable[[str, str], Mapped | None],
    excluded: Set[tuple[str, str]],
    sessions: Sessions,
    *,
    url: str,
    run: str,
    at: str,
    progress: Progress,
) -> VerifyReport:
    """Read every archive of the snapshots back from MC, under the identity that saved it, and compare.

    `mapped` answers for a key and a content digest what became of that archive, or of another content under that key.
    Raises CutoverError when the ingress ends the reading.
    """
    expected = checked = equal = bytes_equal = missing = left_out = 0
    differences: list[Difference] = []
    progress.stage("verify", sum(store.snapshot.counts.get(ARCHIVES, 0) for store in source.stores.values()))
    for key, content, row in _archives(source):
        progress.advance()
        if (key, content) in excluded:
            left_out += 1
            continue
        expected += 1
        entry = mapped(key, content)
        if entry is None or entry.content_digest != content:
            missing += 1
            what = "not in the id map" if entry is None else "changed on the host since it was saved"
            differences.append(Difference(key, entry.new if entry else None, what))
            continue
        outcome = sessions.operations(entry.identity).get(entry.new)
        if isinstance(outcome, NotSent):
            raise error_of(outcome, url)
        if not isinstance(outcome, Delivered) or outcome.result["status"] == "unavailable":
            why = "MC could not say" if isinstance(outcome, Delivered) else outcome.reason
            differences.append(Difference(key, entry.new, f"{UNREAD}: {why}"))
            continue
        checked += 1
        if outcome.result["status"] != "found":
            differences.append(Difference(key, entry.new, f"MC answers {outcome.result['status']}"))
            continue
        named_by = entry.new if entry.marks_made else None
        comparison = compare(row, outcome.result, outcome.reply, named_by_mark=named_by)
        count = outcome.result.get("replayCount")
        if isinstance(comparison, Mismatch):
            differences.append(Difference(key, entry.new, f"differs at {comparison.path}"))
        elif not isinstance(count, int | float) or count < entry.marks_made:
            differences.append(
                Difference(
                    key,
                    entry.new,
                    f"MC counts {counted(count, 'replay|s')}, {entry.marks_made} {fitted(entry.marks_made, 'was|were')} made",
                )
            )
        else:
            equal += 1
            bytes_equal += comparison.bytes_equal
    code = _code(expected, checked, equal, missing)
    return VerifyReport(
        run=run,
        verdict=verdict_word(code),
        exit_code=int(code),
        at=at,
        expected=expected,
        checked=checked,
        equal=equal,
        bytes_equal=bytes_equal,
        missing=missing,
        excluded=left_out,
        differences=differences,
        next_steps=_next_steps(code),
    )


def _archives(source: Source) -> Iterator[tuple[str, str, Row]]:
    """Key, content digest and row of every archive, once, whatever the number of stores that hold it."""
    with Contents() as contents:
        for store in source.stores.values():
            twins = Twins()
            for row in source.rows(store, ARCHIVES):
                key, content = key_text(row.key, twins.tell(row.key, row.digest)), row.content_digest
                if content not in contents.meet(key, content):
                    yield key, content, row


def _code(expected: int, checked: int, equal: int, missing: int) -> ExitCode:
    if checked != equal:
        return ExitCode.DIFFERENCE
    if checked + missing != expected:
        return ExitCode.PARTIAL
    return ExitCode.REFUSED if missing else ExitCode.PROVED


def _next_steps(code: ExitCode) -> list[str]:
    match code:
        case ExitCode.PROVED:
            return ["land it: nl-cutover cut CHECKOUT... -- COMMAND"]
        case ExitCode.REFUSED:
            return ["bring the missing rows over: give the `nl-cutover migrate` command again"]
        case ExitCode.PARTIAL:
            return ["some archives could not be read: give `nl-cutover verify` again"]
        case _:
            return [
                "do not land; look at each difference under the identity that saved: another identity reads not-found"
            ]
