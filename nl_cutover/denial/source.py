"""One parsed file: its syntax tree, and which name means what where. Nothing here recurses, however deep the code is."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

Chain = tuple["Node", ...]  # from the root to a node

_FUNCTIONS = frozenset({
    "function_declaration", "function_expression", "arrow_function", "method_definition", "generator_function",
    "generator_function_declaration", "class_static_block", "program",
})  # fmt: skip
_BLOCKS = _FUNCTIONS | {"statement_block", "for_statement", "for_in_statement", "catch_clause", "switch_body", "class"}
FUNCTION_LITERALS = frozenset({"function_expression", "arrow_function", "generator_function"})
_PATTERNS = frozenset({
    "object_pattern", "array_pattern", "pair_pattern", "rest_pattern", "assignment_pattern",
    "object_assignment_pattern", "required_parameter", "optional_parameter",
})  # fmt: skip
NAMES = frozenset({"identifier", "shorthand_property_identifier", "shorthand_property_identifier_pattern"})
_IN_WORD = frozenset(bytes([b]) for b in b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$")
_CHANGES = frozenset({b"push", b"unshift", b"splice", b"fill", b"reverse", b"sort", b"pop", b"shift"})
_DOT = re.compile(rb"\s*\.")
_ATTRIBUTES = re.compile(rb"""((?:"[^"\n]*"|'[^'\n]*')\s*)((?:with|assert)\s*\{[^{}]*\})""")
_ALIASES = re.compile(rb"""((?:\bas\s*|[{,]\s*)(?:"[^"\n]*"|'[^'\n]*'))(?=\s*(?:[,}]|as\b))""")


class Binding(NamedTuple):
    """A declaration: the bytes in which the name means it, and how it came."""

    start: int
    end: int
    kind: str  # const let var param function class import catch
    chain: Chain  # to the declared identifier
    holder: int  # index in `chain` of the declarator, the function or the import


class Scopes(NamedTuple):
    """The declarations of one name in the order of their scopes; `outer` is the place of the one around each, or -1."""

    starts: list[int]
    bindings: list[Binding]
    outer: list[int]


@cache
def _parser(grammar: str) -> Parser:
    import tree_sitter

    if grammar == "javascript":
        import tree_sitter_javascript

        return tree_sitter.Parser(tree_sitter.Language(tree_sitter_javascript.language()))
    import tree_sitter_typescript

    language = tree_sitter_typescript.language_tsx if grammar == "tsx" else tree_sitter_typescript.language_typescript
    return tree_sitter.Parser(tree_sitter.Language(language()))


