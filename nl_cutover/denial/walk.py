"""The population: every script below a folder, and everything that was passed over, with the reason."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import msgspec

GRAMMARS = {
    ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript", ".jsx": "javascript",
    ".ts": "typescript", ".mts": "typescript", ".cts": "typescript", ".tsx": "tsx",
    ".vue": "markup", ".html": "markup", ".htm": "markup", ".svelte": "markup", ".astro": "markup",
}  # fmt: skip
MANIFESTS = frozenset({"package.json", "tsconfig.json", "jsconfig.json"})
_POLICY = {
    "node_modules": "third-party packages: what loads them is checked here, what they load when a command runs",
    ".git": "version control, not sources",
}
_INTERPRETER = re.compile(rb"#!.*\b(node|nodejs|bun|deno|tsx|ts-node|zx)\b")
_NO_SCRIPT = frozenset({".json", ".node", ".wasm"})  # what Node knows and does not run as one
_LARGEST = 32 * 1024 * 1024  # bytes


class Skipped(msgspec.Struct, frozen=True):
    """`path` ends with a slash for a folder. `explained`: by policy; otherwise it could not be read."""

    path: str
    reason: str
    explained: bool = True


class Script(msgspec.Struct, frozen=True):
    """`path` is relative to the root, with slashes; `grammar` as in GRAMMARS."""

    path: str
    grammar: str
    code: bytes


class Population(msgspec.Struct):
    """`manifests` are package.json and tsconfig files, by path; `links` say where a script really is, `others` are files
    that Node would run as scripts if something loaded them."""

    scripts: dict[str, tuple[str, str]]  # path -> (file, grammar)
    manifests: dict[str, str]
    skipped: list[Skipped]
    links: dict[str, str] = {}
    others: dict[str, str] = {}


def walk(root: Path) -> Population:
    """Find scripts by extension, or by a shebang where there is none. A linked folder is entered once."""
    found = Population({}, {}, [])
    entered: set[tuple[int, int]] = set()
    stack = [(os.fspath(root), "")]
    while stack:
        folder, relative = stack.pop()
        try:
            facts = os.stat(folder)
            if (facts.st_dev, facts.st_ino) in entered:
                found.skipped.append(Skipped(f"{relative}", "a link to a folder that is already in"))
                continue
            entered.add((facts.st_dev, facts.st_ino))
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name, reverse=True)
        except OSError as error:
            found.skipped.append(Skipped(relative or ".", f"cannot be listed: {error.strerror}", explained=False))
            continue
        # Real folders first, so that a link never takes the place of what it leads to.
        folders: list[tuple[str, str]] = []
        for entry in reversed(entries):
            _entry(found, entry, relative, folders, stack)
        stack.extend(reversed(folders))
    found.skipped.sort(key=lambda item: item.path)
    return found


def _entry(
    found: Population,
    entry: os.DirEntry[str],
    relative: str,
    folders: list[tuple[str, str]],
    links: list[tuple[str, str]],
) -> None:
    name, path = entry.name, f"{relative}{entry.name}"
    try:
        folder, file = entry.is_dir(), entry.is_file()
    except OSError as error:
        if error.errno != errno.ELOOP:
            found.skipped.append(Skipped(path, f"cannot be read: {error.strerror}", explained=False))
            return
        folder = file = False  # a link that leads to itself, and so to nothing
    if folder:
        if name in _POLICY:
            found.skipped.append(Skipped(f"{path}/", _POLICY[name]))
        elif entry.is_symlink():
            links.insert(0, (entry.path, f"{path}/"))
        else:
            folders.append((entry.path, f"{path}/"))
        return
    if file and entry.is_symlink():
        found.links[path] = os.path.realpath(entry.path)
    stem, extension = os.path.splitext(name)
    extension = extension.lower()
    if name in MANIFESTS or (stem.startswith("tsconfig") and extension == ".json"):
        found.manifests[path] = entry.path
        return
    grammar = GRAMMARS.get(extension)
    if grammar is None and extension:
        if file and extension not in _NO_SCRIPT:
            found.others[path] = entry.path
        return
    try:
        if not file:
            if grammar is not None:
                reason = "a link to nothing" if entry.is_symlink() else "not a regular file"
                found.skipped.append(Skipped(path, reason, explained=False))
            return
        if grammar is None:
            with open(entry.path, "rb") as opened:
                if not _INTERPRETER.match(opened.read(200).partition(b"\n")[0]):
                    found.others[path] = entry.path
                    return
            grammar = "javascript"
        if entry.stat().st_size > _LARGEST:
            found.skipped.append(Skipped(path, f"larger than {_LARGEST} bytes", explained=False))
            return
    except OSError as error:
        found.skipped.append(Skipped(path, f"cannot be read: {error.strerror}", explained=False))
        return
    found.scripts[path] = (entry.path, grammar)


_SCRIPT = re.compile(rb"<script\b((?:[^>\"']|\"[^\"]*\"|'[^']*')*)>(.*?)</script\s*>", re.DOTALL | re.IGNORECASE)
_FRONT = re.compile(rb"\A---\r?\n(.*?\r?\n)---", re.DOTALL)
_TYPE = re.compile(rb"""\btype\s*=\s*["']?([^"'\s>]+)""", re.IGNORECASE)
_LANG = re.compile(rb"""\blang\s*=\s*["']?(tsx?)""", re.IGNORECASE)


def inline_scripts(markup: bytes) -> list[tuple[int, str, bytes]]:
    """(lines before it, grammar, code) of each script within markup."""
    found = []
    for match in _FRONT.finditer(markup):
        found.append((1, "typescript", match[1]))
    for match in _SCRIPT.finditer(markup):
        kind = _TYPE.search(match[1])
        if kind is not None and kind[1].lower() not in (b"module", b"text/javascript", b"application/javascript"):
            continue
        language = _LANG.search(match[1])
        grammar = {b"ts": "typescript", b"tsx": "tsx"}.get(language[1].lower() if language else b"", "javascript")
        if match[2].strip():
            found.append((markup.count(b"\n", 0, match.start(2)), grammar, match[2]))
    return found
