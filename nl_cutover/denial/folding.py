"""What a piece of code evaluates to, where that can be told without running it: constant strings, and sets of them."""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from .source import Binding, Chain, Source, assigned, changed, field, unescape

if TYPE_CHECKING:
    from tree_sitter import Node

TREE = "file://tree/"  # the tree's root, as the paths of folded URLs begin
_MANY = 64  # values; more than these count as undecided
_DEEP = 60  # folds within folds
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]+)\}|\r?\n|(.))", re.DOTALL)


class Values(NamedTuple):
    """The texts that an expression may have. `complete`: there are no others. `literal`: it stands there as it is."""

    texts: tuple[str, ...]
    complete: bool
    literal: bool = False


UNDECIDED = Values((), False)


class Folder:
    """Folds expressions of one file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._named: dict[int, Values] = {}  # by the declared identifier

    def fold(self, chain: Chain, depth: int = 0) -> Values:
        """The texts of the expression at the end of `chain`."""
        if depth > _DEEP:
            return UNDECIDED
        node, deeper = chain[-1], depth + 1
        child = _reader(chain)
        match node.type:
            case "string" | "template_string":
                return self._string(chain, deeper)
            case "number":
                return Values((self.source.text(node),), True)
            case "identifier":
                return self._identifier(chain, deeper)
            case "binary_expression":
                left, right = self.fold(child("left"), deeper), self.fold(child("right"), deeper)
                match _operator(node):
                    case "+":
                        return _product([left, right])
                    case "||" | "??" | "&&":
                        return _union([left, right])
                return UNDECIDED
            case "ternary_expression":
                return _union([self.fold(child("consequence"), deeper), self.fold(child("alternative"), deeper)])
            case "assignment_expression":
                return self.fold(child("right"), deeper)
            case "call_expression":
                return self._call(chain, deeper)
            case "new_expression":
                constructor = node.child_by_field_name("constructor")
                if constructor is not None and self.source.text(constructor) == "URL":
                    return self._url(chain, deeper)
                return UNDECIDED
            case "member_expression" | "subscript_expression":
                return self._member(chain, deeper)
            case "sequence_expression":
                return self.fold((*chain, node.named_children[-1]), deeper)
            case (
                "parenthesized_expression" | "await_expression" | "as_expression" | "satisfies_expression"
                | "non_null_expression"
            ):  # fmt: skip
                return self.fold((*chain, _code(node)[0]), deeper) if _code(node) else UNDECIDED
            case "type_assertion":
                return self.fold((*chain, node.named_children[-1]), deeper)
        return UNDECIDED

    def elements(self, chain: Chain, depth: int = 0) -> list[Values] | None:
        """The items of an array, each with its possible texts; None where the array itself is not known."""
        if depth > _DEEP:
            return None
        node, deeper = chain[-1], depth + 1
        if node.type == "array":
            found: list[Values] = []
            for item in _code(node):
                if item.type == "spread_element":
                    inner = self.elements((*chain, item, _code(item)[0]), deeper)
                    found += inner if inner is not None else [UNDECIDED]
                else:
                    found.append(self.fold((*chain, item), deeper))
            return found
        if node.type == "identifier":
            value = self.constant(chain)
            return self.elements(value, deeper) if value is not None else None
        if node.type == "parenthesized_expression" and _code(node):
            return self.elements((*chain, _code(node)[0]), deeper)
        if node.type != "call_expression":
            return None
        function, arguments = called(chain)
        if function is None or function[-1].type != "member_expression":
            return None
        receiver, name = (*function, *field(function[-1], "object")), self._property(function)
        if name == "reverse" and (items := self.elements(receiver, deeper)) is not None:
            return items[::-1]
        if name in ("slice", "concat", "filter") and not arguments:
            return self.elements(receiver, deeper)
        if name == "split" and len(arguments) == 1:
            text, by = self.fold(receiver, deeper), self.fold(arguments[0], deeper)
            if len(text.texts) == len(by.texts) == 1 and text.complete and by.complete:
                parts = text.texts[0].split(by.texts[0]) if by.texts[0] else list(text.texts[0])
                return [Values((part,), True) for part in parts]
        return None

    def constant(self, chain: Chain) -> Chain | None:
        """The one expression that an identifier was declared with."""
        binding = self.source.resolve(self.source.text(chain[-1]), chain[-1].start_byte)
        if binding is None or binding.kind not in ("const", "let", "var") or binding.holder != len(binding.chain) - 2:
            return None
        declarator = binding.chain[: binding.holder + 1]
        value = field(declarator[-1], "value")
        if not value or any(assigned(use) or changed(use) for use in self.source.references(binding)):
            return None
        return (*declarator, *value)

    def _string(self, chain: Chain, depth: int) -> Values:
        parts: list[Values] = []
        literal = True
        for piece in chain[-1].children:
            match piece.type:
                case "string_fragment" | "html_character_reference":
                    parts.append(Values((self.source.text(piece),), True))
                case "escape_sequence":
                    literal = False
                    parts.append(Values((_escape(self.source.text(piece)),), True))
                case "template_substitution":
                    literal = False
                    inner = _code(piece)
                    parts.append(self.fold((*chain, piece, inner[0]), depth) if inner else UNDECIDED)
        return _product(parts)._replace(literal=literal)

    def _identifier(self, chain: Chain, depth: int) -> Values:
        name = self.source.text(chain[-1])
        binding = self.source.resolve(name, chain[-1].start_byte)
        if binding is None:
            here = {"__filename": self.source.path, "__dirname": posixpath.dirname(self.source.path)}
            return Values((TREE + here[name],), True) if name in here else UNDECIDED
        holder = binding.chain[binding.holder]
        if holder.type == "for_in_statement":
            items = self.elements((*binding.chain[: binding.holder + 1], *field(holder, "right")), depth)
            return _union(items) if items else UNDECIDED
        if binding.kind not in ("const", "let", "var") or binding.holder != len(binding.chain) - 2:
            return UNDECIDED
        key = binding.chain[-1].id
        if key not in self._named:
            self._named[key] = UNDECIDED  # also for a name that is made of itself
            self._named[key] = self._declared(binding, depth)
        return self._named[key]

    def _declared(self, binding: Binding, depth: int) -> Values:
        """All that is ever assigned to a name."""
        values = []
        if value := field(binding.chain[binding.holder], "value"):
            values.append(self.fold((*binding.chain[: binding.holder + 1], *value), depth))
        for use in self.source.references(binding):
            if not assigned(use):
                continue
            if use[-2].type != "assignment_expression" or len(values) >= _MANY:
                return UNDECIDED
            values.append(self.fold((*use[:-1], *field(use[-2], "right")), depth))
        return _union(values) if values else UNDECIDED

    def _call(self, chain: Chain, depth: int) -> Values:
        function, arguments = called(chain)
        if function is None:
            return UNDECIDED
        name = self._property(function) if function[-1].type == "member_expression" else self.source.text(function[-1])
        texts = [self.fold(argument, depth) for argument in arguments]
        whole = self.source.text(function[-1]).replace(" ", "")
        if whole in (
            "require.resolve",
            "import.meta.resolve",
            "String",
            "fileURLToPath",
            "pathToFileURL",
            "url.fileURLToPath",
            "url.pathToFileURL",
        ):
            return texts[0]._replace(literal=False) if texts else UNDECIDED
        if whole == "atob":
            return _map(texts[0], _from_base64) if texts else UNDECIDED
        if whole in ("decodeURIComponent", "unescape", "decodeURI"):
            return _map(texts[0], unquote) if texts else UNDECIDED
        if whole == "String.fromCharCode":
            return _map(_product([_map(t, lambda n: chr(int(n, 0) & 0xFFFF)) for t in texts]), str)
        if whole in ("path.join", "path.resolve", "path.posix.join", "path.posix.resolve", "join", "resolve"):
            return _map(_product([_map(t, lambda part: f"{part}/") for t in texts]), _joined)
        if function[-1].type != "member_expression":
            return UNDECIDED
        receiver = (*function, *field(function[-1], "object"))
        return self._method(name, receiver, texts, depth)

    def _method(self, name: str, receiver: Chain, texts: list[Values], depth: int) -> Values:
        if name == "join":
            items = self.elements(receiver, depth)
            by = texts[0] if texts else Values((",",), True)
            if items is None or len(by.texts) != 1:
                return UNDECIDED
            pieces = [piece for item in items for piece in (item, by)][:-1]
            return _product(pieces)
        if name == "toString" and (buffer := self._buffer(receiver, depth)) is not None:
            return buffer
        text = self.fold(receiver, depth)
        match name:
            case "toString" | "trim" | "toLowerCase" | "toUpperCase" | "valueOf" | "normalize":
                change = {
                    "trim": lambda t: t.strip(),
                    "toLowerCase": lambda t: t.lower(),
                    "toUpperCase": lambda t: t.upper(),
                }
                return _map(text, change.get(name, str))
            case "concat":
                return _product([text, *texts])
            case "replace" | "replaceAll" if len(texts) == 2 and all(len(t.texts) == 1 and t.complete for t in texts):
                old, new = texts[0].texts[0], texts[1].texts[0]
                return _map(text, lambda t: t.replace(old, new, 1 if name == "replace" else -1))
        return UNDECIDED

    def _buffer(self, chain: Chain, depth: int) -> Values | None:
        """`Buffer.from(text, encoding)` as the text that it holds."""
        if chain[-1].type != "call_expression":
            return None
        function, arguments = called(chain)
        if function is None or self.source.text(function[-1]) != "Buffer.from" or not arguments:
            return None
        text = self.fold(arguments[0], depth)
        encoding = self.fold(arguments[1], depth).texts[:1] if len(arguments) > 1 else ("utf8",)
        match encoding:
            case ("base64",) | ("base64url",):
                return _map(text, _from_base64)
            case ("hex",):
                return _map(text, lambda t: bytes.fromhex(t).decode("utf-8", "replace"))
        return text

    def _url(self, chain: Chain, depth: int) -> Values:
        """`new URL(text, base)`: relative to this file where the base is `import.meta.url`."""
        arguments = _arguments(chain)
        texts = [self.fold(argument, depth) for argument in arguments[:2]]
        if len(texts) == 1:
            return texts[0]
        if len(texts) != 2:
            return UNDECIDED
        return _map(_product([_map(texts[1], lambda base: f"{base}\0"), texts[0]]), _resolved_url)

    def _member(self, chain: Chain, depth: int) -> Values:
        node = chain[-1]
        text = self.source.text(node)
        here = {
            "import.meta.url": self.source.path,
            "import.meta.filename": self.source.path,
            "import.meta.dirname": posixpath.dirname(self.source.path),
        }
        if text in here:
            return Values((TREE + here[text],), True)
        object_ = (*chain, *field(node, "object"))
        if node.type == "member_expression":
            key = self._property(chain)
            if key in ("href", "pathname") and object_[-1].type in ("new_expression", "identifier"):
                return self.fold(object_, depth)
        else:
            index = self.fold((*chain, *field(node, "index")), depth)
            if len(index.texts) != 1 or not index.complete:
                return UNDECIDED
            key = index.texts[0]
        holder = self.constant(object_) if object_[-1].type == "identifier" else object_
        if holder is None:
            return UNDECIDED
        if holder[-1].type == "array" and key.isdigit():
            items = self.elements(holder, depth)
            return items[int(key)] if items and int(key) < len(items) else UNDECIDED
        for pair in _code(holder[-1]) if holder[-1].type == "object" else []:
            if pair.type == "pair" and self.key((*holder, pair)) == key:
                return self.fold((*holder, pair, *field(pair, "value")), depth)
        return UNDECIDED

    def key(self, pair: Chain) -> str | None:
        """The name of a pair in an object or a pattern."""
        for key in field(pair[-1], "key"):
            if key.type in ("string", "computed_property_name"):
                inner = (*pair, key) if key.type == "string" else (*pair, key, *_code(key))
                return next(iter(self.fold(inner).texts), None)
            return unescape(self.source.text(key))
        return None

    def _property(self, member: Chain) -> str:
        return "".join(unescape(self.source.text(p)) for p in field(member[-1], "property"))


def called(chain: Chain) -> tuple[Chain | None, list[Chain]]:
    """What a call or `new` calls, without its parentheses, and its arguments."""
    function = field(chain[-1], "function") or field(chain[-1], "constructor")
    if not function:
        return None, []
    where = (*chain, *function)
    while where[-1].type in ("parenthesized_expression", "non_null_expression") and _code(where[-1]):
        where = (*where, _code(where[-1])[0])
    return where, _arguments(chain)


def _arguments(chain: Chain) -> list[Chain]:
    arguments = chain[-1].child_by_field_name("arguments")
    if arguments is None:
        return []
    if arguments.type == "template_string":
        return [(*chain, arguments)]
    return [(*chain, arguments, node) for node in _code(arguments)]


def _code(node: Node) -> list[Node]:
    """The children that are code: neither punctuation nor comments."""
    return [child for child in node.named_children if child.type != "comment"]


def _reader(chain: Chain) -> Callable[[str], Chain]:
    return lambda name: (*chain, *field(chain[-1], name))


def _operator(node: Node) -> str:
    operator = node.child_by_field_name("operator")
    return "" if operator is None else operator.type


def _product(parts: Iterable[Values]) -> Values:
    """Each text of the first before each text of the second, and so on."""
    texts, complete = [""], True
    for part in parts:
        complete &= part.complete
        texts = [before + after for before in texts for after in (part.texts or ("",))][:_MANY]
    return Values(tuple(texts) if complete else (), complete and len(texts) < _MANY)


def _union(parts: Iterable[Values]) -> Values:
    known = list(parts)
    texts = tuple(dict.fromkeys(text for part in known for text in part.texts))[:_MANY]
    return Values(texts, all(part.complete for part in known) and len(texts) < _MANY)


def _map(values: Values, does: Callable[[str], str]) -> Values:
    try:
        return Values(tuple(does(text) for text in values.texts), values.complete)
    except (ValueError, binascii.Error, OverflowError):
        return UNDECIDED


def _escape(text: str) -> str:
    def decode(match: re.Match[str]) -> str:
        code = match[1] or match[2] or match[3]
        return chr(min(int(code, 16), 0x10FFFF)) if code else _ESCAPES.get(match[4], match[4]) if match[4] else ""

    return _ESCAPE.sub(decode, text)


def _from_base64(text: str) -> str:
    plain = text.replace("-", "+").replace("_", "/").rstrip("=")
    return base64.b64decode(plain + "=" * (-len(plain) % 4)).decode("utf-8", "replace")


def _joined(text: str) -> str:
    if text.startswith(TREE):
        return TREE + posixpath.normpath(text[len(TREE) :]).lstrip("/")
    return posixpath.normpath(text)


def _resolved_url(text: str) -> str:
    base, _, relative = text.partition("\0")
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", relative):
        return relative
    if not base.startswith(TREE):
        raise ValueError(base)
    return TREE + posixpath.normpath(posixpath.join(posixpath.dirname(base[len(TREE) :]), relative))