class Source:
    """A file's text as the runtime sees it, and its tree. `path` is relative to the tree's root."""

    def __init__(self, path: str, code: bytes, grammar: str) -> None:
        self.path, self.grammar, self.code = path, grammar, code
        self.decodes = True
        if not code.isascii():
            try:
                code.decode("utf-8")
            except UnicodeDecodeError:
                self.decodes = not code.startswith((b"\xff\xfe", b"\xfe\xff"))
                self.code = code = code.decode("utf-8" if self.decodes else "utf-16", "replace").encode()
            if code.startswith(b"\xef\xbb\xbf"):
                self.code = code = code[3:]
        if b"\0" in code:  # the grammar takes it for the end of the file
            self.code = code = code.replace(b"\0", b" ")
        if b"\r" in code:
            self.code = code = re.sub(rb"\r(?!\n)", b"\n", code)
        tree = _parser(grammar).parse(code)
        if tree.root_node.has_error:
            # Import attributes on an export, and names in quotes: the runtime knows them, the grammar does not.
            blanked = _ATTRIBUTES.sub(lambda m: m[1] + re.sub(rb"[^\n]", b" ", m[2]), code)
            blanked = _ALIASES.sub(lambda m: re.sub(rb"""["'][^"']*["']""", lambda n: b"_" * len(n[0]), m[1]), blanked)
            if blanked != code and not (again := _parser(grammar).parse(blanked)).root_node.has_error:
                tree = again
        self._tree = tree
        self.root = tree.root_node
        self._bindings: dict[str, Scopes] = {}
        self._counted = (0, 1)
        self._split: list[bytes] | None = None

    @property
    def error_line(self) -> int | None:
        """The line of the first thing that does not parse."""
        if self.decodes and not self.root.has_error:
            return None
        cursor = self.root.walk()
        while cursor.goto_first_child():
            while cursor.node is not None and not cursor.node.has_error and cursor.goto_next_sibling():
                pass
            if cursor.node is None or cursor.node.is_error or cursor.node.is_missing:
                break
        return self.line(cursor.node.start_byte if cursor.node else 0)

    def line(self, byte: int) -> int:
        # From the place that was asked for last: a long file is not counted from its beginning for each finding.
        last, line = self._counted
        if last <= byte:
            line += self.code.count(b"\n", last, byte)
        else:
            line -= self.code.count(b"\n", byte, last)
        self._counted = (byte, line)
        return line

    def text(self, node: Node) -> str:
        return self.code[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def lines(self, first: int, last: int) -> bytes:
        if self._split is None:
            self._split = self.code.split(b"\n")
        return b"\n".join(self._split[first - 1 : last])

    def at(self, start: int, end: int) -> Node | None:
        return self.root.descendant_for_byte_range(start, end)

    def chain(self, start: int, end: int) -> Chain:
        """The nodes from the root to the smallest one that spans these bytes."""
        node, last = self.root, self.at(start, end)
        found = [node]
        while last is not None and node != last and (child := node.child_with_descendant(last)) is not None:
            node = child
            found.append(node)
        return tuple(found)

    def occurrences(self, name: str, start: int = 0, end: int | None = None, dotted: bool = True) -> Iterator[Chain]:
        """Where a name stands as a name: not in comments, strings or after a dot. `dotted`: also before one."""
        code, word = self.code, name.encode()
        end = len(code) if end is None else end
        stop = start
        while word and (at := code.find(word, stop, end)) >= 0:
            stop = at + len(word)
            if code[at - 1 : at] in _IN_WORD or code[stop : stop + 1] in _IN_WORD:
                continue
            if not dotted and _DOT.match(code, stop):
                continue
            node = self.at(at, stop)
            if node is not None and node.type in NAMES and node.end_byte - node.start_byte == len(word):
                yield self.chain(at, stop)

    def escaped_names(self, places: Sequence[int]) -> Iterator[tuple[str, Chain]]:
        """Identifiers that are spelled with unicode escapes, and what they spell; `places` are those of `\\u`."""
        end = 0
        for start in places:
            node = self.at(start, start + 2) if start >= end else None
            if node is not None and node.type in NAMES:
                end = node.end_byte
                yield unescape(self.text(node)), self.chain(node.start_byte, end)

    def _scopes(self, name: str) -> Scopes:
        """The declarations of a name in this file, the first of each scope."""
        first: dict[tuple[int, int], Binding] = {}
        # What has a member read is no declaration: that spares a look at most places.
        for chain in self.occurrences(name, dotted=False):
            if (binding := _binding(chain)) is not None:
                first.setdefault((binding.start, -binding.end), binding)
        made = Scopes([], [], [])
        around: list[int] = []
        for number, (_, binding) in enumerate(sorted(first.items(), key=lambda item: item[0])):
            while around and made.bindings[around[-1]].end <= binding.start:
                around.pop()
            made.starts.append(binding.start)
            made.bindings.append(binding)
            made.outer.append(around[-1] if around else -1)
            around.append(number)
        return made

    def resolve(self, name: str, byte: int) -> Binding | None:
        """The innermost declaration of the name that reaches this byte; None for a name of the environment."""
        scopes = self._bindings.get(name)
        if scopes is None:
            scopes = self._bindings[name] = self._scopes(name)
        at = bisect_right(scopes.starts, byte) - 1
        while at >= 0 and scopes.bindings[at].end <= byte:
            at = scopes.outer[at]
        return scopes.bindings[at] if at >= 0 else None

    def references(self, binding: Binding) -> Iterator[Chain]:
        """Where the declared name is used or assigned, without its declarations."""
        name = self.text(binding.chain[-1])
        for chain in self.occurrences(name, binding.start, binding.end):
            if self.resolve(name, chain[-1].start_byte) is binding and _binding(chain) is None:
                yield chain


def field(node: Node, name: str) -> tuple[Node, ...]:
    """The child of that field as the end of a chain; nothing where there is none."""
    child = node.child_by_field_name(name)
    return () if child is None else (child,)


def unescape(text: str) -> str:
    return re.sub(r"\\u(?:([0-9A-Fa-f]{4})|\{([0-9A-Fa-f]+)\})", lambda m: chr(int(m[1] or m[2], 16)), text)


def _binding(chain: Chain) -> Binding | None:
    """What this identifier declares, if it does."""
    at = len(chain) - 2
    while at > 0 and chain[at].type in _PATTERNS and _declares(chain[at], chain[at + 1]):
        at -= 1
    holder, inner = chain[at], chain[at + 1]
    match holder.type:
        case "variable_declarator" if holder.child_by_field_name("name") == inner:
            kind = chain[at - 1].children[0].type
            return _scoped(chain, at, kind, at - 1, _FUNCTIONS if kind == "var" else _BLOCKS)
        case "for_in_statement" if holder.child_by_field_name("left") == inner:
            kind_node = holder.child_by_field_name("kind")
            if kind_node is None:
                return None
            return _scoped(chain, at, kind_node.type, at, _FUNCTIONS if kind_node.type == "var" else _BLOCKS)
        case "formal_parameters":
            return _scoped(chain, at - 1, "param", at - 1, _FUNCTIONS)
        case "arrow_function" if holder.child_by_field_name("parameter") == inner:
            return _scoped(chain, at, "param", at, _FUNCTIONS)
        case "function_declaration" | "generator_function_declaration" if holder.child_by_field_name("name") == inner:
            return _scoped(chain, at, "function", at - 1, _BLOCKS)
        case "class_declaration" if holder.child_by_field_name("name") == inner:
            return _scoped(chain, at, "class", at - 1, _BLOCKS)
        case "function_expression" | "generator_function" | "class" if holder.child_by_field_name("name") == inner:
            return _scoped(chain, at, "function", at, _BLOCKS)
        case "catch_clause" if holder.child_by_field_name("parameter") == inner:
            return _scoped(chain, at, "catch", at, _BLOCKS)
        case "import_clause" | "namespace_import" | "import_require_clause":
            return _scoped(chain, at, "import", 0, _BLOCKS)
        case "import_specifier" if (holder.child_by_field_name("alias") or holder.child_by_field_name("name")) == inner:
            return _scoped(chain, at, "import", 0, _BLOCKS)
    return None


def _declares(pattern: Node, inner: Node) -> bool:
    match pattern.type:
        case "pair_pattern":
            return pattern.child_by_field_name("value") == inner
        case "assignment_pattern" | "object_assignment_pattern":
            return pattern.child_by_field_name("left") == inner
        case "required_parameter" | "optional_parameter":
            return pattern.child_by_field_name("pattern") == inner
    return True


def assigned(use: Chain) -> bool:
    holder = use[-2]
    if holder.type in ("assignment_expression", "augmented_assignment_expression", "for_in_statement"):
        return holder.child_by_field_name("left") == use[-1]
    return holder.type in ("update_expression", "array_pattern", "pair_pattern", "object_pattern", "rest_pattern") or (
        use[-1].type == "shorthand_property_identifier_pattern"
    )


def changed(use: Chain) -> bool:
    """Whether the array or object under this name is changed: `args.push(x)`, `options.eval = true`."""
    member, holder = use[-2], use[-3]
    if member.type not in ("member_expression", "subscript_expression"):
        return member.type == "arguments" and holder.children[0].text == b"Object.assign"
    name = member.child_by_field_name("property")
    called_ = holder.type == "call_expression" and name is not None and name.text in _CHANGES
    return called_ or (holder.type == "assignment_expression" and holder.child_by_field_name("left") == member)


def _scoped(chain: Chain, holder: int, kind: str, outwards: int, scopes: frozenset[str]) -> Binding:
    while outwards > 0 and chain[outwards].type not in scopes:
        outwards -= 1
    return Binding(chain[outwards].start_byte, chain[outwards].end_byte, kind, chain, holder)
