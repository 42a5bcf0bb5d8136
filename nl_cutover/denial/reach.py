"""How a surface gets at a load through files of its own tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .judge import Edge, Judged
from .report import Finding

Placed = tuple[Finding, int]  # and the last line of what was found


def reached(
    judged: Mapping[str, Sequence[Judged]], edges: Mapping[str, Sequence[Edge]], in_surface: Callable[[str], bool]
) -> list[Placed]:
    """All findings: those in the surface, those in what it reaches, and each file of it that only reaches a load."""
    surface = [path for path in judged if in_surface(path)]
    came = _forward(surface, edges)
    found: list[Placed] = []
    for path, chain in came.items():
        for item in judged.get(path, ()):
            way = chain if len(chain) > 1 else ()
            found.append((Finding(path, item.line, item.form, item.specifier, item.resolution, way), item.last_line))
    first = _backward(judged, edges)
    for path in surface:
        if path in first and not any(item.loads for item in judged[path]):
            edge = first[path]
            assert edge is not None
            found.append(
                (
                    Finding(path, edge.line, edge.form, edge.specifier, edge.resolution, _way(path, first, judged)),
                    edge.line,
                )
            )
    return sorted(found, key=lambda item: (item[0].path, item[0].line, item[0].form, item[0].specifier))


def _forward(surface: Sequence[str], edges: Mapping[str, Sequence[Edge]]) -> dict[str, tuple[str, ...]]:
    """Each file that the surface reaches, with the shortest way to it."""
    came: dict[str, tuple[str, ...]] = {path: (path,) for path in surface}
    queue = list(surface)
    for path in queue:
        for edge in edges.get(path, ()):
            if edge.target not in came:
                came[edge.target] = (*came[path], edge.target)
                queue.append(edge.target)
    return came


def _backward(judged: Mapping[str, Sequence[Judged]], edges: Mapping[str, Sequence[Edge]]) -> dict[str, Edge | None]:
    """Each file that gets at a load, with its first step on the shortest way; None for a file that loads itself."""
    into: dict[str, list[tuple[str, Edge]]] = {}
    for path, many in edges.items():
        for edge in many:
            into.setdefault(edge.target, []).append((path, edge))
    first: dict[str, Edge | None] = {path: None for path, items in judged.items() if any(item.loads for item in items)}
    queue = list(first)
    for path in queue:
        for importer, edge in into.get(path, ()):
            if importer not in first:
                first[importer] = edge
                queue.append(importer)
    return first


def _way(path: str, first: Mapping[str, Edge | None], judged: Mapping[str, Sequence[Judged]]) -> tuple[str, ...]:
    way = [path]
    while (edge := first[way[-1]]) is not None:
        way.append(edge.target)
    return (*way, next(item.specifier for item in judged[way[-1]] if item.loads))
