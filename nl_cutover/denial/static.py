"""The static instrument: every script of a tree, read and probed, and the control that shows that it can find."""

from __future__ import annotations

import gc
import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import msgspec

from ..errors import UsageError
from ..resources import resource
from .judge import Edge, Judge, Judged
from .loads import Load, Texts
from .packages import Packages
from .paths import joined_places, pieces_of
from .prober import Searches, probe, string_places
from .reach import reached
from .report import Counted, Finding, Passed, Static, StaticReport, verdict_of
from .rules import Allowed, Rules, covers, line_digest, read_toml
from .source import Source
from .walk import Population, Skipped, inline_scripts, walk

# An import of an extension that Node does not know fails; a require of it runs it.
_IMPORTS = frozenset({"static import", "side effect import", "export from", "export star from", "dynamic import"})
FIXTURES = ("checks", "fixtures")


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the control has to find in one fixture: nothing else, and nothing less."""

    path: str
    line: int
    form: str
    specifier: str
    resolution: str


class Expectations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    find: list[Expected]


def check_static(root: Path, rules: Rules, *, surface: Sequence[str] = (), allowed: Sequence[Allowed] = ()) -> Static:
    """Check the tree below `root`; without a surface all of it. Raises UsageError if it is no folder."""
    if not root.is_dir():
        raise UsageError(f"{root} is no folder", "name the checkout: --tree NEO")
    control = control_failure(rules)
    tree = _Tree(root, rules)
    globs = [glob.removeprefix(f"{root}/") for glob in surface]
    in_surface = [path for path in tree.judged if not globs or covers(globs, path)]
    chosen = set(in_surface)
    found = reached(tree.judged, tree.edges, chosen.__contains__)
    findings, digests, used = _without_allowed(tree, found, allowed)
    why = [*([f"the control failed: {control}"] if control else [])]
    if not in_surface:
        why.append("not one script in the surface" if tree.judged else "not one script was found")
    why += [f"{item.path}: {item.reason}" for item in tree.population.skipped if not item.explained]
    why += [f"{path}: no JSON, so that what it maps is not known" for path in tree.packages.unread]
    verdict, code = verdict_of(tuple(findings), tuple(why))
    files = len(tree.judged)
    skipped = tuple(Passed(item.path, item.reason) for item in tree.population.skipped)
    found_files = files + sum(1 for item in tree.population.skipped if not item.path.endswith("/"))
    stale = [
        f"the allowance for {a.path}:{a.line} fits nothing: its line changed or is gone"
        for a in allowed
        if a not in used
    ]
    return Static(
        report=StaticReport(
            verdict, int(code), tuple(findings), Counted(found_files, files - tree.unparsable, skipped)
        ),
        digests=tuple(digests),
        allowed=len(used),
        by_extension=dict(
            sorted(Counter(posixpath.splitext(path)[1] or "no extension" for path in tree.judged).items())
        ),
        surface=len(in_surface),
        notes=(*why, *stale),
        control=control or f"{len(_expectations().find)} fixtures found, each in its form",
    )


def control_failure(rules: Rules) -> str:
    """The positive control: the fixtures through the same walk and the same code. Empty if all are found."""
    wanted = {(e.path, e.line, e.form, e.specifier, e.resolution) for e in _expectations().find}
    tree = _Tree(resource(*FIXTURES), rules)
    placed = reached(tree.judged, tree.edges, lambda path: not path.startswith("reach/lib"))
    found = {(f.path, f.line, f.form, f.specifier, f.resolution) for f, _ in placed}
    missing, extra = sorted(wanted - found), sorted(found - wanted)
    if missing:
        return f"{len(missing)} fixtures not found as they should be, the first {missing[0]}"
    if extra:
        return f"{len(extra)} findings too many in the fixtures, the first {extra[0]}"
    return ""


@cache
def _expectations() -> Expectations:
    return read_toml(resource(*FIXTURES, "expected.toml"), Expectations)


class _Tree:
    """All that was found in the scripts below a folder."""

    def __init__(self, root: Path, rules: Rules) -> None:
        self.population: Population = walk(root)
        scripts, others = self.population.scripts, self.population.others
        self.packages = Packages(self.population.manifests, {*scripts, *others})
        self.judged: dict[str, list[Judged]] = {}
        self.edges: dict[str, list[Edge]] = {}
        self.digests: dict[tuple[str, int, int], str] = {}
        self.unparsable = 0
        self._judge = Judge(rules.rules, self.packages)
        names = (name for rule in rules.rules for name in (*rule.packages, *rule.builtins))
        self._quoted = quoted = Texts(names, r"""(["'`])(?:%s)(?:/[^"'`\n]*)?\1""")
        self._paths = Texts(path for rule in rules.rules for path in rule.paths)
        self._pieces = pieces_of(path for rule in rules.rules for path in rule.paths)
        self._searches = Searches(rules.loaders, quoted, self._paths, self._pieces)
        enabled = gc.isenabled()
        gc.disable()  # syntax trees are many objects and no cycles
        try:
            todo = sorted(scripts.items())
            for path, (file, grammar) in todo:
                self._read(path, file, grammar)
                for edge in self.edges.get(path, ()):
                    if edge.target in others and not (edge.form in _IMPORTS and posixpath.splitext(edge.target)[1]):
                        todo.append((edge.target, (others.pop(edge.target), "javascript")))
        finally:
            if enabled:
                gc.enable()

    def _read(self, path: str, file: str, grammar: str) -> None:
        try:
            with open(file, "rb", buffering=0) as opened:
                code = opened.read()
        except OSError as error:
            reason = f"cannot be read: {error.strerror}"
            self.population.skipped.append(Skipped(path, reason, explained=False))
            return
        parts = inline_scripts(code) if grammar == "markup" else [(0, grammar, code)]
        judged = self.judged[path] = [*self._linked(path)]
        failed = False
        for before, language, text in parts:
            source = Source(path, text, language)
            for item in self._findings(source):
                if isinstance(item, Edge):
                    moved_edge = item._replace(line=item.line + before) if before else item
                    self.edges.setdefault(path, []).append(moved_edge)
                else:
                    failed |= item.resolution == "unparsable"
                    moved = item._replace(line=item.line + before, last_line=item.last_line + before)
                    judged.append(moved)
                    self.digests[path, moved.line, moved.last_line] = line_digest(
                        source.lines(item.line, item.last_line)
                    )
        self.unparsable += failed
        loaded = {item.line for item in judged if item.loads}
        judged[:] = dict.fromkeys(
            i for i in judged if not (i.line in loaded and i.resolution in ("sink", "unresolved"))
        )

    def _linked(self, path: str) -> Iterator[Judged]:
        """A script that is a link into a package: the runtime loads what it leads to, from where that is."""
        _, package, within = self.population.links.get(path, "").rpartition("/node_modules/")
        if not package:
            return
        for item in self._judge.judge(path, Load(1, 1, "link", "module", (package + within,), True, True)):
            if isinstance(item, Judged):
                yield item

    def _findings(self, source: Source) -> Iterator[Judged | Edge]:
        places = self._searches.words.places(source.code)
        result = probe(source, self._searches, places)
        for load in result.loads:
            yield from self._judge.judge(source.path, load)
        for line, text in string_places(source, self._paths, places):
            yield Judged(line, line, "path literal", text, "literal")
        for line, text in joined_places(source, self._pieces, self._paths, places):
            yield Judged(line, line, "path literal", text, "folded")
        if result.error_line is not None:
            yield Judged(result.error_line, result.error_line, "file", "", "unparsable")
            for match in self._quoted.finditer(source.code):  # better a name too many than a load too few
                line = source.line(match.start())
                yield Judged(line, line, "token scan", match[0][1:-1].decode("utf-8", "replace"), "unparsable")


def _without_allowed(
    tree: _Tree, found: Sequence[tuple[Finding, int]], allowed: Sequence[Allowed]
) -> tuple[list[Finding], list[str], set[Allowed]]:
    findings, digests, used = [], [], set()
    for finding, last in found:
        digest = tree.digests.get((finding.path, finding.line, last), "")
        fits = [
            entry
            for entry in allowed
            if (entry.path, entry.line) == (finding.path, finding.line)
            and digest.startswith(entry.sha256)
            and finding.resolution in ("unresolved", "sink")
        ]
        if fits:
            used.update(fits)
        else:
            findings.append(finding)
            digests.append(digest)
    return findings, digests, used
