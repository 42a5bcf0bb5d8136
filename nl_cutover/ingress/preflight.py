"""What must be true of the ingress before the first row leaves. Sends nothing but handshake, list and healthcheck."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import msgspec

from ..contract.javascript import encode_string
from ..contract.telemetry import ADMITTED
from ..contract.wire import ADMIT, HEALTH, OPERATIONS
from ..errors import CredentialsError, CutoverError, RefusedError, SurfaceError, UnreachableError, WrongPlaneError
from ..verdicts import Delivered, NotSent
from .delivery import Failure, structured
from .session import Session

ANY_PLANE = "any"
_SENT: dict[str, tuple[str, ...]] = {
    "save_nl_transaction": ("transaction", "appSessionId", "name"),
    "get_nl_transaction": ("archiveId",),
    "mark_nl_transaction_replayed": ("archiveId",),
    "admit_nl_actions": ("actions",),
}


class Plane(msgspec.Struct, frozen=True):
    """What the ingress says it is. Goes into the receipt."""

    url: str
    plane_id: str | None
    data_root: str | None
    server: str
    protocol_version: str
    clock_offset_s: float | None = None
    cleartext: bool = False
    proxy: str | None = None

    def must_be(self, plane_id: str | None, data_root: str | None, what: str, hint: str) -> None:
        """Raises WrongPlaneError unless this is the plane that `what` went to."""
        if (self.plane_id, self.data_root) != (plane_id, data_root):
            raise WrongPlaneError(
                f"{what} went to plane {plane_id} at {data_root}, {self.url} serves {self.plane_id} at {self.data_root}",
                hint,
            )


def preflight(
    session: Session, *, expected_plane: str, expected_root: str | None = None, telemetry: bool = True
) -> Plane:
    """Open the session, compare the surface with what will be sent, and the plane with the expected one.

    `telemetry`: whether actions will be admitted; a server that cannot take them is good enough where none are.
    Raises UnreachableError, CredentialsError, SurfaceError, WrongPlaneError or RefusedError; nothing was sent then.
    """
    url = session.endpoint.url
    if (failure := session.open()) is not None:
        raise error_of(failure, url)
    _check_surface(list_tools(session, url), url, telemetry)
    plane_id, root = _health(session, url)
    if expected_plane != ANY_PLANE and plane_id != expected_plane:
        raise WrongPlaneError(
            f"the ingress {url} answers for plane {plane_id or '(it does not say which)'}, expected {expected_plane}",
            "point --url at the right plane; which one is expected stands in --plane or in the settings' plane.id",
        )
    if expected_root is not None and root != expected_root:
        raise WrongPlaneError(
            f"the ingress {url} serves the data root {root or '(it does not say which)'}, expected {expected_root}",
            "an orphan plane may be answering on this port: look at the containers, or correct plane.data_root",
        )
    return Plane(
        url=url,
        plane_id=plane_id,
        data_root=root,
        server=f"{session.server.get('name', '?')} {session.server.get('version', '?')}",
        protocol_version=session.protocol_version,
        clock_offset_s=None if session.clock_offset is None else round(session.clock_offset, 1),
        cleartext=session.endpoint.cleartext,
        proxy=session.endpoint.proxy_name,
    )


def error_of(failure: Failure, url: str) -> CutoverError:
    """The error for a failure that stops everything before a row was sent."""
    if not isinstance(failure, NotSent):
        return UnreachableError(
            f"the ingress {url} gave no usable answer: {failure.reason}", "look at MC's log; nothing was sent"
        )
    match failure.kind:
        case "credentials":
            return CredentialsError(
                f"the ingress {url} does not take the token: {failure.reason}",
                "check which identity's token stands in the slot named by --token-env; nothing was sent",
            )
        case "host":
            return RefusedError(
                f"the ingress {url} does not accept this Host: {failure.reason}",
                "use the name it serves (localhost or 127.0.0.1), or add the name to NEO_MCP_ALLOWED_HOSTS",
            )
        case "redirect":
            return RefusedError(
                f"the ingress {url} is not the final URL: {failure.reason}",
                "give --url the final URL; nothing was sent",
            )
        case _:
            return UnreachableError(
                f"the ingress {url} cannot be reached: {failure.reason}",
                "start Memory Core, or correct --url; nothing was sent",
            )


def list_tools(session: Session, url: str) -> dict[str, dict[str, Any]]:
    """Every tool that the ingress lists, with its input schema. Raises as `preflight` does."""
    tools: dict[str, dict[str, Any]] = {}
    params = b"{}"
    for _ in range(100):
        answer = session.request("tools/list", params)
        if not isinstance(answer, Delivered):
            raise error_of(answer, url)
        for tool in answer.result.get("tools") or []:
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                schema = tool.get("inputSchema")
                tools[tool["name"]] = schema if isinstance(schema, dict) else {}
        cursor = answer.result.get("nextCursor")
        if not isinstance(cursor, str) or not cursor:
            return tools
        params = f'{{"cursor":{encode_string(cursor)}}}'.encode()
    raise SurfaceError(f"the ingress {url} lists its tools without end")


def _check_surface(tools: dict[str, dict[str, Any]], url: str, telemetry: bool) -> None:
    needed = [name for name in OPERATIONS if telemetry or name != ADMIT]
    missing = [name for name in needed if name not in tools]
    if missing:
        raise SurfaceError(
            f"the server at {url} lacks {', '.join(missing)}",
            "it is an older Memory Core, or the token's surface hides them; nothing was sent",
        )
    lacking = []
    for name in needed:
        declared = _schema(name, tools[name], "properties")
        lacking += [f"{name}.{field}" for field in _SENT[name] if field not in declared]
    if telemetry and _schema(ADMIT, tools[ADMIT], "properties", "actions", "items"):
        declared = _schema(ADMIT, tools[ADMIT], "properties", "actions", "items", "properties")
        lacking += [f"{ADMIT}.actions[].{field}" for field in ADMITTED if field not in declared]
    if lacking:
        raise SurfaceError(
            f"the schema of the server at {url} lacks {', '.join(lacking)}: it would strip what is sent",
            "upgrade Memory Core; nothing was sent",
        )


def _node(schema: Any, *path: str) -> dict[str, Any]:
    for key in path:
        schema = schema.get(key) if isinstance(schema, dict) else None
    return schema if isinstance(schema, dict) else {}


def _schema(tool: str, root: dict[str, Any], *path: str) -> dict[str, Any]:
    """The part of a tool's input schema at `path`, through its local references. Raises SurfaceError for any other."""
    here: Any = root
    for key in [*path, None]:
        seen = set()
        while isinstance(here, dict) and "$ref" in here:
            ref = here["$ref"]
            local = isinstance(ref, str) and (ref == "#" or ref.startswith("#/")) and ref not in seen
            seen.add(ref)
            steps = [s.replace("~1", "/").replace("~0", "~") for s in unquote(ref).split("/")[1:]] if local else []
            here = _node(root, *steps) if local else None
            if not here:
                raise SurfaceError(
                    f"the input schema of {tool} refers to {ref!r}, which cannot be followed",
                    "what the server takes cannot be known; nothing was sent",
                )
        if key is not None:
            here = here.get(key) if isinstance(here, dict) else None
    return here if isinstance(here, dict) else {}


def _health(session: Session, url: str) -> tuple[str | None, str | None]:
    answer = session.call(HEALTH, b"{}", reading=True)
    if isinstance(answer, NotSent):
        raise error_of(answer, url)
    result = structured(answer.result) if isinstance(answer, Delivered) else None
    plane = _node(result, "plane")
    plane_id = next((v for k in ("id", "planeId") if isinstance(v := plane.get(k), str)), None)
    root = plane.get("dataRoot")
    return plane_id, root if isinstance(root, str) else None
