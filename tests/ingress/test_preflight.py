"""The surface is compared with what will be sent, through the references that a schema may hold."""

import pytest

from nl_cutover.contract.telemetry import ADMITTED
from nl_cutover.errors import SurfaceError
from nl_cutover.ingress.preflight import _SENT, preflight
from nl_cutover.ingress.session import Session
from tests.ingress.fake import Scripted, endpoint, event, message, sse, tool_result


def against(schemas: dict) -> None:
    tools = [{"name": name, "inputSchema": schema} for name, schema in schemas.items()]

    def answer(request, body):
        result = {"tools": tools} if body["method"] == "tools/list" else tool_result({"plane": {"id": "p"}})
        return sse(event(message(body["id"], result)))

    with Session(endpoint(), transport=Scripted(answer)) as session:
        preflight(session, expected_plane="p")


def plain() -> dict:
    schemas = {n: {"type": "object", "properties": {key: {} for key in fields}} for n, fields in _SENT.items()}
    row = {"type": "object", "properties": {key: {} for key in ADMITTED}}
    schemas["admit_nl_actions"]["properties"]["actions"] = {"type": "array", "items": row}
    return schemas


def referring(ref: str = "#/$defs/~0a~1row", **row: object) -> dict:
    schemas = plain()
    actions = schemas["admit_nl_actions"]["properties"]["actions"]
    schemas["admit_nl_actions"]["$defs"] = {"~a/row": actions["items"] | row, "loop": {"$ref": "#/$defs/loop"}}
    actions["items"] = {"$ref": ref}
    return schemas


def test_a_plain_and_a_referring_schema_pass():
    against(plain())
    against(referring())
    whole = referring()
    whole["save_nl_transaction"] = {
        "$ref": "#/definitions/in",
        "definitions": {"in": whole["save_nl_transaction"]},
    }
    against(whole)


def test_a_field_that_is_missing_behind_a_reference_is_seen():
    with pytest.raises(SurfaceError, match=r"admit_nl_actions.actions\[\].tool"):
        against(referring(properties={key: {} for key in ADMITTED if key != "tool"}))


@pytest.mark.parametrize("ref", ["https://example.org/row.json", "#/$defs/none", "#/$defs/loop", "#row", "", 7])
def test_a_reference_that_cannot_be_followed_is_refused_by_name(ref):
    with pytest.raises(SurfaceError) as caught:
        against(referring(ref))
    assert "admit_nl_actions" in caught.value.message
    assert repr(ref) in caught.value.message
