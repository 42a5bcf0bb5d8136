"""Values that can load, followed from where they come to where they are called.

A value that can load and goes out of sight (passed on, stored, exported) is a sink: what it loads cannot be told.
"""

from __future__ import annotations

from .calls import Calls
from .folding import UNDECIDED, called
from .source import FUNCTION_LITERALS, Chain, field, unescape

_SAME = frozenset({
    "parenthesized_expression", "non_null_expression", "as_expression", "satisfies_expression", "type_assertion",
    "await_expression",
})  # fmt: skip
_AWAY = frozenset({
    "pair", "array", "object", "spread_element", "return_statement", "export_statement", "export_specifier",
    "yield_expression", "field_definition", "template_substitution", "arrow_function", "public_field_definition",
    "class_heritage", "extends_clause", "throw_statement", "with_statement",
})  # fmt: skip


class Flow(Calls):
    """Follows the values of one file."""

    def values(self) -> None:
        while self.todo:
            self._follow(*self.todo.pop())

    def _follow(self, chain: Chain, value: str) -> None:
        node, parent, up = chain[-1], chain[-2], chain[:-1]
        kind = parent.type
        if kind in _SAME:
            self.push(up, value)
        elif kind == "sequence_expression":
            if parent.named_children[-1] == node:
                self.push(up, value)
        elif kind == "ternary_expression":
            if parent.child_by_field_name("condition") != node:
                self.push(up, value)
        elif kind == "binary_expression":
            if any(child.type in ("||", "??", "&&") for child in parent.children):
                self.push(up, value)
        elif kind in ("member_expression", "subscript_expression"):
            if parent.child_by_field_name("object") == node:
                self._step_into(up, value)
        elif kind in ("call_expression", "new_expression"):
            if parent.child_by_field_name("arguments") != node:
                self._call(up, value)
        elif kind == "arguments":
            self._passed(chain, value)
        elif kind == "variable_declarator":
            if parent.child_by_field_name("value") == node:
                self._bind((*up, *field(parent, "name")), value)
        elif kind in ("assignment_expression", "augmented_assignment_expression"):
            if parent.child_by_field_name("right") == node:
                self._bind((*up, *field(parent, "left")), value)
                self.push(up, value)
        elif kind in ("assignment_pattern", "object_assignment_pattern"):
            if parent.child_by_field_name("right") == node:
                self._bind((*up, *field(parent, "left")), value)
        elif kind in ("required_parameter", "optional_parameter"):
            if parent.child_by_field_name("value") == node:
                self._bind((*up, *field(parent, "pattern")), value)
                if parent.children[0] != parent.child_by_field_name("pattern"):
                    self._escape(chain, value)  # `private load = require` is a property, too
        elif kind in _AWAY and (kind != "arrow_function" or parent.child_by_field_name("body") == node):
            self._escape(chain, value)

    def _member(self, value: str, name: str) -> str | None:
        if name == "default" and value in self.loaders.imports.values():
            return value
        inner = self.loaders.members.get(f"{value}.{name}", self.loaders.members.get(f"{value}.*"))
        return "Function" if inner is None and name == "constructor" and value in self.loaders.calls else inner

    def _step_into(self, member: Chain, value: str) -> None:
        node = member[-1]
        if node.type == "member_expression":
            names = [unescape(self.source.text(n)) for n in field(node, "property")]
            complete = True
        else:
            index = self.folder.fold((*member, *field(node, "index")))
            names, complete = list(index.texts), index.complete
        for name in names or ("*",):
            if (inner := self._member(value, name)) is not None:
                self.push(member, inner)
            elif name in ("call", "apply", "bind") and value in self.loaders.calls:
                self._called_by(member, value, name)
            elif name == "then" and len(member) > 1 and member[-2].type == "call_expression":
                self._then(member[:-1], value)
        if (
            not complete
            and any(m.startswith(f"{value}.") for m in self.loaders.members)
            and value not in ("require", "created")
            and f"{value}.*" not in self.loaders.members
        ):
            self.load("computed member", member, "code", UNDECIDED)

    def _then(self, call: Chain, value: str) -> None:
        for argument in called(call)[1][:1]:
            if argument[-1].type in FUNCTION_LITERALS:
                self._parameter(argument, 0, value)
            else:
                self._escape(argument, value)

    def _parameter(self, function: Chain, index: int, value: str) -> None:
        single = function[-1].child_by_field_name("parameter")
        many = function[-1].child_by_field_name("parameters")
        if single is not None and index == 0:
            self._bind((*function, single), value)
        elif many is not None:
            named = [n for n in many.named_children if n.type != "comment"]
            if index < len(named):
                pattern = named[index].child_by_field_name("pattern") or named[index]
                extra = (named[index],) if pattern != named[index] else ()
                self._bind((*function, many, *extra, pattern), value)

    def _called_by(self, member: Chain, value: str, how: str) -> None:
        """`f.call(this, x)`, `f.apply(this, [x])`, `f.bind(this, x)`."""
        call = member[:-1]
        if not call or call[-1].type != "call_expression":
            self._escape(member, value)
            return
        arguments = called(call)[1][1:]
        if how == "apply" and arguments and arguments[0][-1].type == "array":
            arguments = [(*arguments[0], item) for item in arguments[0][-1].named_children]
        if how == "bind" and not arguments:
            self.push(call, value)
        else:
            self._act(value, call, arguments)

    def _passed(self, chain: Chain, value: str) -> None:
        call, arguments = chain[:-2], chain[-2]
        function, _ = called(call)
        if function is None:
            return
        text = self.source.text(function[-1])
        if text in ("promisify", "util.promisify", "Object.getPrototypeOf"):
            self.push(call, value)
        elif text in ("Reflect.apply", "Reflect.construct") and arguments.named_children[0] == chain[-1]:
            last = arguments.named_children[-1]
            self._act(value, call, [(*chain[:-1], last, item) for item in last.named_children if last.type == "array"])
        elif function[-1].type in FUNCTION_LITERALS:
            index = [n.id for n in arguments.named_children if n.type != "comment"].index(chain[-1].id)
            self._parameter(function, index, value)
        elif text != "Object.keys":  # names lead nowhere
            self._escape(chain, value)

    def _bind(self, target: Chain, value: str) -> None:
        match target[-1].type:
            case "identifier" | "shorthand_property_identifier_pattern":
                self._uses(target, value)
            case "object_pattern":
                for item in target[-1].named_children:
                    self._bind_property((*target, item), value)
            case "assignment_pattern" | "object_assignment_pattern":
                self._bind((*target, *field(target[-1], "left")), value)
            case "member_expression" | "subscript_expression":
                self._escape(target, value)

    def _bind_property(self, item: Chain, value: str) -> None:
        node = item[-1]
        if node.type == "pair_pattern":
            inner = self._member(value, self.folder.key(item) or "")
            if inner is not None:
                self._bind((*item, *field(node, "value")), inner)
        elif node.type == "rest_pattern":
            self._bind((*item, node.named_children[0]), value)
        else:
            name = node.child_by_field_name("left") or node
            inner = self._member(value, unescape(self.source.text(name)))
            if inner is not None:
                self._bind((*item, name) if name != node else item, inner)

    def _uses(self, target: Chain, value: str) -> None:
        """The value has a name now: follow it to wherever the name stands."""
        name = self.source.text(target[-1])
        binding = self.source.resolve(name, target[-1].start_byte)
        if binding is not None:
            for use in self.source.references(binding):
                self.push(use, value)
        else:
            for use in self.source.occurrences(name):
                self.push(use, value)

    def _escape(self, chain: Chain, value: str) -> None:
        if value in self.loaders.escapes:
            self.load(
                self.loaders.calls[value].form if value in self.loaders.calls else value, chain, "code", UNDECIDED
            )
