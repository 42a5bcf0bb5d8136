"""Every place of a file that loads code: its statements, and every name from which a value that can load comes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from .flow import Flow
from .folding import UNDECIDED, Values, called
from .loads import Load, Places, Texts, Words
from .rules import Loaders
from .source import FUNCTION_LITERALS, NAMES, Binding, Chain, Source, field

if TYPE_CHECKING:
    from tree_sitter import Node

_PLAIN = re.compile(rb"""import(?!\s+(?:type|defer|source)\b)[\s{][\w$*{},\s]*?[\s}]from\s*(['"])([^'"\\\n:#]+)\1""")
_CALLS = re.compile(r"(?:require|import|eval|Function|getBuiltinModule|dlopen|_load)\s*\(")
_OPTIONS_NAME, _ESCAPE = b"NODE_OPTIONS", b"\\u"
_OPTIONS = re.compile(rb"\.env(?:\.|\[.)NODE_OPTIONS\b(?=[^=\n]*=(?!=))")
_OWN_ARGUMENTS = frozenset({
    "function_declaration", "function_expression", "generator_function", "generator_function_declaration",
    "method_definition",
})  # fmt: skip
_DECLARED = ("function_declaration", "generator_function_declaration")
_NESTED = 4  # code within code within code


class Probe(NamedTuple):
    loads: list[Load]
    error_line: int | None


def probe(source: Source, searches: Searches, places: Places | None = None, depth: int = 0) -> Probe:
    """All loads of a file. `places` are those of the searches' words in it, if they are known."""
    prober = _Prober(source, searches, searches.words.places(source.code) if places is None else places)
    prober.statements()
    prober.values()
    prober.named(searches.packages)
    prober.environment()
    found = list(dict.fromkeys(prober.loads))
    for nested in prober.code:
        if depth < _NESTED:
            inner = probe(nested.source, searches, depth=depth + 1)
            found += [
                load._replace(line=nested.line, last_line=nested.last_line, form=nested.form) for load in inner.loads
            ]
            if inner.error_line is not None:
                found.append(Load(nested.line, nested.last_line, nested.form, "code"))
        else:
            found.append(Load(nested.line, nested.last_line, nested.form, "code"))
    return Probe(found, source.error_line)


class Searches:
    """What is searched for in every file, made once: where values may begin, the quoted names of packages, and `more`
    that is looked for by others."""

    def __init__(self, loaders: Loaders, packages: Texts, *more: Texts) -> None:
        self.loaders, self.packages = loaders, packages
        leads = "|".join(map(re.escape, loaders.leads))
        after = {
            "import": r"(?!\s*\.\s*meta\s*\.\s*(?:url|dirname|filename|env)\b)",
            "export": r"\b(?!\s+(?:default|class|const|function|async|let|var)\b)",
            "constructor": "",
            "arguments": r"\s*\[",
        }
        # `process.env` and its like are passed over: they lead nowhere.
        free = rf"(?!\s*\.\s*(?!(?:{leads})\b)[A-Za-z])"
        words = dict.fromkeys((*loaders.globals, *after))
        self.roots = tuple(
            (w.encode(), re.compile(rf"{re.escape(w)}(?![\w$]){after.get(w, free)}".encode())) for w in words
        )
        pieces = (piece for texts in (packages, *more) for piece in texts.pieces)
        self.words = Words((*(word for word, _ in self.roots), _OPTIONS_NAME, _ESCAPE, *pieces))


def _begins_word(code: bytes, at: int) -> bool:
    before = code[at - 1 : at]
    return not (before.isalnum() or before in (b"_", b"$")) or at == 0


class _Prober(Flow):
    def __init__(self, source: Source, searches: Searches, places: Places) -> None:
        super().__init__(source, searches.loaders)
        self.roots, self.places = searches.roots, places

    def statements(self) -> None:
        """Begin: imports, exports, and every free name that is a value."""
        code = self.source.code
        for word, pattern in self.roots:
            for start in self.places.get(word, ()):
                end = start + len(word)
                if not pattern.match(code, start) or not _begins_word(code, start):
                    continue
                if word == b"import" and self._plain_import(start):
                    continue
                node = self.source.at(start, end)
                if node is None or node.end_byte - node.start_byte != len(word):
                    continue  # within a comment, a string or a regular expression
                if node.type == "property_identifier" and word != b"constructor":
                    continue
                chain = self.source.chain(start, end)
                if word == b"constructor":
                    self._constructor(chain)
                else:
                    self._word(word.decode(), chain[:-1] if chain[-1].type == chain[-2].type else chain)
        for name, chain in self.source.escaped_names(self.places.get(_ESCAPE, ())):
            if name in self.loaders.globals:
                self._word(name, chain)

    def _word(self, word: str, chain: Chain) -> None:
        node, parent = chain[-1], chain[-2] if len(chain) > 1 else chain[-1]
        if node.type == "import":
            if parent.type == "call_expression":
                if any(
                    c.type.endswith("_type")
                    or c.type in ("type_alias_declaration", "type_annotation", "type_arguments", "type_query")
                    for c in chain
                ):
                    self._typed(chain[:-1], "type import")
                else:
                    self.push(chain, "import")
            elif parent.type == "import_statement":
                self._import(chain[:-1])
            elif parent.type == "meta_property":
                self.push(chain[:-1], "import.meta")
        elif node.type == "export" and parent.type == "export_statement":
            self._export(chain[:-1])
        elif (
            node.type in NAMES
            and word in self.loaders.globals
            and self.source.resolve(self.source.text(node), node.start_byte) is None
            # The module's own function has arguments: exports, require, module.
            and (word != "arguments" or not any(c.type in _OWN_ARGUMENTS for c in chain))
        ):
            self.push(chain, self.loaders.globals[word])

    def _plain_import(self, start: int) -> bool:
        """`import a, {b} from './c.mjs'` is nearly every import there is: read without a look at the tree below it."""
        source = self.source
        found = _PLAIN.match(source.code, start) if source.grammar == "javascript" else None
        if found is None:
            return False
        statement, text = source.at(start, found.end()), found[2].decode("utf-8", "replace")
        if statement is None or statement.type != "import_statement" or statement.start_byte != start:
            return False
        if self.import_value(text) is not None:
            return False
        lines = source.line(start), source.line(statement.end_byte)
        self.loads.append(Load(*lines, "static import", "module", (text,), True, True))
        return True

    def _import(self, chain: Chain) -> None:
        node = chain[-1]
        required = next((c for c in node.children if c.type == "import_require_clause"), None)
        string = (required or node).child_by_field_name("source")
        if string is None:
            return
        where = (*chain, required, string) if required else (*chain, string)
        texts = self.folder.fold(where)
        clause = next((c for c in node.children if c.type == "import_clause"), None)
        if any(c.type in ("type", "typeof") for c in node.children) or (clause is not None and _only_types(clause)):
            self._typed(where, "import type", texts)
            return
        form = "import equals" if required else "static import" if clause is not None else "side effect import"
        self.module(form, chain, texts)
        value = next((v for t in texts.texts if (v := self.import_value(t))), None)
        if value is not None:
            self._imported((*chain, *(c for c in (required, clause) if c is not None)), value)

    def _imported(self, chain: Chain, value: str) -> None:
        """The names that an import clause binds."""
        for child in chain[-1].named_children:
            match child.type:
                case "identifier":
                    self._uses((*chain, child), value)
                case "namespace_import":
                    self._uses((*chain, child, child.named_children[-1]), value)
                case "named_imports":
                    for item in child.named_children:
                        name, alias = item.child_by_field_name("name"), item.child_by_field_name("alias")
                        if item.type != "import_specifier" or name is None:
                            continue
                        text = self.source.text(name).strip("'\"")
                        inner = value if text == "default" else self.loaders.members.get(f"{value}.{text}")
                        if inner is not None:
                            self._uses((*chain, child, item, alias or name), inner)

    def _export(self, chain: Chain) -> None:
        node = chain[-1]
        string = node.child_by_field_name("source")
        if string is None:
            return
        texts = self.folder.fold((*chain, string))
        if any(child.type == "type" for child in node.children):
            self._typed((*chain, string), "export type", texts)
        else:
            star = any(child.type in ("*", "namespace_export") for child in node.children)
            self.module("export star from" if star else "export from", chain, texts)
            for value in filter(None, map(self.import_value, texts.texts)):
                names = [name.text.decode() for name in _exported(node) if name.text] or ["default"]
                for inner in filter(None, (self._member(value, name) for name in names)):
                    self._escape(chain, inner)

    def _typed(self, chain: Chain, form: str, texts: Values | None = None) -> None:
        if texts is None:
            arguments = called(chain)[1]
            texts = self.folder.fold(arguments[0]) if arguments else UNDECIDED
        self.load(form, chain, "typed", texts)

    def _constructor(self, chain: Chain) -> None:
        """`(function () {}).constructor` and its like is Function under another name."""
        member = chain[:-1] if chain[-1].type != "string_fragment" else chain[:-2]
        object_ = member[-1].child_by_field_name("object")
        while object_ is not None and object_.type == "parenthesized_expression" and object_.named_children:
            object_ = object_.named_children[0]
        if object_ is None:
            return
        text = self.source.text(object_)
        inner = object_.child_by_field_name("object")
        if (
            object_.type in FUNCTION_LITERALS
            or (object_.type == "call_expression" and re.match(r"(Object|Reflect)\.getPrototypeOf\(", text))
            or (inner is not None and (text.endswith(".constructor") or inner.type in ("string", "array", "object")))
            or any(_CALLS.search(t) for a in called(member[:-1])[1] for t in self.folder.fold(a).texts)
        ):
            self.push(member, "Function")

    def environment(self) -> None:
        """`process.env.NODE_OPTIONS = …`: what every process that comes after it preloads."""
        for match in _OPTIONS.finditer(self.source.code) if _OPTIONS_NAME in self.places else ():
            chain = self.source.chain(*match.span())
            for at in range(len(chain) - 1):
                if chain[at].type.endswith("assignment_expression"):
                    self.node_options("child process", chain[: at + 1], (*chain[: at + 1], *field(chain[at], "right")))

    def named(self, packages: Texts) -> None:
        """A forbidden package named in a call of something that came from elsewhere: `load('better-sqlite3')`."""
        for match in packages.finditer(self.source.code, self.places):
            chain = self.source.chain(*match.span())
            if chain[-1].type not in ("string", "template_string") or len(chain) < 3 or chain[-2].type != "arguments":
                continue
            function, _ = called(chain[:-2])
            if function is None or chain[-3].id in self.called or function[-1].type != "identifier":
                continue
            name = self.source.text(function[-1])
            binding = self.source.resolve(name, function[-1].start_byte)
            if binding is not None and self._foreign(binding):
                self.module("call", chain[:-2], self.folder.fold(chain))

    def _foreign(self, binding: Binding) -> bool:
        if binding.kind == "import":
            statement = next((c for c in binding.chain if c.type == "import_statement"), None)
            string = statement.child_by_field_name("source") if statement is not None else None
            return string is not None and self.source.text(string)[1:2] in (".", "#", "/")
        value = binding.chain[binding.holder].child_by_field_name("value")
        return (binding.kind == "param" and not self._closed(binding.chain[: binding.holder + 1])) or (
            binding.kind in ("const", "let", "var")
            and value is not None
            and value.type in ("call_expression", "member_expression")
        )

    def _closed(self, function: Chain) -> bool:
        """Whether a function is only called in this file, by its name or where it stands: a loader that is passed to
        it is seen where it is passed."""
        at = len(function) - 2
        while function[at].type == "parenthesized_expression":
            at -= 1
        named = function[-1] if function[-1].type in _DECLARED else function[at]
        if named.type not in (*_DECLARED, "variable_declarator"):
            return named.type == "call_expression" and named.child_by_field_name("function") == function[at + 1]
        name = named.child_by_field_name("name")
        if name is None or any(node.type == "export_statement" for node in function):
            return False
        binding = self.source.resolve(self.source.text(name), name.start_byte)
        uses = [] if binding is None else list(self.source.references(binding))
        return bool(uses) and all(
            use[-2].type == "call_expression" and use[-2].child_by_field_name("function") == use[-1] for use in uses
        )


def _exported(statement: Node) -> Iterator[Node]:
    """The names that `export {…} from` takes of its module."""
    for clause in statement.named_children:
        if clause.type == "export_clause":
            yield from (name for item in clause.named_children for name in field(item, "name"))


def _only_types(clause: Node) -> bool:
    """`import {type A, type B}`: nothing of it is left at run time (but the module is, unless the compiler drops it)."""
    items = [item for child in clause.named_children if child.type == "named_imports" for item in child.named_children]
    return (
        bool(items)
        and len(clause.named_children) == 1
        and all(any(c.type == "type" for c in item.children) for item in items)
    )


def string_places(source: Source, texts: Texts, places: Places) -> Iterator[tuple[int, str]]:
    """(line, text) of each string that holds one of the texts; comments do not count."""
    for match in texts.finditer(source.code, places):
        node = source.at(*match.span())
        if node is not None and node.type in ("string_fragment", "string", "template_string"):
            yield source.line(match.start()), match[0].decode("utf-8", "replace")
