"""`nl-cutover mc`: the reference Memory Core, and the conformance run against any Memory Core."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..contract.leaves import DIGEST_LOOKBACK_MS
from ..contract.surface import HARNESS, MODE_ENV, read_surface
from ..contract.wire import DEFAULT_TOKEN_ENV, DEFAULT_URL, PLANE_ID, RETENTION_MS
from ..errors import CredentialsError, UsageError
from ..memory_core.shapes import ShapeName
from ..memory_core.surface import SurfaceName, load_document
from .common import EngineOption, Format, FormatOption, complain, finish, say

if TYPE_CHECKING:
    from ..memory_core.conformance import Report
    from ..memory_core.image import Image
    from ..output.documents import Document

app = typer.Typer(
    name="mc",
    help="Serve the reference Memory Core, put it into an image, or compare any Memory Core with the contract.",
    no_args_is_help=True,
)

TokenFileOption = Annotated[
    Path,
    typer.Option(
        envvar="NEO_MCP_HEALTHCHECK_TOKEN_FILE",
        help="One bare token, or NAME=TOKEN lines that give callers identities.",
    ),
]


class Transport(StrEnum):
    """The values of the real server's NEO_TRANSPORT that mean what is served here; `stdio` is not among them."""

    STREAMABLE_HTTP = "streamable-http"
    SSE = "sse"  # its older name


