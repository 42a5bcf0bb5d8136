"""The plane's reports as documents."""

from __future__ import annotations

from ..migration.plane import BackupReport, EvidenceReport, ProveReport, StatusReport
from ..wording import counted
from .documents import Document, Table, shorten
from .views import document

_SHOWN = 20


def status_document(report: StatusReport) -> Document:
    e, c, h, g, i = report.engine, report.container, report.health, report.graph, report.ingress
    facts = [
        ("at", report.at),
        ("engine", "-" if e is None else f"{e.url} ({e.why}), {e.server}, API {e.api_version}"),
        *([] if e is None or e.local else [("elsewhere", "that engine is another machine's: host paths mean nothing")]),
        ("container", "-" if c is None else f"{c.name} ({c.id[:12]}), {c.state}, since {c.started_at}"),
        ("compose", "-" if c is None or c.project is None else f"{c.project}/{c.service}"),
        ("image", "-" if c is None else f"{c.image} ({shorten(c.image_id, 24)})"),
        ("revision", (g.revision if g else None) or (c.revision if c else None) or "-"),
        (
            "health",
            "-"
            if h is None
            else f"{h.kind}, restarted {counted(h.restarts, 'time|s')}{' and again' if h.looping else ''}",
        ),
        ("graph", "-" if c is None else f"{c.home.path} on {c.home.words}"),
        ("holds", "-" if g is None else ", ".join(f"{n} {label}" for label, n in g.counts.items()) or "nothing"),
        ("read by", report.reader or "-"),
        ("its clock", "-" if report.clock_offset_s is None else f"{report.clock_offset_s:+g} s"),
        ("ingress", "-" if i is None else f"{i.url}: plane {i.plane_id} at {i.data_root}, {i.server}"),
        ("tied", "; ".join(report.tied) or "-"),
        *([("not proved", "; ".join(report.not_proved))] if report.not_proved else []),
    ]
    mounts = [[m.target, m.type, shorten(m.source, 40) or "-", "rw" if m.writable else "ro"] for m in report.mounts]
    table = Table("mounts", ["target", "type", "source", "mode"], mounts)
    return document("plane status", report, facts, [table], report.troubles, report.next_steps)


def evidence_document(report: EvidenceReport) -> Document:
    actions = "-" if report.actions is None else str(sum(report.actions.values()))
    facts = [
        ("container", report.container),
        ("read by", report.reader),
        ("as of", report.as_of),
        ("its clock", f"{report.clock_offset_s:+g} s"),
        ("archives", str(len(report.archives))),
        ("actions under the tokens", actions),
    ]
    rows = [[a.archive_id, a.source_tx_id or "-", a.digest[:16], str(a.replays)] for a in report.archives[:_SHOWN]]
    notes = [f"{len(report.archives) - _SHOWN} more: --format json has all"] if len(report.archives) > _SHOWN else []
    table = Table("archives", ["archive", "source transaction", "digest", "replays"], rows)
    return document("plane evidence", report, facts, [table], notes)


def backup_document(report: BackupReport) -> Document:
    b = report.backup
    facts = [
        ("at", report.at),
        ("container", report.container),
        ("file", b.path),
        ("sha256", b.sha256),
        ("bytes", str(b.bytes)),
        ("counted", ", ".join(f"{n} {label}" for label, n in b.counts.items()) or "nothing"),
        ("made by", b.reader),
    ]
    return document("plane backup", report, facts, next_steps=["keep it until the cut has landed and was proved"])


def prove_document(report: ProveReport) -> Document:
    r, v = report.returned, report.verified
    facts = [
        ("run", v.run),
        ("at", v.at),
        ("container", f"{r.after.name} ({r.after.id[:12]}), {r.how}, {r.health}"),
        ("graph", f"{r.after.home.path} on {r.after.home.words}"),
        ("ended with", str(r.exit_code)),
        ("archives", f"{v.expected} expected, {v.checked} checked, {v.equal} equal"),
        ("receipt", v.receipt or "-"),
    ]
    rows = [[d.old, d.new or "-", d.what] for d in v.differences[:_SHOWN]]
    table = Table("differences", ["old id", "new id", "what"], rows)
    return document("plane prove", report, facts, [table], [r.note] if r.note else [], report.next_steps)
