"""Papers: Markdown whose console blocks are run, line by line, and whose shown output is compared with the real one.

A block looks like a terminal: `$ command`, and under it what it printed; the last command of a block is `echo $?`.
What varies stands as a typed placeholder: `<time>` matches a time and nothing else, `<store-1>` is the same store
throughout a block. A line `...` stands for one or more lines that are left out. Blank lines, the width of columns and
the place where a sentence wraps do not count. `<!-- scene: WORDS -->` changes the scene before the next block.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

ELISION = "..."
_HOLDER = r"pid \d+ \([^)]*\)"
KINDS: dict[str, str] = {
    "time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)",
    "run": r"\d{8}T\d{6}Z-[0-9a-f]{6}",
    "store": r"[0-9a-f]+-[0-9a-f]+",
    "id": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "digest": r"[0-9a-f]{16}|[0-9a-f]{64}|[0-9a-f]{10,50}…[0-9a-f]{10,50}",
    "path": r"/[^\s,;:]*",
    "host": r"[A-Za-z0-9._-]+",
    "port": r"\d{1,5}",
    "seconds": r"\d+\.\d",
    "bytes": r"\d+",
    "n": r"\d+",
    "version": r"\d+\.\d+\.\d+\S*",
    "errno": r"\[Errno -?\d+\] [A-Z][A-Za-z ]+",
    "holders": rf"nobody holds it|held by {_HOLDER}(?:, {_HOLDER})*(?: and \d+ more)?|holders unknown: [a-z0-9 ]+",
}
# Notes that only some machines print: an older SQLite, processes of other users.
OF_THE_MACHINE = re.compile(
    r"(?:!|-) (?:SQLite [\d.]+ can lose commits|[0-9a-f]+-[0-9a-f]+: holders unknown:).*"
    r"|(?:  |- )(?:containers|not proved):? .*"  # whether there is an engine
)

_PLACEHOLDER = re.compile(r"<([a-z]+)(?:-([a-z0-9]+))?>")
_TOKEN = re.compile(r"(<[a-z]+(?:-[a-z0-9]+)?>)|( {2,})|(-{2,})|(.)", re.DOTALL)
_FENCE = re.compile(r"\s*(?:```+|~~~+)\s*(.*?)\s*")
_SCENE = re.compile(r"<!-- scene: (.+) -->")
_VERB = re.compile(r"\s*(?:\$ )?nl-cutover\b")


class PaperError(Exception):
    """A paper that cannot be run as it is written; the message begins with file and line."""


class Line(msgspec.Struct, frozen=True):
    number: int
    text: str


class Command(msgspec.Struct, frozen=True):
    line: int
    text: str
    shown: tuple[Line, ...]


class Block(msgspec.Struct, frozen=True):
    line: int
    commands: tuple[Command, ...]


class Change(msgspec.Struct, frozen=True):
    """What happens to the scene before the next block."""

    line: int
    name: str


class Difference(msgspec.Struct, frozen=True):
    """`line` is where the paper says something else than the command did."""

    paper: Path
    line: int
    shown: str
    printed: str
    command: str
    output: str

    def __str__(self) -> str:
        whole = "".join(f"    | {line}\n" for line in self.output.splitlines())
        return (
            f"{self.paper}:{self.line}: the paper and the command differ\n"
            f"  paper:   {self.shown}\n  printed: {self.printed}\n  $ {self.command}\n{whole}"
            "  python tests/runbooks/update.py writes what is printed into the papers"
        )


# reading a paper -----------------------------------------------------------------------------------------------------


def parse(path: Path) -> list[Block | Change]:
    """The blocks and scene changes of a paper, in order. Raises PaperError for a command that would not be run."""
    steps: list[Block | Change] = []
    info, body, begun = "", [], 0
    inside = False
    for number, text in enumerate(path.read_text("utf-8").splitlines(), start=1):
        fence = _FENCE.fullmatch(text)
        if fence is None and inside:
            body.append(Line(number, text))
        elif fence is None:
            if change := _SCENE.fullmatch(text.strip()):
                steps.append(Change(number, change[1]))
        elif inside:
            inside = False
            if info == "console":
                steps.append(_block(path, begun, body))
            elif stray := next((line for line in body if _VERB.match(line.text)), None):
                raise PaperError(f"{path}:{stray.number}: a command outside a console block is not run")
        else:
            inside, info, body, begun = True, fence[1], [], number
            if info == "console" and text != "```console":
                raise PaperError(f"{path}:{number}: a console block begins with ```console at the margin")
    if inside:
        raise PaperError(f"{path}:{begun}: this block has no end")
    return steps


def _block(path: Path, begun: int, body: Sequence[Line]) -> Block:
    commands: list[Command] = []
    for line in body:
        if line.text.startswith("$ "):
            commands.append(Command(line.number, line.text[2:], ()))
        elif not commands:
            raise PaperError(f"{path}:{line.number}: output stands before the first command")
        else:
            last = commands[-1]
            commands[-1] = msgspec.structs.replace(last, shown=(*last.shown, line))
    if not commands or commands[-1].text != "echo $?":
        raise PaperError(f"{path}:{begun}: a block says how it ends: its last command is `echo $?`")
    return Block(begun, tuple(commands))


# comparing -----------------------------------------------------------------------------------------------------------


def logical(lines: Sequence[Line]) -> list[Line]:
    """Lines without blanks, with wrapped sentences in one piece, and without what only some machines print."""
    made: list[Line] = []
    after_blank = True
    for line in lines:
        text = line.text.rstrip()
        wrapped = text.startswith("    ") or (text.startswith("  ") and made and made[-1].text.startswith("- "))
        if not text:
            after_blank = True
            continue
        if wrapped and not after_blank:
            made[-1] = Line(made[-1].number, f"{made[-1].text} {text.strip()}")
        else:
            made.append(Line(line.number, text))
        after_blank = False
    return [line for line in made if not OF_THE_MACHINE.fullmatch(line.text)]


def printed(output: str) -> list[Line]:
    return [Line(number, text) for number, text in enumerate(output.split("\n"), start=1)]


def matches(shown: str, text: str, bound: dict[str, str]) -> bool:
    """Whether a printed line is what a paper's line says. Labelled placeholders are looked up and kept in `bound`."""
    match = re.fullmatch(_pattern(shown, bound), text)
    if match is None:
        return False
    bound.update({name.replace("_", "-"): value for name, value in match.groupdict().items()})
    return True


