"""`nl-cutover check surface`: does a live server show exactly one profile?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..contract.wire import DEFAULT_TOKEN_ENV, DEFAULT_URL
from .common import CleartextOption, Format, FormatOption, finish

if TYPE_CHECKING:
    from ..denial.surface import Report
    from ..output.documents import Document


def surface(
    profile: Annotated[str, typer.Option(help="The exact profile that the server was launched with.")],
    url: Annotated[str, typer.Option(help="The MCP endpoint.")] = DEFAULT_URL,
    token_env: Annotated[
        str, typer.Option(help="Environment slot of the bearer token.", metavar="NAME")
    ] = DEFAULT_TOKEN_ENV,
    document: Annotated[
        Path | None, typer.Option(help="An OpenAPI document (JSON) that declares the profile.  [default: this tool's]")
    ] = None,
    allow_cleartext: CleartextOption = False,
    format: FormatOption = Format.TABLE,
) -> None:
    """Probe a live server: it must list and execute the profile's operations, and refuse all else.

    Operations that write are only ever called with arguments that their own schema refuses.
    """
    from ..contract import javascript
    from ..denial.surface import Reply, probe
    from ..errors import CredentialsError, UnreachableError
    from ..ingress.endpoint import Endpoint, token_from_environment
    from ..ingress.session import Session
    from ..verdicts import Delivered, NotSent, Refused

    inside, others = _declared(profile, document)
    target = Endpoint(url, token_from_environment(os.environ, token_env), cleartext=allow_cleartext)
    with Session(target) as session:

        def ask(method: str, params: Mapping[str, Any]) -> Reply:
            answer = session.request(method, javascript.canonical(params).encode())
            match answer:
                case Delivered():
                    return Reply(answer.result)
                case Refused():
                    return Reply(None, answer.reason)
                case NotSent(kind="credentials"):
                    raise CredentialsError(f"{url} refuses the token: {answer.reason}", "check --token-env")
            raise UnreachableError(f"{url} gave no answer: {answer.reason}", "check the URL and that the server runs")

        report = probe(ask, inside, others, profile, url)
    finish(report, _document(report), format)


def _declared(profile: str, document: Path | None) -> tuple[list[Any], list[Any]]:
    """The operations of the profile and the others of its document. Raises UsageError for a profile nobody declares."""
    import msgspec

    from ..contract.surface import MEMORY_CORE, NEURAL_LINK, Tool, read_surface
    from ..denial.surface import Operation
    from ..errors import UsageError

    known: list[str] = []
    for path in (document,) if document else (MEMORY_CORE, NEURAL_LINK):
        try:
            surface = read_surface(msgspec.json.decode(path.read_bytes(), type=dict[str, Any]))
        except (OSError, msgspec.DecodeError, LookupError, TypeError, AttributeError) as failure:
            raise UsageError(f"{path} is no OpenAPI document of tools: {failure!r}", "name a JSON document") from None
        known += surface.profiles
        view = surface.profiles.get(profile, {})
        if view:

            def operation(tool: Tool) -> Operation:
                return Operation(tool.name, tool.input_schema, tool.tier == "read")

            others = [operation(tool) for name, tool in surface.tools.items() if name not in view]
            return [operation(tool) for tool in view.values()], others
    raise UsageError(f"no exact profile {profile!r} is declared", f"declared are: {', '.join(known) or 'none'}")


def _document(report: Report) -> Document:
    from ..output.documents import Table
    from ..output.views import document

    bad = [finding for finding in report.findings if finding.detail]
    yes = {True: "yes", False: "no"}
    parity = [[p.operation, yes[p.in_profile], yes[p.listed], yes[p.callable]] for p in report.parity]
    tables = [Table("", ["operation", "profile", "listed", "callable"], parity)]
    if bad:
        tables.insert(0, Table("", ["case", "verdict", "detail"], [[f.case, str(f.verdict), f.detail] for f in bad]))
    facts = [
        ("url", report.url),
        ("profile", report.profile),
        ("cases", str(len(report.findings))),
        ("hold", str(len(report.findings) - len(bad))),
    ]
    steps = [f"launch the server with --tool-projection-mode {report.profile}"] if bad else []
    return document("check surface", report, facts, tables, next_steps=steps)
