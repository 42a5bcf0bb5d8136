"""A path that no string may contain, where it is put together from pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .folding import Folder
from .loads import Places, Texts
from .source import Chain, Source

_WHOLES = frozenset({
    "string_fragment", "string", "template_string", "template_substitution", "binary_expression",
    "parenthesized_expression", "array", "arguments",
})  # fmt: skip
_HIGH = 12  # levels from a piece to the whole
_DEEP = 40


def pieces_of(paths: Iterable[str]) -> Texts:
    """What a path is seldom cut within: the names of it, and its extension."""
    return Texts(piece for path in paths for piece in (*path.split("/"), f".{path.rpartition('.')[2]}"))


def joined_places(source: Source, pieces: Texts, paths: Texts, places: Places) -> Iterator[tuple[int, str]]:
    """(line, path) of the smallest expressions that give a text with one of the paths in it, whatever else is in it."""
    folder = Folder(source)
    for match in pieces.finditer(source.code, places):
        node = source.at(*match.span())
        if node is None or node.type not in _WHOLES:
            continue
        chain = source.chain(*match.span())
        if node.type == "string_fragment" and chain[-2].named_child_count == 1 and chain[-3].type not in _WHOLES:
            continue  # a literal, and put together with nothing
        for end in range(len(chain), max(len(chain) - _HIGH, 1), -1):
            if chain[end - 1].type not in _WHOLES:
                break
            found = next(paths.finditer(_text(folder, chain[:end]).encode("utf-8", "replace")), None)
            if found is not None:
                if chain[end - 1].type != "string_fragment":  # that one is a literal
                    yield source.line(chain[end - 1].start_byte), found[0].decode()
                break


def _text(folder: Folder, chain: Chain, depth: int = 0) -> str:
    """The text of an expression, as far as it is known."""
    node = chain[-1]
    if node.type == "string_fragment":
        return folder.source.text(node)
    known = folder.fold(chain)
    if known.complete or depth > _DEEP:
        return "\n".join(known.texts)
    if node.type not in _WHOLES:
        return "\0"
    by = "/" if node.type in ("array", "arguments") else ""
    parts = [(*chain, child) for child in node.named_children if child.type != "comment"]
    return by.join(_text(folder, part, depth + 1) for part in parts)
