"""`nl-cutover check`: each acceptance criterion, the instrument that looked, at what, and what it says."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..contract.telemetry import ADMITTED
from ..contract.wire import ADMIT, OPERATIONS
from ..denial.report import CheckReport, Row
from ..denial.rules import Rules, read_toml
from ..errors import CredentialsError, CutoverError
from ..resources import resource
from ..verdicts import ExitCode
from ..wording import counted

if TYPE_CHECKING:
    from ..denial.runtime import RunReport
    from ..ingress.endpoint import Endpoint
    from ..stores.summary import MeasureReport

NOT_LOOKED_AT = "not looked at"


class Criterion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`instrument`: one of INSTRUMENTS. `surfaces` replace those of the rules."""

    id: str
    says: str
    origin: str
    instrument: str
    surfaces: list[str] = []


class Criteria(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    criterion: list[Criterion]


class Said(msgspec.Struct, frozen=True):
    """What an instrument says of one criterion."""

    verdict: str
    looked_at: str
    control: str = "-"
    detail: str = ""


class Subject(msgspec.Struct, frozen=True):
    """What there is to look at; what is None is not looked at, and `no_core` says why no Memory Core is."""

    rules: Rules
    tree: Path | None
    allow: Sequence[Any]
    ran: RunReport | None
    measured: MeasureReport | None
    tools: dict[str, dict[str, Any]] | None
    without_bearer: str | None
    url: str
    no_core: str = ""


def check_all(subject: Subject) -> CheckReport:
    """One row for each criterion. Raises UnmeasurableError for criteria that do not read."""
    rows = []
    for criterion in read_toml(resource("checks", "criteria.toml"), Criteria).criterion:
        said = INSTRUMENTS[criterion.instrument](subject, criterion)
        rows.append(
            Row(
                criterion.id,
                criterion.says,
                criterion.origin,
                criterion.instrument,
                said.looked_at,
                said.control,
                said.verdict,
                said.detail,
            )
        )
    verdicts = {row.verdict for row in rows}
    if "fail" in verdicts:
        return CheckReport("findings", int(ExitCode.REFUSED), tuple(rows))
    if verdicts != {"pass"}:
        return CheckReport("unmeasurable", int(ExitCode.UNMEASURABLE), tuple(rows))
    return CheckReport("clear", int(ExitCode.PROVED), tuple(rows))


def _static(subject: Subject, criterion: Criterion) -> Said:
    from ..denial.static import check_static

    if subject.tree is None:
        return Said(NOT_LOOKED_AT, "no checkout", detail="name one: --tree NEO")
    surfaces = criterion.surfaces or sorted({glob for rule in subject.rules.rules for glob in rule.surfaces})
    result = check_static(subject.tree, subject.rules, surface=surfaces, allowed=subject.allow)
    looked = f"{result.surface} of {counted(result.report.population.parsed, 'script|s')} in {', '.join(surfaces)}"
    if result.report.exit_code == ExitCode.UNMEASURABLE:
        return Said("unmeasurable", looked, result.control, "; ".join(result.notes))
    fatal = [f for f in result.report.findings if result.report.exit_code]
    places = "; ".join(f"{f.path}:{f.line} {f.form} {f.specifier or f.resolution}" for f in fatal[:5])
    more = f" and {len(fatal) - 5} more" if len(fatal) > 5 else ""
    return Said("fail" if fatal else "pass", looked, result.control, places + more)


def _runtime(subject: Subject, _: Criterion) -> Said:
    if subject.ran is None:
        return Said(NOT_LOOKED_AT, "no command", detail="name one: nl-cutover check --tree NEO -- COMMAND...")
    ran = subject.ran
    verdict = "fail" if ran.refused else "pass" if not ran.reasons else "unmeasurable"
    looked = f"{counted(len(ran.armed), 'process|processes or worker|s')} of {ran.command}"
    return Said(verdict, looked, ran.control, "; ".join(ran.reasons[:5]))


def _holders(subject: Subject, _: Criterion) -> Said:
    if subject.measured is None:
        return Said(NOT_LOOKED_AT, "no checkout", detail="name one: --tree NEO")
    stores = subject.measured.stores
    if not stores:
        return Said(NOT_LOOKED_AT, "no store", detail="the checkout reaches none")
    held = [f"{s.id} {s.holders.sentence()}" for s in stores if s.holders.processes]
    blind = [f"{s.id}: {s.holders.sentence()}" for s in stores if not s.holders.processes and not s.holders.nobody]
    looked = f"the open files of every process, for {counted(len(stores), 'store|s')}"
    return Said("fail" if held else "unmeasurable" if blind else "pass", looked, "-", "; ".join(held or blind))


def _measure(subject: Subject, _: Criterion) -> Said:
    report = subject.measured
    if report is None:
        return Said(NOT_LOOKED_AT, "no checkout", detail="name one: --tree NEO")
    totals = report.totals
    looked = f"{counted(totals.archives, 'archive|s')} and {counted(totals.actions, 'action|s')} in "
    looked += counted(len(report.stores), "store|s")
    control = "planted rows came back" if report.control.ok else report.control.reason
    verdict = {ExitCode.PROVED: "pass", ExitCode.REFUSED: "fail"}.get(ExitCode(report.exit_code), "unmeasurable")
    return Said(verdict, looked, control, f"{totals.unaccounted} unaccounted, {totals.unmeasurable} unmeasurable")


def _of_the_core(look: Callable[[dict[str, dict[str, Any]]], tuple[bool, str]]) -> Callable[[Subject, Criterion], Said]:
    def said(subject: Subject, _: Criterion) -> Said:
        if subject.tools is None:
            return Said(NOT_LOOKED_AT, subject.url, detail=subject.no_core)
        good, detail = look(subject.tools)
        control = f"the list holds {ADMIT}" if ADMIT in subject.tools else "-"
        return Said(
            "pass" if good else "fail", f"{counted(len(subject.tools), 'tool|s')} of {subject.url}", control, detail
        )

    return said


def _family(tools: dict[str, dict[str, Any]]) -> set[str]:
    return {name for name in tools if "_nl_" in f"_{name}_" or "telemetry" in name}


def _operations(tools: dict[str, dict[str, Any]]) -> tuple[bool, str]:
    missing, more = sorted(set(OPERATIONS) - set(tools)), sorted(_family(tools) - set(OPERATIONS))
    return not missing and not more, "; ".join([*(f"lacks {n}" for n in missing), *(f"has {n} too" for n in more)])


def _write_only(tools: dict[str, dict[str, Any]]) -> tuple[bool, str]:
    """The telemetry operation is there, and nothing beside the three of the archive that could read what it stored."""
    reading = sorted(name for name in _family(tools) - set(OPERATIONS))
    return ADMIT in tools and not reading, "; ".join(f"{name} may read" for name in reading) or (
        "" if ADMIT in tools else f"lacks {ADMIT}"
    )


def _record_set(tools: dict[str, dict[str, Any]]) -> tuple[bool, str]:
    items = tools.get(ADMIT, {}).get("properties", {}).get("actions", {}).get("items", {})
    declared = items.get("properties", {}) if isinstance(items, dict) else {}
    missing, more = sorted(set(ADMITTED) - set(declared)), sorted(set(declared) - set(ADMITTED))
    wrong = [*(f"lacks {n}" for n in missing), *(f"takes {n} too" for n in more)]
    targets = sorted(declared.get("targets", {}).get("properties", {}))
    if not missing and targets != ["classNames", "componentIds"]:
        wrong.append(f"targets takes {', '.join(targets) or 'anything'}")
    return not wrong, "; ".join(wrong)


def _bearer(subject: Subject, _: Criterion) -> Said:
    if subject.without_bearer is None:
        return Said(NOT_LOOKED_AT, subject.url, detail=subject.no_core)
    control = "with the bearer it answers" if subject.tools is not None else "-"
    if subject.without_bearer == "refused":
        return Said(
            "pass" if subject.tools is not None else "unmeasurable",
            f"{subject.url} with a bearer that nobody holds",
            control,
        )
    return Said("fail", f"{subject.url} with a bearer that nobody holds", control, subject.without_bearer)


INSTRUMENTS: dict[str, Callable[[Subject, Criterion], Said]] = {
    "static": _static,
    "runtime": _runtime,
    "holders": _holders,
    "measure": _measure,
    "operations": _of_the_core(_operations),
    "write-only": _of_the_core(_write_only),
    "record-set": _of_the_core(_record_set),
    "bearer": _bearer,
}


def ask_core(endpoint: Callable[[], Endpoint]) -> tuple[dict[str, dict[str, Any]] | None, str | None, str]:
    """(tools, what a call with a bearer that nobody holds gets, why there is no Memory Core)."""
    from ..ingress.endpoint import Token
    from ..ingress.preflight import error_of, list_tools
    from ..ingress.session import Session

    tools: dict[str, dict[str, Any]] | None = None
    why = ""
    try:
        target = endpoint()
        with Session(target) as session:
            if (failure := session.open()) is not None:
                raise error_of(failure, target.url)
            tools = list_tools(session, target.url)
    except CutoverError as error:
        why = error.message
    if tools is None:
        return None, None, why
    with Session(target.with_token(Token(secrets.token_hex(16)))) as session:
        failure = session.open()
        if failure is None:
            return tools, "it opens a session for anyone", why
        refused = isinstance(error_of(failure, target.url), CredentialsError)
    return tools, "refused" if refused else f"not refused for want of a bearer: {failure.reason}", why