def _pattern(shown: str, bound: dict[str, str]) -> str:
    ruler = set(shown) <= {"-", " "}
    here: set[str] = set()

    def part(token: re.Match[str]) -> str:
        placeholder, gap, dashes, other = token.groups()
        if gap:
            return " {2,}"
        if dashes:
            return "-{2,}" if ruler else re.escape(dashes)
        if placeholder is None:
            return re.escape(other)
        kind, label = _PLACEHOLDER.fullmatch(placeholder).groups()
        regex = KINDS[kind]
        if label is None:
            return f"(?:{regex})"
        name = f"{kind}-{label}"
        if name in bound:
            return re.escape(bound[name])
        group = name.replace("-", "_")
        if group in here:
            return f"(?P={group})"
        here.add(group)
        return f"(?P<{group}>{regex})"

    return _TOKEN.sub(part, shown)


def compare(paper: Path, command: Command, output: str, bound: dict[str, str]) -> Difference | None:
    """The first line of the paper that is not what was printed."""
    expected, actual = logical(command.shown), logical(printed(output))
    _known(paper, expected)

    def differs(line: int, shown: str, at: int) -> Difference:
        text = actual[at].text if at < len(actual) else "(nothing more)"
        return Difference(paper, line, shown, text, command.text, output)

    at, elided = 0, False
    for line in expected:
        if line.text == ELISION:
            if at >= len(actual):
                return differs(line.number, ELISION, at)
            at, elided = at + 1, True
            continue
        found = at
        while found < len(actual) and not matches(line.text, actual[found].text, bound):
            if not elided:
                return differs(line.number, line.text, found)
            found += 1
        if found == len(actual):
            return differs(line.number, line.text, at)
        at, elided = found + 1, False
    if at < len(actual) and not elided:
        last = command.shown[-1].number if command.shown else command.line
        return differs(last, "(nothing more)", at)
    return None


def _known(paper: Path, lines: Sequence[Line]) -> None:
    for line in lines:
        for placeholder in _PLACEHOLDER.finditer(line.text):
            if placeholder[1] not in KINDS:
                raise PaperError(
                    f"{paper}:{line.number}: {placeholder[0]} is no placeholder, known: {', '.join(KINDS)}"
                )


# running -------------------------------------------------------------------------------------------------------------


class Ran(msgspec.Struct, frozen=True):
    block: Block
    command: Command
    output: str
    bound: dict[str, str]  # shared by the commands of a block


def run(paper: Path, shell: Callable[[str], str], changes: Mapping[str, Callable[[], None]]) -> Iterator[Ran]:
    """Run every block of a paper in order. Raises PaperError for a scene change that does not exist."""
    for step in parse(paper):
        if isinstance(step, Change):
            if step.name not in changes:
                raise PaperError(f"{paper}:{step.line}: no such scene: {step.name}")
            changes[step.name]()
            continue
        bound: dict[str, str] = {}
        for command in step.commands:
            yield Ran(step, command, shell(command.text), bound)


def blocks_in(paper: Path) -> int:
    """How many console blocks a reader sees: counted apart from `parse`, which says how many are run."""
    return len(re.findall(r"^\s*(?:```+|~~~+)\s*console\b", paper.read_text("utf-8"), re.MULTILINE))
