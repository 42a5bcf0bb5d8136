"""What calling a value does: the actions that `checks/loaders.toml` names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator

from .folding import UNDECIDED, Values, called
from .loads import Loads
from .source import Chain, field

_CODE_FLAGS = frozenset({"-e", "--eval", "-p", "--print", "-pe", "-ep"})
_MODULE_FLAGS = frozenset({"-r", "--require", "--import", "--loader", "--experimental-loader"})
_PRELOADS = re.compile(r"(?<!\w)(?:-r|--require|--import|--loader|--experimental-loader)\b")
_NO_STDIN = frozenset({"-v", "--version", "-h", "--help", "--v8-options", "--test", "--run"})
_NO_PATH = re.compile(r"""[\s;()'"`]""")
_VALUE_FLAGS = frozenset({"-C", "--conditions", "--input-type", "--env-file", "--title"})


class Calls(Loads):
    """Acts on the calls of one file."""

    def _call(self, call: Chain, value: str) -> None:
        self._act(value, call, called(call)[1])

    def _act(self, value: str, call: Chain, arguments: list[Chain]) -> None:
        rule = self.loaders.calls.get(value)
        if rule is None:
            return
        self.called.add(call[-1].id)
        _ACTIONS[rule.action](self, rule.form, call, arguments, value, rule.argument)
        if rule.action in ("script", "worker", "argv", "shell", "settings") and arguments:
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
                    self.node_options(form, call, value)
                elif key == "env":
                    todo.append(value)

    def node_options(self, form: str, call: Chain, value: Chain) -> None:
        """What a value of NODE_OPTIONS preloads; of one that is not known, only what it seems to preload counts."""
        known = self.folder.fold(value)
        for text in known.texts:
            self._words(form, call, f"env node {text}")
        if not known.complete and _PRELOADS.search(self.source.text(value[-1])):
            self.load(form, call, "code", UNDECIDED)

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
            texts = next(self._options(arguments[0], "bindings"), UNDECIDED)
        else:
            texts = self._argument(arguments, index)
        self.load(form, call, "binding", texts)

    def _options(self, holder: Chain, name: str) -> Iterator[Values]:
        for pair in holder[-1].named_children:
            if pair.type == "pair" and self.folder.key((*holder, pair)) == name:
                yield self.folder.fold((*holder, pair, *field(pair, "value")))

    def _settings(self, form: str, call: Chain, arguments: list[Chain], value: str, index: int) -> None:
        for texts in self._options(arguments[0], "exec") if arguments else ():
            self.module(form, call, texts, "script")

    def _gives(self, form: str, call: Chain, arguments: list[Chain], value: str, index: int) -> None:
        self.load(form, call, "maker", UNDECIDED)
        self.push(call, self.loaders.calls[value].gives)

    def _preload(self, form: str, call: Chain, arguments: list[Chain], value: str, index: int) -> None:
        self._command(form, call, [Values(("node",), True), *map(self.folder.fold, arguments)])

    def _code(self, form: str, call: Chain, arguments: list[Chain], value: str, index: int) -> None:
        if arguments:
            self.run(form, call, self.folder.fold(arguments[index]))

    def _script(self, form: str, call: Chain, arguments: list[Chain], value: str, index: int) -> None:
        if arguments:
            self.module(form, call, self._argument(arguments, index), "script")

    def _worker(self, form: str, call: Chain, arguments: list[Chain], value: str, index: int) -> None:
        if not arguments:
            return
        texts = self._argument(arguments, index)
        evaluates = self._evaluates(arguments[1]) if len(arguments) > 1 else False
        if evaluates is None:  # what cannot be a path is taken for code
            evaluates = any(_NO_PATH.search(text) for text in texts.texts)
        if evaluates:
            self.run(form, call, texts)
        else:
            self.module(form, call, texts, "script")

    def _evaluates(self, options: Chain) -> bool | None:
        """Whether a worker's options say that its script is code; None where not all of them are known."""
        known = self.folder.constant(options) if options[-1].type == "identifier" else options
        if known is None or known[-1].type != "object":
            return None
        for pair in known[-1].named_children:
            name = self.source.text(pair) if pair.type != "pair" else self.folder.key((*known, pair))
            if name == "eval":
                value = pair.child_by_field_name("value")
                return value is None or self.source.text(value) not in ("false", "!1", "0")
        return None if any(pair.type == "spread_element" for pair in known[-1].named_children) else False

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
            elif " " in command:  # with `shell: true`
                self._words(form, call, command)
            else:
                self._line(form, call, [Values((command,), True), *(items or [])])

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
                    self._command(
                        form, call, [Values((w,), True) for w in rest], number == 0 or words[number - 1] == "|"
                    )
                    break

    def _line(self, form: str, call: Chain, words: list[Values]) -> None:
        """A command, also behind another: `env node x.js`, `timeout 5 node x.js`."""
        at = next((at for at, word in enumerate(words) if any(map(self._runs_code, word.texts))), None)
        if at is not None:
            self._command(form, call, words[at:], at == 0)

    def _command(self, form: str, call: Chain, words: list[Values], first: bool = False) -> None:
        """One command line whose first word is known: what its flags evaluate, preload, or run. `first`: it is what
        is started, so that without a script it runs what it reads."""
        command = words[0].texts[0]
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
                first = False
                self.run(form, call, follows or next(rest, UNDECIDED))
            elif flag in _MODULE_FLAGS:
                self.module(form, call, follows or next(rest, UNDECIDED))
            elif flag in _VALUE_FLAGS:
                follows or next(rest, UNDECIDED)
            elif flag in _NO_STDIN:
                first = False
            elif not text.startswith("-"):
                self.module(form, call, word, "script")
                return
        if first and name not in self.loaders.shells:
            self.load(form, call, "code", UNDECIDED)

    def _words(self, form: str, call: Chain, line: str) -> None:
        try:
            words = shlex.split(line)
        except ValueError:
            self.load(form, call, "code", UNDECIDED)
            return
        self._line(form, call, [Values((word,), True) for word in words])


# By class, not by instance: bound methods held by their own object would keep every file's tree until the end.
_ACTIONS: dict[str, Callable[[Calls, str, Chain, list[Chain], str, int], None]] = {
    "specifier": Calls._specifier,
    "native": Calls._native,
    "binding": Calls._binding,
    "code": Calls._code,
    "script": Calls._script,
    "worker": Calls._worker,
    "settings": Calls._settings,
    "argv": Calls._argv,
    "shell": Calls._shell,
    "gives": Calls._gives,
    "preload": Calls._preload,
}
