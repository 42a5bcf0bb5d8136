"""What calling a value does: the actions that `checks/loaders.toml` names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from .folding import UNDECIDED, Values, called
from .loads import Loads
from .rules import Loaders
from .source import Chain, Source, field

_CODE_FLAGS = frozenset({"-e", "--eval", "-p", "--print", "-pe", "-ep"})
_MODULE_FLAGS = frozenset({"-r", "--require", "--import", "--loader", "--experimental-loader"})
_VALUE_FLAGS = frozenset({"-C", "--conditions", "--input-type", "--env-file", "--title"})


class Calls(Loads):
    """Acts on the calls of one file."""

    def __init__(self, source: Source, loaders: Loaders) -> None:
        super().__init__(source, loaders)
        self.actions: dict[str, Callable[[str, Chain, list[Chain], str, int], None]] = {
            "specifier": self._specifier,
            "native": self._native,
            "binding": self._binding,
            "code": self._code,
            "script": self._script,
            "argv": self._argv,
            "shell": self._shell,
            "gives": self._gives,
        }

    def _call(self, call: Chain, value: str) -> None:
        self._act(value, call, called(call)[1])

    def _act(self, value: str, call: Chain, arguments: list[Chain]) -> None:
        rule = self.loaders.calls.get(value)
        if rule is None:
            return
        self.called.add(call[-1].id)
        self.actions[rule.action](rule.form, call, arguments, value, rule.argument)
        if rule.action in ("script", "argv", "shell") and len(arguments) > 1:
            self._preloads(rule.form, call, arguments[-1])

    def _preloads(self, form: str, call: Chain, options: Chain) -> None:
        """What the options of a new process or worker load before its script: `execArgv`, and NODE_OPTIONS in `env`."""
        todo = [options]
        while todo:
            holder = todo.pop()
            for pair in holder[-1].named_children if holder[-1].type == "object" else []:
                value = (*holder, pair, *field(pair, "value"))
                key = self.folder.key((*holder, pair)) if pair.type == "pair" else None
                if key == "execArgv":
                    self._command(form, call, [Values(("node",), True), *(self.folder.elements(value) or [UNDECIDED])])
                elif key == "NODE_OPTIONS":
                    for text in self.folder.fold(value).texts:
                        self._words(form, call, f"node {text}")
                elif key == "env":
                    todo.append(value)

    def _argument(self, arguments: list[Chain], index: int) -> Values:
        if not arguments or index >= len(arguments):
            return UNDECIDED
        return self.folder.fold(arguments[index])

    def _specifier(self, form: str, call: Chain, arguments: list[Chain], value: str, index: int) -> None:
        if not arguments:
            return
        texts = self._argument(arguments, index)
        self.module(form, call, texts)
        for text in texts.texts:
            if (gives := self.import_value(text)) is not None:
                self.push(call, gives)

    def _native(self, form: str, call: Chain, arguments: list[Chain], value: str, index: int) -> None:
        self.load(form, call, "native", self._argument(arguments, index))

    def _binding(self, form: str, call: Chain, arguments: list[Chain], value: str, index: int) -> None:
        if arguments and arguments[0][-1].type == "object":
            pairs = [(*arguments[0], p) for p in arguments[0][-1].named_children if p.type == "pair"]
            values = [self.folder.fold((*p, *field(p[-1], "value"))) for p in pairs if self.folder.key(p) == "bindings"]
            texts = values[0] if values else UNDECIDED
        else:
            texts = self._argument(arguments, index)
        self.load(form, call, "binding", texts)

    def _gives(self, form: str, call: Chain, arguments: list[Chain], value: str, index: int) -> None:
        self.load(form, call, "maker", UNDECIDED)
        self.push(call, self.loaders.calls[value].gives)

    def _code(self, form: str, call: Chain, arguments: list[Chain], value: str, index: int) -> None:
        if arguments:
            self.run(form, call, self.folder.fold(arguments[index]))

    def _script(self, form: str, call: Chain, arguments: list[Chain], value: str, index: int) -> None:
        if not arguments:
            return
        texts = self._argument(arguments, index)
        options = arguments[-1] if len(arguments) > 1 else None
        if options is not None and self._evaluates(options):
            self.run(form, call, texts)
        else:
            self.module(form, call, texts, "script")

    def _evaluates(self, options: Chain) -> bool:
        for pair in options[-1].named_children:
            name = self.source.text(pair) if pair.type != "pair" else self.folder.key((*options, pair))
            if name == "eval":
                value = pair.child_by_field_name("value")
                return value is None or self.source.text(value) not in ("false", "!1", "0")
        return False

    def _argv(self, form: str, call: Chain, arguments: list[Chain], value: str, index: int) -> None:
        if not arguments:
            return
        texts = self.folder.fold(arguments[0])
        if re.search(r"\b(execPath|argv0|argv\[0\])$", self.source.text(arguments[0][-1])):
            texts = Values(("node",), True)
        if not texts.complete:
            self.load(form, call, "code", texts)
        for command in texts.texts:
            items = self.folder.elements(arguments[1]) if len(arguments) > 1 else []
            if self._runs_code(command) and items is None:
                self.load(form, call, "code", UNDECIDED)
            else:
                self._command(form, call, [Values((command,), True), *(items or [])])

    def _runs_code(self, command: str) -> bool:
        name = command.rpartition("/")[2].removesuffix(".exe")
        return name in self.loaders.interpreters or name in self.loaders.shells

    def _shell(self, form: str, call: Chain, arguments: list[Chain], value: str, index: int) -> None:
        if not arguments:
            return
        texts = self.folder.fold(arguments[0])
        if not texts.complete:
            self.load(form, call, "code", texts)
        for text in texts.texts:
            try:
                words = list(shlex.shlex(text, posix=True, punctuation_chars=True))
            except ValueError:
                self.load(form, call, "code", UNDECIDED)
                continue
            for number, word in enumerate(words):
                if self._runs_code(word):
                    rest = shlex.split(text)
                    rest = rest[next((i for i, w in enumerate(rest) if w == word), number) :]
                    self._command(form, call, [Values((w,), True) for w in rest])
                    break

    def _command(self, form: str, call: Chain, words: list[Values]) -> None:
        """One command line whose first word is known: what its flags evaluate, preload, or run."""
        command = words[0].texts[0]
        if not self._runs_code(command):
            return
        name = command.rpartition("/")[2].removesuffix(".exe")
        rest = iter(words[1:])
        for word in rest:
            text = word.texts[0] if len(word.texts) == 1 and word.complete else None
            if text is None:
                self.load(form, call, "code", UNDECIDED)
                return
            flag, _, attached = text.partition("=")
            follows = Values((attached,), True) if attached else None
            if name in self.loaders.shells:
                if text in ("-c", "-lc", "-ec"):
                    for line in next(rest, UNDECIDED).texts:
                        self._words(form, call, line)
                    return
            elif flag in _CODE_FLAGS:
                self.run(form, call, follows or next(rest, UNDECIDED))
            elif flag in _MODULE_FLAGS:
                self.module(form, call, follows or next(rest, UNDECIDED))
            elif flag in _VALUE_FLAGS:
                follows or next(rest, UNDECIDED)
            elif not text.startswith("-"):
                self.module(form, call, word, "script")
                return

    def _words(self, form: str, call: Chain, line: str) -> None:
        try:
            words = shlex.split(line)
        except ValueError:
            self.load(form, call, "code", UNDECIDED)
            return
        for number, word in enumerate(words):
            if self._runs_code(word):
                self._command(form, call, [Values((w,), True) for w in words[number:]])
                return
