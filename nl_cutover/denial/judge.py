"""Which loads are forbidden, which cannot be told, and which lead on to another file of the tree."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from .folding import TREE
from .loads import Load
from .packages import Packages, path_of, split
from .rules import Rule

_SINKS = frozenset({"worker", "child process"})


class Judged(NamedTuple):
    """A finding of one file, before it is known whether a surface reaches it. `loads`: it pulls the driver in."""

    line: int
    last_line: int
    form: str
    specifier: str
    resolution: str
    loads: bool = False


class Edge(NamedTuple):
    """This file loads that file of the tree."""

    line: int
    form: str
    specifier: str
    resolution: str
    target: str


class Judge:
    """Applies the rules to the loads of one tree."""

    def __init__(self, rules: Sequence[Rule], packages: Packages) -> None:
        self.packages = packages
        self.names = frozenset(name.casefold() for rule in rules for name in rule.packages)
        self.builtins = frozenset(name for rule in rules for name in rule.builtins)
        self.natives = frozenset(name.casefold() for rule in rules for name in rule.natives)
        self.modules = tuple(f"/{module}" for rule in rules for module in rule.modules)
        self.known: dict[tuple[str, str], tuple[bool, tuple[str, ...]]] = {}

    def judge(self, path: str, load: Load) -> Iterator[Judged | Edge]:
        """What one load is: forbidden texts first, then what it leads to, then what is not known of it."""
        forbidden = False
        for text in load.texts if load.what != "code" else ():
            found, files = self._look(path, load.what, text)
            resolution = "literal" if load.literal else "folded"
            if found:
                forbidden = True
                yield Judged(load.line, load.last_line, load.form, text, resolution, load.what != "typed")
            elif load.what in ("module", "script"):
                for file in files:
                    yield Edge(load.line, load.form, text, resolution, file)
        if load.what in ("code", "maker") or (load.what == "native" and load.complete and not forbidden):
            # What is in an addon is not read: under another name it may be any.
            yield Judged(load.line, load.last_line, load.form, "", "sink")
        elif not load.complete and not forbidden and load.what != "typed":
            resolution = "sink" if load.form in _SINKS else "unresolved"
            yield Judged(load.line, load.last_line, load.form, "", resolution)

    def _look(self, path: str, what: str, text: str) -> tuple[bool, tuple[str, ...]]:
        if what == "binding":
            return text.removesuffix(".node").casefold() in self.natives, ()
        if what == "script" and not re.match(r"[/#]|\w+:", text):
            # A script is a path from where the process stands: the root, or the folder of who starts it.
            text = text if text.startswith(".") else f"./{text}"
            found, files = self._look("", "module", text)
            beside, more = self._look(path, "module", text)
            return found or beside, tuple(dict.fromkeys((*files, *more)))
        folder = path.rpartition("/")[0]
        key = (folder, text)
        known = self.known.get(key)
        if known is None and text.startswith(("./", "../")):
            # Nearly every import: a file that is there. It is in no package and no addon.
            target = posixpath.normpath(f"{folder}/{text}" if folder else text)
            if target in self.packages.files:
                stem = target.rpartition(".")[0]
                known = self.known[key] = (f"/{stem}".endswith(self.modules or ("\0",)), (target,))
        if known is None:
            targets = tuple(self.packages.resolve(text, path))
            files = tuple(
                t[len(TREE) :] for t in targets if t.startswith(TREE) and t[len(TREE) :] in self.packages.files
            )
            known = self.known[key] = (any(self._forbidden(target, path) for target in targets), files)
        return known

    def _forbidden(self, text: str, importer: str) -> bool:
        if text in self.builtins:
            return True
        folded = unquote(re.split(r"[?#]", text)[0] if not text.startswith("#") else text).replace("\\", "/").casefold()
        parts = [part for part in folded.split("/") if part]
        for at, part in enumerate(parts):
            if part == "node_modules" and split("/".join(parts[at + 1 :]))[0] in self.names:
                return True
        path = path_of(text, importer)
        if path is not None or folded.startswith(("/", "file:")):
            stem = posixpath.splitext(path if path is not None else text)[0]
            return self._native(parts) or f"/{stem}".endswith(self.modules or ("\0",))
        return split(folded)[0] in self.names or self._native(parts)

    def _native(self, parts: list[str]) -> bool:
        return bool(parts) and parts[-1].endswith(".node") and parts[-1].removesuffix(".node") in self.natives
