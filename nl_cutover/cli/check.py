"""`nl-cutover check`: denial, by two instruments and a control."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .common import Format, FormatOption, finish

if TYPE_CHECKING:
    from ..denial.report import Static
    from ..output.documents import Document

app = typer.Typer(
    name="check",
    help="Check that no host process can load a SQLite driver or reach the graph.",
    no_args_is_help=True,
)

TreeOption = Annotated[Path, typer.Option("--tree", help="The Neo checkout.", metavar="DIR")]
SurfaceOption = Annotated[
    list[str] | None,
    typer.Option("--surface", help="Files that may not load it, as a glob below the tree; repeatable.", metavar="GLOB"),
]
AllowOption = Annotated[
    Path | None, typer.Option("--allow", help="Places that may stay undecided (TOML).", metavar="FILE")
]


@app.command()
def static(
    tree: TreeOption,
    surface: SurfaceOption = None,
    allow: AllowOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Find every way in which the scripts of a tree load a driver, literal, folded or undecided.

    Without --surface the whole tree is one. Exit 0: clear. Exit 3: findings. Exit 4: no script, something that could
    not be read, or a control that was not found.
    """
    result = checked(tree, surface or [], allow)
    finish(result.report, static_document(result), format)


def checked(tree: Path, surface: list[str], allow: Path | None) -> Static:
    """Run the static instrument. Raises UsageError without the `denial` extra."""
    from ..denial.rules import load_allowances, load_rules
    from ..denial.static import check_static
    from ..errors import UsageError

    allowed = load_allowances(allow) if allow is not None else []
    try:
        return check_static(tree, load_rules(), surface=surface, allowed=allowed)
    except ImportError as absent:
        raise UsageError(f"check needs {absent.name}", "pip install 'nl-cutover[denial]'") from None


def static_document(result: Static) -> Document:
    from .. import __version__
    from ..output.documents import Document, Table
    from ..verdicts import ExitCode

    report, population = result.report, result.report.population
    shown = list(zip(report.findings, result.digests, strict=True))[:40]
    rows = [
        [f"{f.path}:{f.line}", f.form, f.resolution, f.specifier or "-", " > ".join(f.chain) or "-", digest[:12] or "-"]
        for f, digest in shown
    ]
    passed = [[p.path, p.reason] for p in population.skipped[:20]]
    facts = [
        ("scripts", f"{population.found} found, {population.parsed} parsed, {len(population.skipped)} places skipped"),
        ("by extension", ", ".join(f"{n} {e}" for e, n in result.by_extension.items()) or "-"),
        ("in the surface", str(result.surface)),
        ("findings", str(len(report.findings))),
        ("allowed", str(result.allowed)),
        ("control", result.control),
        ("tool", f"nl-cutover {__version__}"),
    ]
    more = [f"{len(report.findings) - len(shown)} more findings"] if len(report.findings) > len(shown) else []
    steps = {
        ExitCode.REFUSED: ["mend each place, or list an undecided one with its line's sha256 in --allow FILE"],
        ExitCode.UNMEASURABLE: ["nothing is proved by this run: mend what is named above, then check again"],
    }
    return Document(
        title="nl-cutover check static",
        verdict=report.verdict,
        exit_code=report.exit_code,
        meaning=ExitCode(report.exit_code).meaning,
        facts=facts,
        tables=[
            Table("findings", ["place", "form", "resolution", "specifier", "chain", "line sha256"], rows),
            Table("skipped", ["place", "reason"], passed),
        ],
        notes=[*result.notes[:20], *more],
        next_steps=steps.get(ExitCode(report.exit_code), []),
    )
