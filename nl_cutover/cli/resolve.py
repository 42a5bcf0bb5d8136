"""`nl-cutover resolve`."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..verdicts import ExitCode
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
    from ..output.documents import Document
    from ..papers.ways import Resolution, Way
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
    finish(result, _document(result, shlex.join([result.id, *named])), format)


def _asked(result: Resolution, settings: Settings, cleartext: bool) -> Resolution:
    from functools import partial

    from ..errors import RefusedError, WrongPlaneError
    from ..ingress.preflight import preflight
    from ..ingress.session import Session
    from ..ingress.sessions import Sessions
    from ..papers.ways import ask

    if len(result.archives) > 1:
        raise RefusedError(f"{len(result.archives)} archives had the id {result.id}", "ask for one of their new ids")
    told = result.archives[0].plane
    target = endpoint(settings, cleartext=cleartext)
    with Sessions({**identity_sessions(settings, target), "": partial(Session, target)}) as sessions:
        session = sessions.operations("").session
        plane = preflight(session, expected_plane="any", expected_root=None, telemetry=False)
        if (plane.plane_id, plane.data_root) != (told.plane_id, told.data_root):
            raise WrongPlaneError(
                f"the archive went to plane {told.plane_id} at {told.data_root}, "
                f"{plane.url} serves {plane.plane_id} at {plane.data_root}",
                "ask the plane that the receipt names",
            )
        return ask(result, sessions, plane.url)


def _document(result: Resolution, words: str) -> Document:
    from ..output.documents import Table
    from ..output.views import document

    facts = [("id", result.id), *(_facts(result.archives[0]) if len(result.archives) == 1 else [])]
    if result.answer is not None:
        facts.append(("asked now", result.answer))
    rows = [
        [w.entry.old, w.entry.new, w.plane.data_root or "-", w.run or "-", w.entry.content_digest[:16]]
        for w in result.archives
    ]
    several = len(result.archives) > 1
    asks = f"ask Memory Core itself, at a --url that you trust: nl-cutover resolve {words} --ask"
    steps = [] if result.answer is not None or several else [asks]
    return document(
        "resolve",
        result,
        facts,
        [Table("", ["old id", "new id", "plane's data root", "run", "content digest"], rows)] if several else [],
        ["several archives have this id; those with one content and one plane were saved more than once"]
        if several
        else [],
        steps if result.exit_code != ExitCode.DIFFERENCE else ["do not land; keep both: this receipt and that answer"],
    )


def _facts(way: Way) -> list[tuple[str, str]]:
    entry, host = way.entry, way.entry.host
    to_the_byte = "; ops and originWriter to the byte" if entry.bytes_equal else "; the same values, in other bytes"
    return [
        ("old id", entry.old),
        ("new id", entry.new),
        ("from", ", ".join(way.stores)),
        ("to", f"plane {way.plane.plane_id or 'unnamed'} at {way.plane.url}"),
        ("custodian", entry.custodian or "not told"),
        ("read back", f"equal{to_the_byte}" if entry.confirmed else "not yet"),
        ("replays", f"{entry.marks_made} of {entry.marks_wanted} marked"),
        ("on the host", f"archived {_time(host['archived_at'])}, last replayed {_time(host['last_replayed_at'])}"),
        ("row digest", entry.digest),
        ("content digest", entry.content_digest),
        ("carried digest", entry.carried_digest or "not told"),
        ("says so", f"{way.receipt} of run {way.run}, {way.at}"),
        ("its sha256", way.receipt_sha256),
        ("bound by", way.binding),
    ]


def _time(ms: Any) -> str:
    try:
        return "never" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (TypeError, ValueError, OverflowError, OSError):
        return str(ms)


def bodies(receipts: list[Path] | None, custody: Path | None, config: Path | None) -> list[dict[str, Any]]:
    """The receipts that were named, or all of a custody directory, its chain checked. Oldest first."""
    from ..custody.receipts import chain, read
    from .settings import load

    paths = receipts or [link.path for link in chain(load(config=config, custody=custody).custody)]
    return [read(path)[1] for path in paths]
