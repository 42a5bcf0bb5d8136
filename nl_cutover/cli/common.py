"""What every verb shares: its options, its formats, and how it ends."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, assert_never

import msgspec
import typer

from ..contract.wire import DEFAULT_TOKEN_ENV, DEFAULT_URL, PLANE_ID
from .settings import LONGEST

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..ingress.endpoint import Endpoint
    from ..ingress.session import Session
    from ..output.documents import Document
    from .settings import Settings


class Format(StrEnum):
    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """`nl-cutover/error/1`: what `--format json` prints where there is no result."""

    schema: str = "nl-cutover/error/1"
    verdict: str
    exit_code: int
    error: str
    next_steps: list[str]


def finite(value: float | None) -> float | None:
    """A duration that clocks can count: `min` alone lets pass what is no number, or has no end."""
    if value is not None and not 0 <= value <= LONGEST:
        raise typer.BadParameter(f"{value:g} is not between 0 and {LONGEST:g}")
    return value


Checkouts = Annotated[
    list[Path] | None, typer.Argument(help="Neo checkouts (or store files).", show_default=False, metavar="CHECKOUT")
]
Roots = Annotated[list[Path] | None, typer.Option("--root", help="Find checkouts below this folder.", metavar="DIR")]
FormatOption = Annotated[Format, typer.Option("--format", help="How to print the result.")]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="Settings file.  [default: nl-cutover.toml if there]", metavar="FILE")
]
CustodyOption = Annotated[
    Path | None,
    typer.Option("--custody", help="Where the ledger and the receipts are.  [default: user state]", metavar="DIR"),
]
UrlOption = Annotated[str | None, typer.Option("--url", help=f"The ingress.  [default: {DEFAULT_URL}]")]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token-env", help=f"Environment slot of the bearer token.  [default: {DEFAULT_TOKEN_ENV}]", metavar="NAME"
    ),
]
PlaneOption = Annotated[
    str | None, typer.Option("--plane", help=f"The plane to expect, or `any`.  [default: {PLANE_ID}]", metavar="ID")
]
OwnerOption = Annotated[
    str | None,
    typer.Option("--owner", help="Whose all archives will be, if they have several writers.", metavar="NAME"),
]
CleartextOption = Annotated[
    bool, typer.Option("--allow-cleartext", help="Let the token travel over http to another host.")
]
ProxiesOption = Annotated[
    bool | None,
    typer.Option("--environment-proxies", help="Use the proxy that the environment names.  [default: ignore it]"),
]
WaitOption = Annotated[
    float | None,
    typer.Option(
        "--wait",
        help="Seconds that one call may wait for a busy server (429, 503).  [default: 30]",
        min=0.0,
        callback=finite,
    ),
]
ExpectOption = Annotated[
    int | None, typer.Option("--expect-checkouts", help="Refuse unless exactly N are found.", metavar="N", min=1)
]
AbsentOption = Annotated[
    bool, typer.Option("--allow-absent", help="Take checkouts that reach no store for what they are.")
]
ClosedOption = Annotated[
    bool, typer.Option("--closed", help="State that store files given as arguments were cleanly closed.")
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        envvar="NL_CUTOVER_ENGINE",
        help="Container engine: a URL, a docker context, or `none`.  [default: DOCKER_HOST, context, socket]",
        metavar="ENGINE",
        show_envvar=False,
    ),
]
ContainerOption = Annotated[
    str | None,
    typer.Option(
        "--container", help="Memory Core's container.  [default: the one behind the ingress's port]", metavar="NAME"
    ),
]
ProjectOption = Annotated[
    str | None, typer.Option("--project", help="The compose project it belongs to.", metavar="NAME")
]
ServiceOption = Annotated[
    str | None, typer.Option("--service", help="Its compose service.  [default: mc-server]", metavar="NAME")
]

ReceiptsOption = Annotated[
    list[Path] | None,
    typer.Option("--receipt", help="Read this receipt; repeatable.  [default: those of --custody]", metavar="FILE"),
]
ReceiptOption = Annotated[
    bool, typer.Option("--receipt", help="Leave a receipt in the custody directory; without it nothing is written.")
]
UpdatesOption = Annotated[
    str, typer.Option("--updates", help="allow | refuse: whether archives may still count replays.", metavar="HOW")
]
CreateOption = Annotated[
    bool, typer.Option("--create-missing", help="Make the tables that are absent, so that they are sealed too.")
]
LockOption = Annotated[
    float, typer.Option("--lock-timeout", help="Seconds to wait for a store's lock.", min=0, callback=finite)
]


def endpoint(settings: Settings, *, cleartext: bool) -> Endpoint:
    """The ingress with the token of its slot. Raises UsageError or CredentialsError."""
    from ..ingress.endpoint import Endpoint, proxy_from_environment, token_from_environment

    named = proxy_from_environment(os.environ, settings.url)
    if named is not None and not settings.environment_proxies:
        complain(f"nl-cutover: {named[0]} is set and ignored; --environment-proxies would use it\n")
        named = None
    return Endpoint(
        settings.url,
        token_from_environment(os.environ, settings.token_env),
        cleartext=cleartext,
        proxy=None if named is None else named[1],
        wait_budget=settings.wait,
    )


def identity_sessions(settings: Settings, target: Endpoint) -> dict[str, Callable[[], Session]]:
    """A session factory for each credential slot of `[identities]`. Raises CredentialsError naming the slot."""
    from functools import partial

    from ..ingress.endpoint import token_from_environment
    from ..ingress.session import Session

    return {
        slot: partial(Session, target.with_token(token_from_environment(os.environ, slot)))
        for slot in sorted(set(settings.identities.values()))
    }


def finish(report: Any, document: Document, form: Format) -> NoReturn:
    """Print the report and end with its exit code, which printing cannot change."""
    from ..output.documents import as_markdown, as_table
    from ..output.json import as_json

    match form:
        case Format.TABLE:
            text = as_table(document)
        case Format.MARKDOWN:
            text = as_markdown(document)
        case Format.JSON:
            text = as_json(report)
        case _:
            assert_never(form)
    say(text)
    raise typer.Exit(document.exit_code)


def say(text: str) -> None:
    """Write to stdout; that it is closed, full or another character set changes no exit code."""
    if sys.stdout is None:
        return
    encoding = "utf-8" if text.startswith(("{", "<!")) else sys.stdout.encoding or "utf-8"  # whatever the locale
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode(encoding, "backslashreplace"))
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        if not isinstance(error, BrokenPipeError):
            complain(f"nl-cutover: the result could not be printed: {error}\n")
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except (OSError, ValueError):
            pass


def complain(text: str) -> None:
    """Write to stderr, if anybody can read there."""
    try:
        sys.stderr.write(text.encode("utf-8", "backslashreplace").decode("utf-8"))
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass
