"""What a specifier leads to: package.json `imports`, aliases, workspaces and overrides, tsconfig `paths`, files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from .folding import TREE

_EXTENSIONS = (".mjs", ".js", ".cjs", ".ts", ".mts", ".cts", ".tsx", ".jsx", ".json", ".node")
_MEANINGS = 64  # of one specifier; a pattern that matches what it makes would go on for ever
_SWAPS = {".js": (".ts", ".tsx", ".jsx"), ".mjs": (".mts",), ".cjs": (".cts",), ".jsx": (".tsx",)}
_DEPENDENCIES = (
    "dependencies",
    "devDependencies",
    "optionalDependencies",
    "peerDependencies",
    "overrides",
    "resolutions",
)
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', re.DOTALL)


class Manifest(msgspec.Struct):
    """One package.json, or the `paths` of one tsconfig, of the folder `folder` ('' for the root)."""

    folder: str
    name: str = ""
    imports: dict[str, list[str]] = {}
    entries: dict[str, list[str]] = {}
    aliases: dict[str, str] = {}
    paths: dict[str, list[str]] = {}


class Packages:
    """Resolves specifiers within one tree. `unread` names manifests that are no JSON: what they say is not known."""

    def __init__(self, manifests: dict[str, str], files: Collection[str]) -> None:
        self.files = files
        self.unread: list[str] = []
        self.manifests: dict[str, list[Manifest]] = {}
        for path, file in sorted(manifests.items()):
            folder = posixpath.dirname(path)
            try:
                data = _json(Path(file).read_text("utf-8-sig"))
            except (OSError, ValueError):
                self.unread.append(path)
                continue
            if isinstance(data, dict):
                read = _package if posixpath.basename(path) == "package.json" else _tsconfig
                self.manifests.setdefault(folder, []).append(read(folder, data))
        self.named = {m.name: m for many in self.manifests.values() for m in many if m.name}

    def resolve(self, specifier: str, importer: str) -> Iterator[str]:
        """What a specifier may mean: names of packages as they are written, and files as `file://tree/…`."""
        todo, seen = [specifier], set[str]()
        while todo and len(seen) < _MEANINGS:
            text = todo.pop()
            if text in seen:
                continue
            seen.add(text)
            if text.startswith("npm:"):
                text = _unversioned(text[4:])
            yield text
            path = path_of(text, importer)
            if path is not None:
                yield from [*self._files(path)] or [TREE + path]
                continue
            for manifest in self._above(importer):
                for table in (manifest.imports, manifest.paths):
                    todo += _matched(table, text)
                name, rest = split(text)
                if name in manifest.aliases:
                    target = manifest.aliases[name]
                    todo.append(target + rest if target.startswith("npm:") else target)
            name, rest = split(text)
            if name in self.named:
                todo += _matched(self.named[name].entries, f".{rest}") or [
                    TREE + posixpath.join(self.named[name].folder, rest[1:])
                ]

    def _above(self, path: str) -> Iterator[Manifest]:
        folder = path
        while folder:
            folder = posixpath.dirname(folder)
            yield from self.manifests.get(folder, [])

    def _files(self, path: str) -> Iterator[str]:
        stem, extension = posixpath.splitext(path)
        names = [path, *(path + e for e in _EXTENSIONS), *(stem + e for e in _SWAPS.get(extension, ()))]
        names += [f"{path}/index{e}" for e in _EXTENSIONS]
        for name in names:
            if name in self.files:
                yield TREE + name
                return
        for manifest in self.manifests.get(path, []):
            for target in manifest.entries.get(".", []):
                yield from [*self._files(target.removeprefix(TREE))] or [target]


def path_of(text: str, importer: str) -> str | None:
    """The path below the tree that a specifier names, if it names one."""
    if text.startswith(TREE):
        path = text[len(TREE) :]
    elif text.startswith(("./", "../")) or text in (".", ".."):
        path = posixpath.join(posixpath.dirname(importer), text)
    else:
        return None
    return posixpath.normpath(unquote(re.split(r"[?#]", path)[0])).removeprefix("./")


def _package(folder: str, data: dict[str, Any]) -> Manifest:
    aliases = {}
    for kind in _DEPENDENCIES:
        for name, target in _aliases(data.get(kind)):
            if target.startswith("npm:"):
                aliases[name] = target
            elif (local := re.match(r"(?:file|link|portal|workspace):(\.{1,2}/.*)", target)) is not None:
                aliases[name] = TREE + posixpath.normpath(posixpath.join(folder, local[1]))
    entries = _targets(folder, data.get("exports"), ".")
    if not entries:
        main = [data[key] for key in ("main", "module", "browser") if isinstance(data.get(key), str)] or ["index.js"]
        entries = {".": [TREE + posixpath.normpath(posixpath.join(folder, m)) for m in main]}
    called = data.get("name")
    imports = _targets(folder, data.get("imports"), "#")
    return Manifest(folder, called if isinstance(called, str) else "", imports, entries, aliases)


def _aliases(table: Any) -> Iterator[tuple[str, str]]:
    stack = [table]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            for name, target in item.items():
                if isinstance(target, str):
                    yield re.sub(r"^.*\*\*/|(?<=.)@.*", "", name), target
                else:
                    stack.append(target)


def _targets(folder: str, table: Any, mark: str) -> dict[str, list[str]]:
    """Keys that begin with `mark`, each with every target of any condition."""
    if isinstance(table, str | list) or (isinstance(table, dict) and not any(k.startswith(mark) for k in table)):
        table = {mark: table} if table else {}
    found: dict[str, list[str]] = {}
    for key, target in table.items() if isinstance(table, dict) else []:
        stack, texts = [target], []
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                texts.append(TREE + posixpath.normpath(posixpath.join(folder, item)) if item.startswith(".") else item)
            elif isinstance(item, dict | list):
                stack += item.values() if isinstance(item, dict) else item
        found[key] = texts
    return found


def _tsconfig(folder: str, data: dict[str, Any]) -> Manifest:
    options = data.get("compilerOptions")
    options = options if isinstance(options, dict) else {}
    base = str(options.get("baseUrl") or ".")
    paths = {
        key: [TREE + posixpath.normpath(posixpath.join(folder, base, t)) for t in targets if isinstance(t, str)]
        for key, targets in (options.get("paths") or {}).items()
        if isinstance(targets, list)
    }
    if "baseUrl" in options:
        paths.setdefault("*", [TREE + posixpath.normpath(posixpath.join(folder, base, "*"))])
    return Manifest(folder, paths=paths)


def _matched(table: dict[str, list[str]], text: str) -> list[str]:
    if text in table:
        return table[text]
    found = []
    for key, targets in table.items():
        before, star, after = key.partition("*")
        if star and text.startswith(before) and text.endswith(after) and len(text) >= len(before) + len(after):
            middle = text[len(before) : len(text) - len(after)]
            found += [target.replace("*", middle) for target in targets]
    return found


def split(text: str) -> tuple[str, str]:
    """A package's name and the path within it."""
    parts = text.split("/")
    count = 2 if text.startswith("@") else 1
    return "/".join(parts[:count]), "".join(f"/{part}" for part in parts[count:])


def _unversioned(text: str) -> str:
    name, rest = split(text)
    return name[:1] + name[1:].partition("@")[0] + rest


def _json(text: str) -> Any:
    """JSON, with the comments and trailing commas that tsconfig files have."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return msgspec.json.decode(_COMMENT.sub(lambda m: m[1] or "", text))
