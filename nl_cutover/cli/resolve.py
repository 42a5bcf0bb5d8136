"""`nl-cutover resolve`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import (
    CleartextOption,
    ConfigOption,
    CustodyOption,
    Format,
    FormatOption,
    ProxiesOption,
    ReceiptsOption,
    TokenOption,
    UrlOption,
    WaitOption,
    endpoint,
    finish,
    identity_sessions,
)

if TYPE_CHECKING:
    from ..papers.ways import Resolution
    from .settings import Settings


def resolve(
    id: Annotated[str, typer.Argument(help="An archive's id of before the cut, or its new one.", metavar="ID")],
    receipt: ReceiptsOption = None,
    ask: Annotated[
        bool,
        typer.Option("--ask", help="Read it from Memory Core now and compare; needs the receipt and the token alone."),
    ] = False,
    url: UrlOption = None,
    token_env: TokenOption = None,
    allow_cleartext: CleartextOption = False,
    environment_proxies: ProxiesOption = None,
    wait: WaitOption = None,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Say what became of one archive, by the receipts of its migration; with --ask, whether Memory Core still has it."""
    from ..custody.receipts import chain
    from ..errors import RefusedError
    from ..output.paper_views import resolution_document
    from ..papers.verifying import consistent
    from ..papers.ways import resolve as resolved
    from .settings import load

    settings = load(
        config=config, custody=custody, url=url, token_env=token_env, environment_proxies=environment_proxies, wait=wait
    )
    paper = consistent(receipt or [link.path for link in chain(settings.custody)])
    result = resolved(paper, id)
    if not result.archives:
        raise RefusedError(
            f"no receipt here says where archive {id} went",
            "name the receipt of the run that moved it with --receipt, or its --custody; ids are told apart by case",
        )
    if ask:
        result = _asked(result, settings, allow_cleartext)
    named = [word for path in receipt or () for word in ("--receipt", str(path))]
    if not named and custody is not None:
        named = ["--custody", str(custody)]
    finish(result, resolution_document(result, shlex.join([result.id, *named])), format)


def _asked(result: Resolution, settings: Settings, cleartext: bool) -> Resolution:
    from functools import partial

    from ..ingress.session import Session
    from ..ingress.sessions import Sessions
    from ..papers.ways import ask

    target = endpoint(settings, cleartext=cleartext)
    with Sessions({**identity_sessions(settings, target), "": partial(Session, target)}) as sessions:
        return ask(result, sessions)


def bodies(receipts: list[Path] | None, custody: Path | None, config: Path | None) -> list[dict[str, Any]]:
    """The receipts that were named, or all of a custody directory, its chain checked. Oldest first."""
    from ..custody.receipts import chain, read
    from .settings import load

    paths = receipts or [link.path for link in chain(load(config=config, custody=custody).custody)]
    return [read(path)[1] for path in paths]
