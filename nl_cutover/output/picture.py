"""The picture of a run, checkouts → stores → plane: as Mermaid for a page that draws it, as SVG for one that does not."""

from __future__ import annotations

from html import escape

import msgspec

from ..contract.rows import ACTIONS, ARCHIVES
from ..papers.story import Story
from ..wording import counted, fitted
from .documents import shorten, visible

_SHOWN = 12  # boxes of a kind in the Mermaid picture; the page shows all
_LABEL = 56  # characters of a label as Mermaid reads it, so that its line stays under 80
_FREE = frozenset(" ._/@:,-()")


class Seat(msgspec.Struct, frozen=True):
    name: str
    state: str


class Shelf(msgspec.Struct, frozen=True):
    """A store with the checkouts that reach it; `id` is None for the checkouts that reach none."""

    id: str | None
    path: str
    lines: list[str]
    seats: list[Seat]


def shelves(story: Story) -> list[Shelf]:
    """What the picture shows, in the order of the receipts."""
    made = []
    for store in story.measured.stores:
        seats = [Seat(c.seat, c.state) for c in story.measured.checkouts if c.store == store.id]
        rows = {t.name: str(t.rows) if t.state == "measured" else t.state for t in store.tables}
        lines = [
            f"{rows[name]} {fitted(rows[name] == '1', word)}"
            for name, word in ((ARCHIVES, "archive|s"), (ACTIONS, "action|s"))
            if name in rows
        ]
        made.append(Shelf(store.id, store.path, [*lines, "sealed" if store.seal.complete else "not sealed"], seats))
    stray = [Seat(c.seat, c.state) for c in story.measured.checkouts if c.store is None]
    return [*made, *([Shelf(None, "", [], stray)] if stray else [])]


def plane_lines(story: Story) -> list[str]:
    if story.plane is None or story.moved is None:
        return ["Memory Core", "nothing was brought over"]
    a, t = story.moved.archives, story.moved.telemetry
    return [
        f"Memory Core {story.plane.plane_id or '(unnamed)'}",
        f"{a.confirmed} of {counted(a.rows, 'archive|s')}",
        f"{t.admitted} of {counted(t.rows, 'action|s')}",
    ]


# Mermaid -------------------------------------------------------------------------------------------------------------


def as_mermaid(story: Story) -> str:
    """A flowchart in a Markdown fence, under 2,000 characters and 80 columns, whatever the names are."""
    nodes, edges, hidden = [], [], 0
    shown = shelves(story)
    room = _SHOWN // max(1, min(len(shown), _SHOWN // 2))
    for number, shelf in enumerate(shown):
        if number >= _SHOWN // 2:
            hidden += len(shelf.seats) + 1
            continue
        target = "none" if shelf.id is None else f"s{number}"
        for at, seat in enumerate(shelf.seats[:room]):
            nodes.append(f'  c{number}_{at}["checkout {_label(seat.name, 14)}"]')
            edges.append(f"  c{number}_{at} --> {target}")
        hidden += len(shelf.seats) - len(shelf.seats[:room])
        if shelf.id is not None:
            nodes.append(f'  s{number}[("store {_label(shelf.id, 20)}")]')
            edges.append(f"  {target} --> plane")
        else:
            nodes.append('  none["no store"]')
    nodes.append(f'  plane["{_label(plane_lines(story)[0], 40)}"]')
    notes = [f'  more["and {hidden} more"]'] if hidden else []
    return "\n".join(["```mermaid", "flowchart LR", *nodes, *notes, *edges, "```"]) + "\n"


def _label(text: str, width: int) -> str:
    """Text inside a quoted label: all that could end it or mean something to Mermaid is a character code."""
    while True:
        shown = shorten(visible(text), width)
        label = "".join(c if c in _FREE or c.isalnum() else f"#{ord(c)};" for c in shown)
        if len(label) <= _LABEL:
            return label
        width -= 1


# SVG -----------------------------------------------------------------------------------------------------------------

_WIDTH, _LINE, _PAD, _STORE = 360, 15, 8, 174
_LEFT, _RIGHT, _RAIL = 126, 166, 350  # right edge of the checkouts, left edge of the stores, the way to the plane


def as_svg(story: Story) -> str:
    """An inline SVG, 360 units wide, coloured by the page's variables. Every full name is a tooltip too."""
    parts: list[str] = []
    y = 4
    docks: list[int] = []
    for shelf in shelves(story):
        lines = [] if shelf.id is None else [_narrow(f"store {shelf.id}", 19), *shelf.lines]
        height = max(len(lines) * _LINE + 2 * _PAD, len(shelf.seats) * 26 - 4, 22)
        middle = y + height // 2
        for at, seat in enumerate(shelf.seats):
            top = y + at * 26 + max(0, (height - len(shelf.seats) * 26 + 4) // 2)
            kind = "box" if seat.state == "measured" else "box bad"
            parts.append(_box(4, top, _LEFT - 4, 22, kind, [_narrow(seat.name, 13)], f"{seat.name}: {seat.state}"))
            if shelf.id is not None:
                parts.append(
                    f'<path class="edge" marker-end="url(#tip)" '
                    f'd="M{_LEFT} {top + 11} C{_LEFT + 26} {top + 11} {_RIGHT - 28} {middle} {_RIGHT - 2} {middle}"/>'
                )
        if shelf.id is None:
            parts.append(f'<text class="faint" x="{_LEFT + 10}" y="{middle + 4}">reaches no store</text>')
        else:
            parts.append(
                _box(
                    _RIGHT,
                    middle - (len(lines) * _LINE + 2 * _PAD) // 2,
                    _STORE,
                    len(lines) * _LINE + 2 * _PAD,
                    "box store",
                    lines,
                    shelf.path,
                )
            )
            docks.append(middle)
        y += height + 14
    told = [_narrow(line, 42) for line in plane_lines(story)]
    if docks:
        rail = f"M{_RAIL} {docks[0]} V{y + 6}" + "".join(f" M{_RIGHT + _STORE} {dock} H{_RAIL}" for dock in docks)
        parts.append(
            f'<path class="edge" d="{rail}"/><path class="edge" marker-end="url(#tip)" d="M{_RAIL} {y} V{y + 8}"/>'
        )
    y += 10
    parts.append(
        _box(
            4,
            y,
            _WIDTH - 8,
            len(told) * _LINE + 2 * _PAD,
            "box plane",
            told,
            story.plane.url if story.plane else "no plane",
        )
    )
    height = y + len(told) * _LINE + 2 * _PAD + 4
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="Which checkout reaches which store">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>' + "".join(parts) + "</svg>"
    )


def _narrow(text: str, width: int) -> str:
    """A name in so many columns of a monospaced font; letters that may be wide count twice."""
    return shorten(visible(text), width if text.isascii() else width // 2)


def _box(x: int, y: int, width: int, height: int, kind: str, lines: list[str], title: str) -> str:
    text = "".join(
        f'<text{"" if at == 0 else " class=small"} x="{x + 9}" y="{y + (height - len(lines) * _LINE) // 2 + 12 + at * _LINE}">'
        f"{escape(line)}</text>"
        for at, line in enumerate(lines)
    )
    rect = f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="4"/>'
    return f"<g><title>{escape(visible(title))}</title>{rect}{text}</g>"