@app.command()
def serve(
    token_file: TokenFileOption,
    db: Annotated[
        Path | None, typer.Option(envvar="NEO_MEMORY_DB_PATH", help="The graph's SQLite file; made if absent.")
    ] = None,
    host: Annotated[str, typer.Option(envvar="NEO_MCP_LISTEN_HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="MCP_HTTP_PORT", help="0 takes a free port.")] = 3102,
    plane_id: Annotated[
        str, typer.Option(envvar="NEO_PLANE_ID", help="What the healthcheck names the plane.")
    ] = PLANE_ID,
    data_root: Annotated[
        str | None,
        typer.Option(
            envvar="NEO_PLANE_DATA_ROOT", help="What the healthcheck names the data root. Default: from --db."
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(envvar="NEO_MCP_ALLOWED_HOSTS", help="Hosts that are let in beside localhost; commas, or repeat."),
    ] = None,
    shape: Annotated[ShapeName, typer.Option(help="Answer as the server of that commit does.")] = ShapeName.FINAL,
    lookback_ms: Annotated[
        int, typer.Option(envvar=DIGEST_LOOKBACK_MS, help="Telemetry older than this is deleted.", min=1)
    ] = RETENTION_MS,
    retention_period_ms: Annotated[int, typer.Option(help="How often that is done.", min=1)] = 3_600_000,
    surface: Annotated[
        SurfaceName, typer.Option(help="neural-link serves a component tree in memory, and needs no --db.")
    ] = SurfaceName.MEMORY_CORE,
    tool_projection_mode: Annotated[
        str | None,
        typer.Option(
            help="Force a projection for list and call: harness-embedded, or an exact profile. An unknown one shows "
            f"nothing.  [env var: {MODE_ENV}]",
            metavar="MODE",
        ),
    ] = None,
    busy_timeout_ms: Annotated[int, typer.Option(hidden=True)] = 5_000,
    transport: Annotated[Transport, typer.Option(envvar="NEO_TRANSPORT", hidden=True)] = Transport.STREAMABLE_HTTP,
) -> None:
    """Serve the reference Memory Core, or a Neural Link surface, at /mc/mcp until SIGTERM or Ctrl-C."""
    try:
        from ..memory_core import auth, server
    except ImportError as absent:
        raise UsageError(f"mc serve needs {absent.name}", "pip install 'nl-cutover[memory-core]'") from None
    if surface is SurfaceName.NEURAL_LINK:
        db = None
    elif db is None:
        raise UsageError("mc serve has no graph to serve", "name the SQLite file: --db PATH")
    if tool_projection_mode is None:
        # Read here: an option's own envvar takes an empty value for none, and an empty mode must not open the surface.
        tool_projection_mode = os.environ.get(MODE_ENV)
    settings = server.Settings(
        db=db,
        tokens=auth.read_tokens(token_file),
        data_root=data_root or (str(server.default_data_root(db)) if db else ""),
        host=host,
        port=port,
        plane_id=plane_id,
        allowed_hosts=tuple(name for given in allowed_host or () for name in given.split(",") if name),
        busy_timeout_ms=busy_timeout_ms,
        shape=shape,
        lookback_ms=lookback_ms,
        retention_period_ms=retention_period_ms,
        projection=tool_projection_mode,
    )
    if tool_projection_mode is not None:
        declared = read_surface(load_document(surface.document))
        if not declared.view(tool_projection_mode):
            known = ", ".join((HARNESS, *declared.profiles))
            complain(
                f"nl-cutover: no projection {tool_projection_mode!r}: every call is refused (there are: {known})\n"
            )
    server.serve(settings, lambda url: say(f"listening on {url}\n"))


@app.command()
def health(
    token_file: TokenFileOption,
    url: Annotated[str, typer.Option(help="The MCP endpoint.")] = DEFAULT_URL,
    plane: Annotated[str, typer.Option(help="The plane to expect, or `any`.", metavar="ID")] = PLANE_ID,
    data_root: Annotated[str | None, typer.Option(help="The data root to expect.")] = None,
) -> None:
    """Exit 0 if that Memory Core answers for the expected plane: what the image's HEALTHCHECK runs."""
    from ..ingress.endpoint import Endpoint, Token
    from ..ingress.preflight import preflight
    from ..ingress.session import Session
    from ..memory_core.auth import read_token_file

    token, _ = read_token_file(token_file)[0]
    with Session(Endpoint(url, Token(token), call_timeout=5.0)) as session:
        told = preflight(session, expected_plane=plane, expected_root=data_root, telemetry=False)
    say(f"healthy: {told.plane_id} at {told.data_root}\n")


@app.command()
def image(
    base: Annotated[
        str, typer.Option(help="The image to build on: python3 3.11 or newer with venv, on glibc.")
    ] = "python:3.11-slim",
    tag: Annotated[str, typer.Option(help="What to call it.")] = "nl-cutover-mc",
    plane_id: Annotated[str, typer.Option(help="The plane that its containers are.")] = PLANE_ID,
    wheel: Annotated[
        Path | None,
        typer.Option(help="This wheel of nl-cutover.  [default: of this checkout, or the release]", exists=True),
    ] = None,
    engine: EngineOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Build a container image of the reference Memory Core; inside the build nothing is fetched."""
    from ..plane.engine import NoEngine
    from .engines import engine_of
    from .settings import load

    found = engine_of(load(config=None, engine=engine))
    if isinstance(found, NoEngine):
        raise found.error()
    import docker

    from ..memory_core import image as images

    client = object.__new__(docker.DockerClient)  # its own constructor would choose an engine anew
    client.api = found.api
    built = images.build(
        client,
        base=base,
        tag=tag,
        plane_id=plane_id,
        wheel=wheel,
        progress=lambda step: complain(f"nl-cutover: {step}\n"),
    )
    finish(built, _image_document(built), format)


@app.command()
def conformance(
    url: Annotated[str, typer.Option(help="The MCP endpoint.")] = DEFAULT_URL,
    token_env: Annotated[
        str, typer.Option(help="Environment slot of the bearer token.", metavar="NAME")
    ] = DEFAULT_TOKEN_ENV,
    shape: Annotated[ShapeName, typer.Option(help="Expect what the server of that commit answers.")] = ShapeName.FINAL,
    format: FormatOption = Format.TABLE,
) -> None:
    """Compare a Memory Core with the observed contract, case by case.

    It leaves a few archives and telemetry rows on that Memory Core: no operation deletes them.
    """
    from ..memory_core import conformance as checks

    token = os.environ.get(token_env, "").strip()
    if not token:
        raise CredentialsError(f"{token_env} holds no token", f"put the bearer token into {token_env}")
    complain(checks.NOTICE + "\n")
    report = checks.Report.of(url, list(checks.run(url, token, checks.load_cases(shape))), shape)
    finish(report, _document(report, everything=format is Format.TABLE), format)


def _document(report: Report, *, everything: bool) -> Document:
    from ..output.documents import Table
    from ..output.views import document

    shown = [finding for finding in report.findings if everything or finding.detail]
    rows = [[finding.case, str(finding.verdict), finding.detail] for finding in shown]
    facts = [
        ("url", report.url),
        ("shape", report.shape),
        ("cases", str(len(report.findings))),
        ("agree", str(report.agreed)),
    ]
    return document("mc conformance", report, facts, [Table("", ["case", "verdict", "detail"], rows)])


def _image_document(built: Image) -> Document:
    from ..output.views import document

    facts = [
        ("tag", built.tag),
        ("id", built.id),
        ("base", built.base),
        ("version", built.version),
        ("revision", built.revision),
        ("plane", built.plane_id),
    ]
    steps = [f"start it with a copy of {built.compose}; what to do stands at its head"]
    return document("mc image", built, facts, next_steps=steps)
