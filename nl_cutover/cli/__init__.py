"""The command line. A verb parses, calls the library, renders, and ends with a code that one pure function computed."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import typer

from .. import __version__
from ..errors import CutoverError
from ..verdicts import EXIT_MEANINGS, ExitCode
from . import (
    check,
    check_surface,
    cut,
    demo,
    graph,
    mc,
    measure,
    migrate,
    plan,
    plane,
    receipt,
    recorder,
    rehearsal,
    report,
    resolve,
    runbook,
    seal,
    settle,
    status,
    verify,
)
from .common import Failure, complain, say

_EPILOG = "Exit codes: " + " · ".join(f"{int(code)} {meaning}" for code, meaning in EXIT_MEANINGS.items())
_COMPLETE = "_NL_CUTOVER_COMPLETE"
_TAKE_A_COMMAND = frozenset({"cut", "check"})  # verbs with `-- COMMAND...`

_Usage: Any = typer.BadParameter.__bases__[0]  # typer carries its own click, or uses click's, by version

app = typer.Typer(
    name="nl-cutover",
    help="Move Neural Link data out of host SQLite stores into the one graph that Memory Core owns.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode=None,
)


def _version(value: bool) -> None:
    if value:
        say(f"nl-cutover {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


app.command()(measure.measure)
app.command()(plan.plan)
app.command()(migrate.migrate)
app.command()(settle.settle)
app.command()(verify.verify)
app.command()(seal.seal)
app.command()(seal.unseal)
app.command()(cut.cut)
app.command()(status.status)
app.add_typer(plane.app, name="plane")
app.command()(report.explain)
app.command()(report.report)
app.add_typer(receipt.app, name="receipt")
app.command()(resolve.resolve)
app.add_typer(recorder.app, name="recorder")
app.add_typer(mc.app, name="mc")
app.add_typer(graph.app, name="graph")
check.app.command("surface")(check_surface.surface)
app.add_typer(check.app, name="check")
app.command()(runbook.runbook)
app.command()(rehearsal.copy)
app.command()(demo.demo)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit. Errors are caught here, once, and printed with what to do next."""
    if _COMPLETE in os.environ:
        app(prog_name="nl-cutover")  # a shell asks for words, in the way that typer's own main answers
    arguments = list(sys.argv[1:] if argv is None else argv)
    command: list[str] = []
    if arguments and arguments[0] in _TAKE_A_COMMAND and "--" in arguments:
        at = arguments.index("--")
        arguments, command = arguments[:at], arguments[at + 1 :]
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    sys.exit(_run(arguments, command))


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _run(arguments: list[str], command: list[str]) -> int:
    from ..output.redaction import quiet_libraries, redact

    quiet_libraries()
    as_json = (
        "json" in arguments[arguments.index("--format") :][1:2]
        if "--format" in arguments
        else ("--format=json" in arguments)
    )
    try:
        # Not through typer's main, which turns Ctrl-C into a silent exit.
        verb = typer.main.get_command(app)
        with verb.make_context("nl-cutover", arguments, obj=command) as context:
            return int(verb.invoke(context) or 0)
    except CutoverError as error:
        return _explain(error.exit_code, redact(error.message), redact(error.hint), as_json)
    except typer.Exit as error:
        return error.exit_code
    except _Usage as error:
        if error.format_message().startswith("Usage:"):  # called without anything: the help is the answer
            complain(error.format_message() + "\n")
            return int(ExitCode.USAGE)
        where = error.ctx.command_path if error.ctx else "nl-cutover"
        return _explain(ExitCode.USAGE, error.format_message(), f"see: {where} --help", as_json)
    except (KeyboardInterrupt, typer.Abort):
        hint = "see what stands: nl-cutover measure CHECKOUT..." if command else "the same command resumes"
        return _explain(ExitCode.INTERRUPTED, "interrupted", hint, as_json)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(last.filename)}:{last.lineno}"
        if os.environ.get("NL_CUTOVER_DEBUG") == "1":
            complain(redact("".join(traceback.format_tb(error.__traceback__))))
        return _explain(
            ExitCode.FAULT,
            f"a fault of this program: {type(error).__name__} at {place}",
            "NL_CUTOVER_DEBUG=1 prints where it happened; nothing that was journalled is lost",
            as_json,
        )


def _explain(code: ExitCode, message: str, hint: str, as_json: bool) -> int:
    """The error in words on stderr, and as an object on stdout where JSON was asked for."""
    from ..output.documents import visible

    next_ = f"  next: {visible(hint)}\n" if hint else ""
    complain(f"nl-cutover: {visible(message)}\n{next_}  exit {int(code)}: {code.meaning}\n")
    if as_json:
        from ..migration.words import verdict_word
        from ..output.json import as_json as encode

        say(
            encode(
                Failure(
                    verdict=verdict_word(code), exit_code=int(code), error=message, next_steps=[hint] if hint else []
                )
            )
        )
    return int(code)
