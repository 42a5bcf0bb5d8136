"""The reports about receipts and runs as documents."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any

from ..papers.explaining import Explanation
from ..papers.merging import MergeReport
from ..papers.story import Story, loss_in_words
from ..papers.verifying import ReceiptCheck
from ..papers.ways import Resolution, Way
from ..verdicts import ExitCode
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


def resolution_document(result: Resolution, words: str) -> Document:
    """`words` are those after `nl-cutover resolve` by which it can be asked for again."""
    facts = [("id", result.id), *(_way(result.archives[0]) if len(result.archives) == 1 else [])]
    if result.answer is not None:
        facts.append(("asked now", result.answer))
    rows = [
        [w.entry.old, w.entry.new, w.plane.data_root or "-", w.run or "-", w.entry.content_digest[:16]]
        for w in result.archives
    ]
    several = len(result.archives) > 1
    asks = f"ask Memory Core itself, at a --url that you trust: nl-cutover resolve {words} --ask"
    steps = [] if result.answer is not None or several else [asks]
    return document(
        "resolve",
        result,
        facts,
        [Table("", ["old id", "new id", "plane's data root", "run", "content digest"], rows)] if several else [],
        ["several archives have this id; those with one content and one plane were saved more than once"]
        if several
        else [],
        steps if result.exit_code != ExitCode.DIFFERENCE else ["do not land; keep both: this receipt and that answer"],
    )


def _way(way: Way) -> list[tuple[str, str]]:
    entry, host = way.entry, way.entry.host
    to_the_byte = "; ops and originWriter to the byte" if entry.bytes_equal else "; the same values, in other bytes"
    return [
        ("old id", entry.old),
        ("new id", entry.new),
        ("from", ", ".join(way.stores)),
        ("to", f"plane {way.plane.plane_id or 'unnamed'} at {way.plane.url}"),
        ("custodian", entry.custodian or "not told"),
        ("read back", f"equal{to_the_byte}" if entry.confirmed else "not yet"),
        ("replays", f"{entry.marks_made} of {entry.marks_wanted} marked"),
        (
            "on the host",
            f"archived {_time(host.get('archived_at'))}, last replayed {_time(host.get('last_replayed_at'))}",
        ),
        ("row digest", entry.digest),
        ("content digest", entry.content_digest),
        ("carried digest", entry.carried_digest or "not told"),
        ("says so", f"{way.receipt} of run {way.run}, {way.at}"),
        ("its sha256", way.receipt_sha256),
        ("bound by", way.binding),
    ]


def _time(ms: Any) -> str:
    try:
        return "never" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (TypeError, ValueError, OverflowError, OSError):
        return str(ms)


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
