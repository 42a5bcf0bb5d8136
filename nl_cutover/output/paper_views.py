"""The reports about receipts and runs as documents."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from ..papers.explaining import Explanation
from ..papers.merging import MergeReport
from ..papers.story import Story, loss_in_words
from ..papers.verifying import ReceiptCheck
from .documents import Document, Table, as_markdown
from .picture import as_mermaid
from .views import document


def check_document(report: ReceiptCheck, title: str = "receipt verify") -> Document:
    rows = [
        [
            "-" if r.number is None else str(r.number),
            r.kind or "-",
            r.host or "-",
            r.says or "-",
            r.signer or "-",
            (r.sha256 or "-")[:16],
            r.file,
        ]
        for r in report.receipts
    ]
    problems = [f"{r.file}: {problem}" for r in report.receipts for problem in r.problems]
    told = [*(("proves", sentence) for sentence in report.proves), *(("cannot say", x) for x in report.cannot)]
    table = Table("receipts", ["number", "kind", "host", "says", "signed by", "sha256", "file"], rows)
    return document(title, report, told, [table], problems, report.next_steps)


def merge_document(report: MergeReport) -> Document:
    rows = [[h.host, h.state, h.kind or "-", h.at or "-", h.plane or "-", h.reason] for h in report.hosts]
    clear = sum(h.state == "clear" for h in report.hosts)
    facts = [("at", report.at), ("hosts", f"{clear} of {len(report.hosts)} clear")]
    table = Table("hosts", ["host", "state", "receipt", "of", "plane", "reason"], rows)
    notes = [*report.reasons, *(f"{name} is no receipt" for name in report.unread)]
    return document("receipt merge", report, facts, [table], notes, report.next_steps)


def explain_document(report: Explanation) -> Document:
    facts = [("run", report.run or "-"), ("at", report.at), ("why", report.why)]
    return document("explain", report, facts, (), (), report.next_steps)


def as_paste(story: Story, file: Path | None = None) -> str:
    """The report for an incident channel: a summary, and the picture in a block of its own."""
    facts = [("run", story.run or "none has begun"), ("host", story.host), ("at", story.at)]
    if story.moved is not None and story.plane is not None:
        a, m, t = story.moved.archives, story.moved.marks, story.moved.telemetry
        kept = f"{t.admitted} of {t.rows} admitted, {t.discarded} discarded, {t.left} left"
        facts += [
            ("plane", f"{story.plane.plane_id or 'unnamed'} at {story.plane.url}"),
            ("archives", f"{a.confirmed} of {a.rows} confirmed, {a.excluded} left on the host by the operator's word"),
            ("not there", f"{a.refused} refused, {a.unknown} unknown, {a.pending} pending, {a.differs} different"),
            ("marks", f"{m.made} of {m.wanted} made"),
            ("telemetry", f"{kept}, {t.refused + t.unknown + t.pending} not there"),
        ]
    head = story.timeline[-1]
    facts.append(("last receipt", f"{head.number:04d} {head.kind} sha256 {head.sha256[:16]}"))
    notes = [f"{e.at} {e.kind}: {e.verdict}; {e.sentence}" for e in story.timeline]
    notes += [*(f"lost: {loss_in_words(loss)}" for loss in story.losses), *story.notes]
    notes += [f"differs: {d.old}: {d.what}" for d in story.differences]
    whole = "the whole of it: nl-cutover report --format html > report.html"
    steps = (
        [whole.replace("--format", f"{quote(str(file))} --format")]
        if file
        else ["why, and what now: nl-cutover explain", whole]
    )
    return f"{as_markdown(document('report', story, facts, (), notes, steps))}\n{as_mermaid(story)}"
