"""Write what the papers take from the code: `python docs/generate.py`.

`docs/reference.md` is the live `--help` of every verb, `docs/schemas/` the JSON Schema of every document. In README.md it
is what stands between
`<!-- generated: NAME -->` and `<!-- end -->`: the exit codes and the fields of the JSON documents. A test compares;
this script mends.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import typing
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import UnionType
from typing import Any
from unittest import mock

import msgspec
import typer

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nl_cutover.cli import app  # noqa: E402
from nl_cutover.cli.common import Failure  # noqa: E402
from nl_cutover.cut.report import CutReport  # noqa: E402
from nl_cutover.cut.sealing import SealReport  # noqa: E402
from nl_cutover.memory_core.conformance import Report as ConformanceReport  # noqa: E402
from nl_cutover.migration.plan import Plan  # noqa: E402
from nl_cutover.migration.report import RunReport, SettleReport  # noqa: E402
from nl_cutover.migration.verify import VerifyReport  # noqa: E402
from nl_cutover.papers.explaining import Explanation  # noqa: E402
from nl_cutover.papers.kinds import Kinds  # noqa: E402
from nl_cutover.papers.merging import MergeReport  # noqa: E402
from nl_cutover.papers.story import Story  # noqa: E402
from nl_cutover.papers.verifying import ReceiptCheck  # noqa: E402
from nl_cutover.papers.ways import Resolution  # noqa: E402
from nl_cutover.stores.summary import MeasureReport  # noqa: E402
from nl_cutover.verdicts import EXIT_MEANINGS  # noqa: E402

README = ROOT / "README.md"
REFERENCE = ROOT / "docs" / "reference.md"


def verbs() -> list[tuple[str, ...]]:
    """Every command by its words, groups before their members; the first is the tool itself."""
    return list(_walk(typer.main.get_command(app), ()))


def _walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield words
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from _walk(child, (*words, name))


def help_of(words: tuple[str, ...]) -> str:
    """What `nl-cutover WORDS --help` prints on a terminal of 80 columns."""
    with mock.patch.dict(os.environ, {"COLUMNS": "80"}), redirect_stdout(io.StringIO()) as printed:
        typer.main.get_command(app).main(args=[*words, "--help"], prog_name="nl-cutover", standalone_mode=False)
    return "\n".join(line.rstrip() for line in printed.getvalue().strip("\n").splitlines())


def typer_version() -> str:
    """Major and minor: between those the look of help changes."""
    return ".".join(typer.__version__.split(".")[:2])


def reference() -> str:
    parts = [
        "# Reference\n\nEvery verb, as its `--help` says it. Written by `python docs/generate.py`."
        f"\n\n<!-- as typer {typer_version()} prints it -->\n"
    ]
    for words in verbs():
        parts.append(f"## {' '.join(('nl-cutover', *words))}\n\n```text\n{help_of(words)}\n```\n")
    return "\n".join(parts)


def exit_codes() -> str:
    rows = [f"| {int(code)} | {meaning} |" for code, meaning in EXIT_MEANINGS.items()]
    return "\n".join(["| code | meaning |", "|---|---|", *rows])


def fields(document: type) -> str:
    """A table of every object in a JSON document and its fields, in the order in which they are written."""
    rows = [
        f"| {f'`{place}`' if place else 'document'} | {', '.join(f'`{n}`' for n in names)} |"
        for place, names in _objects(document, "")
    ]
    return "\n".join(["| object | fields |", "|---|---|", *rows])


def _objects(struct: type, place: str) -> Iterator[tuple[str, list[str]]]:
    hints = typing.get_type_hints(struct)
    members = msgspec.structs.fields(struct)
    yield place, [member.encode_name for member in members]
    for member in members:
        inner, many = _inner(hints[member.name])
        if inner is not None:
            yield from _objects(inner, f"{place}.{member.encode_name}".lstrip(".") + ("[]" if many else ""))


def _inner(hint: Any) -> tuple[type | None, bool]:
    """The struct inside a hint such as `tuple[Store, ...]` or `Filesystem | None`, and whether there may be many."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint, False
    many = typing.get_origin(hint) in (list, tuple)
    if many or isinstance(hint, UnionType):
        for part in typing.get_args(hint):
            found, more = _inner(part)
            if found is not None:
                return found, many or more
    return None, False


SCHEMAS: dict[str, Any] = {
    "conformance-1": ConformanceReport,
    "cut-1": CutReport,
    "error-1": Failure,
    "explain-1": Explanation,
    "measure-1": MeasureReport,
    "merge-1": MergeReport,
    "plan-1": Plan,
    "receipt-1": Kinds,
    "receipt-check-1": ReceiptCheck,
    "report-1": Story,
    "resolve-1": Resolution,
    "run-1": RunReport,
    "seal-1": SealReport,
    "settle-1": SettleReport,
    "verify-1": VerifyReport,
}


def schema(name: str) -> str:
    """The JSON Schema of a document. Every field is written always, so every field of the struct is required."""
    made = msgspec.json.schema(SCHEMAS[name], ref_template="#/$defs/{name}")
    for part in made.get("$defs", {}).values():
        if "properties" in part:
            part["required"] = sorted(part["properties"])
            own = part["properties"].get("schema", {})
            if "default" in own:
                own["const"] = own.pop("default")
    title = f"nl-cutover/{name.replace('-1', '/1')}"
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps(head | made, indent=1, ensure_ascii=False) + "\n"


GENERATED = {
    "exit codes": exit_codes,
    "measure": lambda: fields(MeasureReport),
    "run": lambda: fields(RunReport),
}


def readme(text: str) -> str:
    """README.md with its generated parts written anew."""
    for name, make in GENERATED.items():
        pattern = rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)"
        body = make()
        text, found = re.subn(
            pattern, lambda match, body=body: f"{match[1]}\n{body}\n\n{match[2]}", text, count=1, flags=re.DOTALL
        )
        if not found:
            raise SystemExit(f"README.md has no part `generated: {name}`")
    return text


def main() -> None:
    written = {REFERENCE: reference(), README: readme(README.read_text("utf-8"))}
    written |= {ROOT / "docs" / "schemas" / f"{name}.json": schema(name) for name in SCHEMAS}
    for path, text in written.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
