"""`nl-cutover check`: denial, by two instruments and a control."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .common import (
    CleartextOption,
    ConfigOption,
    CustodyOption,
    Format,
    FormatOption,
    TokenOption,
    UrlOption,
    endpoint,
    finish,
)

if TYPE_CHECKING:
    from ..denial.report import Static
    from ..denial.runtime import Held, RunReport

app = typer.Typer(
    name="check",
    help="Check the acceptance criteria of neo#16202: no host process loads a driver or reaches the graph.",
)

TreeOption = Annotated[Path, typer.Option("--tree", help="The Neo checkout.", metavar="DIR")]
SurfaceOption = Annotated[
    list[str] | None,
    typer.Option("--surface", help="Files that may not load it, as a glob below the tree; repeatable.", metavar="GLOB"),
]
AllowOption = Annotated[
    Path | None, typer.Option("--allow", help="Places that may stay undecided (TOML).", metavar="FILE")
]


@app.callback(invoke_without_command=True)
def check(
    ctx: typer.Context,
    tree: Annotated[Path | None, typer.Option("--tree", help="The Neo checkout.", metavar="NEO")] = None,
    allow: AllowOption = None,
    url: UrlOption = None,
    token_env: TokenOption = None,
    allow_cleartext: CleartextOption = False,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """One row for each acceptance criterion of neo#16202: the instrument, what it looked at, its control, its verdict.

    `-- COMMAND...` at the end is what the runtime instrument watches. What was not looked at is no pass.
    """
    if ctx.invoked_subcommand is not None:
        return
    import socket

    from ..denial.rules import load_allowances, load_rules
    from ..denial.runtime import conclude
    from ..output.denial import check_document
    from ..stores.summary import summarize
    from .criteria import Subject, ask_core, check_all
    from .measuring import measured
    from .settings import load

    rules = load_rules()
    settings = load(config=config, checkouts=[tree] if tree else None, url=url, token_env=token_env, custody=custody)
    command: list[str] = ctx.obj or []
    ran = watched(command, rules.loaders.interpreters) if command else None
    stores = None
    if settings.checkouts or settings.roots:
        report = measured(settings, expect=None, closed=False, ledger=True)
        stores = summarize(report, host=socket.gethostname())
    tools, bare, why = ask_core(lambda: endpoint(settings, cleartext=allow_cleartext))
    result = check_all(
        Subject(
            rules=rules,
            tree=tree or (settings.checkouts[0][0] if settings.checkouts else None),
            allow=load_allowances(allow) if allow is not None else [],
            ran=conclude(ran, ()) if ran else None,
            measured=stores,
            tools=tools,
            without_bearer=bare,
            url=settings.url,
            no_core=why,
        )
    )
    finish(result, check_document(result), format)


@app.command()
def run(
    ctx: typer.Context,
    tree: Annotated[
        Path | None, typer.Option("--tree", help="A checkout whose stores nobody may hold afterwards.", metavar="NEO")
    ] = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Run `-- COMMAND...` where no driver can be loaded: in its Node processes, their workers and their children.

    Exit 0: nothing was refused and every process proved that it was guarded. Exit 3: a load was refused, or a process
    holds a store. Exit 4: something ran unguarded or still runs, the evidence was changed, or the command failed.
    """
    from ..denial.rules import load_rules
    from ..denial.runtime import conclude
    from ..errors import UsageError
    from ..output.denial import run_document

    command: list[str] = ctx.obj or []
    if not command:
        raise UsageError("check run watches a command, and none is named", "nl-cutover check run -- COMMAND...")
    ran = watched(command, load_rules().loaders.interpreters)
    result = conclude(ran, holders(tree, config))
    finish(result, run_document(result), format)


def watched(command: list[str], interpreters: list[str]) -> RunReport:
    """Run the command under the preload; what it prints goes to stderr."""
    import os
    import secrets

    from ..denial.runtime import run_denied

    return run_denied(command, environ=os.environ, nonce=secrets.token_hex(16), out=2, interpreters=interpreters)


def holders(tree: Path | None, config: Path | None) -> list[Held]:
    """The third look: who has the stores of the checkout, or of the configured ones, open now."""
    from ..denial.runtime import Held
    from .measuring import measured
    from .settings import load

    settings = load(config=config, checkouts=[tree] if tree else None)
    if not settings.checkouts and not settings.roots:
        return []
    report = measured(settings, expect=None, closed=False)
    return [
        Held(s.path, s.holders.looked, tuple(dict.fromkeys(h.pid for h in s.holders.processes)), s.holders.sentence())
        for s in report.stores
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
    from ..output.denial import static_document

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
