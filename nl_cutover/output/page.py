"""A run as one HTML file: no network, no script, light and dark, fit to print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from ..papers.story import Event, Story, loss_in_words
from ..verdicts import ExitCode
from ..wording import counted, fitted
from .documents import visible
from .picture import as_svg

_CANNOT = (
    "whether telemetry is stored: Memory Core admits it and has no operation that reads it back",
    "whether Memory Core holds today what it held when this was written",
    "a command that ended before it could leave a receipt: nl-cutover explain asks the ledger too",
    "what was lost on the host before the first count",
)


def as_html(story: Story) -> str:
    """The whole page. Every text is escaped, whatever the receipts say."""
    style = (Path(__file__).parent / "report.css").read_text("utf-8")
    title = f"nl-cutover report: {story.verdict}"
    code = ExitCode(story.exit_code)
    kind = "good" if code is ExitCode.PROVED else "wrong"
    sections = [
        _section("Who reaches which store", f"<figure>{as_svg(story)}</figure>{_checkouts(story)}"),
        _section("Rows by outcome", _outcomes(story)),
        _section("What is lost, in words", _list(map(loss_in_words, story.losses), "Nothing was recorded as lost.")),
        _section("Said beforehand, and not proved", _list(story.notes, "")) if story.notes else "",
        _section("Differences, by source key", _differences(story)),
        _section("Decisions about unknown outcomes", _decisions(story)) if story.settled else "",
        _section("The run in time", f'<ol class="timeline">{"".join(map(_event, story.timeline))}</ol>'),
        _section("What this cannot show", _list(_CANNOT, "")),
        _section("From old id to new", _id_map(story)) if story.id_map else "",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{_text(title)}</title><style>\n{style}</style></head>\n<body><header><h1>nl-cutover report</h1>"
        f'<p class="verdict {kind}">{_text(story.verdict)}</p></header>\n'
        f"{_facts(story, code)}\n{''.join(sections)}</body></html>\n"
    )


def _text(value: object) -> str:
    return escape(visible(str(value)))


def _section(title: str, body: str) -> str:
    return f"<section><h2>{_text(title)}</h2>{body}</section>\n"


def _facts(story: Story, code: ExitCode) -> str:
    head = story.timeline[-1]
    facts = [
        ("exit code", f"{int(code)}, {code.meaning}"),
        ("run", story.run or "none has begun"),
        ("host", story.host),
        ("at", story.at),
        ("plane", f"{story.plane.plane_id or 'unnamed'} at {story.plane.url}" if story.plane else "none"),
        ("last receipt", f"number {head.number}, {head.kind}, sha256 {head.sha256}"),
        ("written by", story.tool),
    ]
    return "<dl>" + "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in facts) + "</dl>"


def _table(headers: Sequence[str], rows: Iterable[tuple[str, Sequence[tuple[str, object]]]]) -> str:
    """`rows` are (class of the row, cells), a cell (its class, its value)."""
    head = "".join(f"<th>{_text(header)}</th>" for header in headers)
    body = "".join(
        f'<tr class="{kind}">' + "".join(f'<td class="{cls}">{_text(value)}</td>' for cls, value in cells) + "</tr>"
        for kind, cells in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _list(sentences: Iterable[str], nothing: str) -> str:
    items = "".join(f"<li>{_text(sentence)}</li>" for sentence in sentences)
    return f"<ul>{items}</ul>" if items else f'<p class="faint">{_text(nothing)}</p>'


def _checkouts(story: Story) -> str:
    rows = [
        ("", [("any", c.seat), ("", c.state), ("id", c.store or "-"), ("id", c.path)]) for c in story.measured.checkouts
    ]
    stores = [("", [("id", s.id), ("id", s.path)]) for s in story.measured.stores]
    return (
        "<details><summary>Names and paths</summary>"
        f"{_table(['checkout', 'state', 'store', 'path'], rows)}{_table(['store', 'path'], stores)}</details>"
    )


def _outcomes(story: Story) -> str:
    if story.moved is None:
        return '<p class="faint">No receipt of a migration is here.</p>'
    a, m, t = story.moved.archives, story.moved.marks, story.moved.telemetry
    rows = [
        (a.confirmed, "archive|s confirmed: read back and equal"),
        (a.refused, "archive|s refused"),
        (a.unknown, "archive|s with an unknown outcome"),
        (a.pending, "archive|s not brought over yet"),
        (a.differs, "archive|s that read back differently"),
        (a.excluded, "archive|s left on the host by the operator's word"),
        (m.made, f"replay mark|s made, of {m.wanted}"),
        (m.unknown, "archive|s with an unknown mark"),
        (t.admitted, "action|s admitted"),
        (t.refused, "action|s refused"),
        (t.unknown, "action|s with an unknown outcome"),
        (t.pending, "action|s not brought over yet"),
        (t.left, "action|s left, undecided"),
        (t.discarded, "action|s discarded by the operator's word"),
        (t.excluded, "action|s left on the host by the operator's word"),
    ]
    told = [("", [("n", count), ("", fitted(count, words))]) for count, words in rows if count]
    none = "; ".join(fitted(count, words) for count, words in rows if not count)
    table = _table(["rows", f"of {counted(a.rows, 'archive|s')} and {counted(t.rows, 'action|s')}"], told)
    return f'{table}<p class="faint">None of these: {_text(none)}.</p>'


def _differences(story: Story) -> str:
    rows = [("", [("id", d.old), ("id", d.new or "-"), ("any", d.what)]) for d in story.differences]
    rows += [("", [("id", o.key), ("", o.kind), ("any", f"{o.state}: {o.reason}")]) for o in story.odd]
    if not rows:
        return '<p class="faint">None: every row is where it belongs.</p>'
    return _table(["old id", "new id, or what it is", "what"], rows)


def _decisions(story: Story) -> str:
    rows = [("", [("id", s.key), ("", s.what), ("", s.decision), ("any", f"{s.by} {s.detail}")]) for s in story.settled]
    return _table(["row", "what", "decision", "by"], rows)


def _event(event: Event) -> str:
    word = event.verdict if event.exit_code is None else f"{event.verdict} (exit {event.exit_code})"
    kind = "faint" if event.exit_code is None else "good" if event.exit_code == 0 else "wrong"
    return (
        f'<li><span class="faint">{_text(event.at)}</span> <strong>{_text(event.kind)}</strong> '
        f'<span class="{kind}">{_text(word)}</span><br>{_text(event.sentence)}<br>'
        f"<code>{event.number:04d} {_text(event.sha256[:16])}</code></li>"
    )


def _id_map(story: Story) -> str:
    rows = [
        ("", [("id", m.old), ("id", m.new), ("n", f"{m.marks_made} of {m.marks_wanted}"), ("id", m.digest[:16])])
        for m in story.id_map
    ]
    table = _table(["old id", "new id", "replays", "row digest"], rows)
    return f"<details><summary>{counted(len(rows), 'archive|s')}</summary>{table}</details>"
