"""The reports of `check` as documents. Nothing is computed here: a view only chooses what is shown."""

from __future__ import annotations

from ..denial.report import CheckReport, Static
from ..denial.runtime import RunReport
from ..verdicts import ExitCode
from ..wording import counted
from .documents import Document, Table
from .views import document


def check_document(result: CheckReport) -> Document:
    rows = [[r.criterion, r.verdict, r.instrument, r.looked_at, r.control, r.detail or "-"] for r in result.rows]
    steps = ["a row that is not `pass` is not proved: mend it, or give its instrument something to look at"]
    return document(
        "check",
        result,
        [("criteria", f"{sum(r.verdict == 'pass' for r in result.rows)} of {len(result.rows)} pass")],
        [Table("criteria", ["criterion", "verdict", "instrument", "looked at", "control", "detail"], rows)],
        [],
        steps if result.exit_code else [],
    )


def run_document(result: RunReport) -> Document:
    guarded = [[f"{a.pid}.{a.thread}", a.node, " ".join(a.argv) or "-"] for a in result.armed[:20]]
    refused = [[f"{d.pid}.{d.thread}", d.what, d.how] for d in result.refused[:20]]
    facts = [
        ("command", result.command),
        ("command exit", str(result.command_exit)),
        ("guarded", counted(len(result.armed), "process|processes or worker|s gave the nonce back")),
        ("refused", str(len(result.refused))),
        ("unguarded", str(len(result.unguarded))),
        ("control", result.control),
        (
            "holders",
            "; ".join(f"{h.store}: {h.sentence}" for h in result.holders) or "not looked at: no checkout is named",
        ),
    ]
    tables = [
        Table("refused", ["process", "what", "how"], refused),
        Table("guarded", ["process", "node", "script"], guarded),
    ]
    steps = ["find the load in the sources: nl-cutover check static --tree NEO"] if result.refused else []
    return document("check run", result, facts, tables, result.reasons[:20], steps)


def static_document(result: Static) -> Document:
    report, population = result.report, result.report.population
    shown = list(zip(report.findings, result.digests, strict=True))[:40]
    rows = [
        [f"{f.path}:{f.line}", f.form, f.resolution, f.specifier or "-", " > ".join(f.chain) or "-", digest[:12] or "-"]
        for f, digest in shown
    ]
    passed = [[p.path, p.reason] for p in population.skipped[:20]]
    facts = [
        (
            "scripts",
            f"{population.found} found, {population.parsed} parsed, {counted(len(population.skipped), 'place|s')} skipped",
        ),
        ("by extension", ", ".join(f"{n} {e}" for e, n in result.by_extension.items()) or "-"),
        ("in the surface", str(result.surface)),
        ("findings", str(len(report.findings))),
        ("allowed", str(result.allowed)),
        ("control", result.control),
    ]
    more = [counted(len(report.findings) - len(shown), "more finding|s")] if len(report.findings) > len(shown) else []
    steps = {
        ExitCode.REFUSED: ["mend each place, or list an undecided one with its line's sha256 in --allow FILE"],
        ExitCode.UNMEASURABLE: ["nothing is proved by this run: mend what is named above, then check again"],
    }
    tables = [
        Table("findings", ["place", "form", "resolution", "specifier", "chain", "line sha256"], rows),
        Table("skipped", ["place", "reason"], passed),
    ]
    notes = [*result.notes[:20], *more]
    return document("check static", report, facts, tables, notes, steps.get(ExitCode(report.exit_code), []))
