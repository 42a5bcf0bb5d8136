"""What a static check says, as it is printed."""

from __future__ import annotations

import msgspec

from ..verdicts import ExitCode

SCHEMA = "nl-cutover/static/1"
CHECK_SCHEMA = "nl-cutover/check/1"


class Finding(msgspec.Struct, frozen=True):
    """One place that loads what is forbidden, or that cannot be told.

    `resolution`: literal, folded, unresolved, sink or unparsable. `chain`: the files from the surface to the place and,
    for a file that only reaches a load, what is loaded at the end; empty for a load in the surface itself.
    """

    path: str
    line: int
    form: str
    specifier: str
    resolution: str
    chain: tuple[str, ...] = ()


class Passed(msgspec.Struct, frozen=True):
    path: str
    reason: str


class Counted(msgspec.Struct, frozen=True):
    """`found` = `parsed` + files that did not parse (each a finding) + skipped files."""

    found: int
    parsed: int
    skipped: tuple[Passed, ...]


class StaticReport(msgspec.Struct, frozen=True):
    """The answer of `check static`. `verdict`: clear, findings or unmeasurable."""

    verdict: str
    exit_code: int
    findings: tuple[Finding, ...]
    population: Counted
    schema: str = SCHEMA


class Static(msgspec.Struct, frozen=True):
    """The report, and what a person is shown beside it. `digests` belong to the findings, by position."""

    report: StaticReport
    digests: tuple[str, ...]
    allowed: int
    by_extension: dict[str, int]
    surface: int
    notes: tuple[str, ...]
    control: str


LISTED = frozenset({"import type", "export type", "type import"})  # nothing of them is left at run time


def verdict_of(findings: tuple[Finding, ...], unmeasured: tuple[str, ...]) -> tuple[str, ExitCode]:
    if unmeasured:
        return "unmeasurable", ExitCode.UNMEASURABLE
    if any(finding.form not in LISTED for finding in findings):
        return "findings", ExitCode.REFUSED
    return "clear", ExitCode.PROVED


class Row(msgspec.Struct, frozen=True):
    """`verdict`: pass, fail, unmeasurable or `not looked at`; only the first is a pass."""

    criterion: str
    says: str
    origin: str
    instrument: str
    looked_at: str
    control: str
    verdict: str
    detail: str = ""


class CheckReport(msgspec.Struct, frozen=True):
    """The answer of `check`. `verdict`: clear, findings or unmeasurable."""

    verdict: str
    exit_code: int
    rows: tuple[Row, ...]
    schema: str = CHECK_SCHEMA
