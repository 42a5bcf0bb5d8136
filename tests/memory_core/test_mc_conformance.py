"""The embedded Memory Core agrees with every observed case; the run itself can see a difference."""

from __future__ import annotations

import msgspec
import pytest

from nl_cutover.errors import CredentialsError, UnreachableError
from nl_cutover.memory_core.conformance import Case, Expectation, Request, Verdict, exit_code, load_cases, run
from nl_cutover.testing import EmbeddedMemoryCore
from nl_cutover.verdicts import ExitCode


def test_the_reference_agrees_with_every_case(core: EmbeddedMemoryCore) -> None:
    findings = list(run(core.url, core.token, load_cases()))
    assert [finding for finding in findings if finding.verdict is not Verdict.AGREES] == []
    assert len(findings) >= 57
    assert exit_code(findings) is ExitCode.PROVED


def test_with_identities_only_the_listed_alternatives_differ(seats: EmbeddedMemoryCore) -> None:
    findings = list(run(seats.url, seats.token, load_cases()))
    others = {finding.case for finding in findings if finding.verdict is Verdict.AGREES_OTHERWISE}
    assert exit_code(findings) is ExitCode.PROVED
    assert others == {
        "Origin header",
        "get found",
        "get found (nulls)",
        "get found (bare)",
        "get found (another id beside txId)",
        "get after 2 marks",
        "get name=null archive after mark",
    }


def _broken(case: Case, **changes: object) -> Case:
    return msgspec.structs.replace(case, expect=msgspec.structs.replace(case.expect, **changes))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("ping", {"result": {"extra": 1}}),
        ("wrong token", {"status": 403}),
        ("save ok", {"structured": {"saved": True}}),
        ("mark not found", {"structured": {"updated": 0, "status": "not-found"}}),
        ("tools/list", {"tools": {"no_such_tool": {}}}),
        ("unknown method", {"error": {"code": -32601, "message": "method not found"}}),
        ("initialize", {"headers": {"mcp-session-id": "<ms>"}}),
        ("initialize, Accept only json", {"content_type": "text/html"}),
        ("DELETE session", {"structured": {}}),
    ],
)
def test_a_wrong_expectation_is_a_difference(core: EmbeddedMemoryCore, name: str, changes: dict[str, object]) -> None:
    cases = [_broken(case, **changes) if case.name == name else case for case in load_cases()]
    findings = list(run(core.url, core.token, cases))
    assert name in {finding.case for finding in findings if finding.verdict is Verdict.DIFFERS}
    assert exit_code(findings) is ExitCode.DIFFERENCE


def test_a_case_that_is_not_understood_is_refused() -> None:
    document = b'{"name": "x", "request": {}, "expect": {"statuz": 200}}'
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(document, type=Case)


def test_no_cases_prove_nothing() -> None:
    assert exit_code([]) is ExitCode.DIFFERENCE


def test_a_refused_token_stops_the_run_before_the_first_case(core: EmbeddedMemoryCore) -> None:
    with pytest.raises(CredentialsError):
        next(run(core.url, "not-the-token", load_cases()))


def test_an_unreachable_server_stops_the_run_before_the_first_case() -> None:
    with pytest.raises(UnreachableError):
        next(run("http://127.0.0.1:9/mc/mcp", "token", load_cases()))


def test_without_an_ingress_the_path_beside_it_is_skipped(core: EmbeddedMemoryCore) -> None:
    outside = Case("outside", Request(outside=True, rpc={"method": "ping"}), Expectation(status=404))
    with pytest.raises(UnreachableError):
        next(run("http://127.0.0.1:9/mcp", "token", [outside]))
    (finding,) = run(core.url, core.token, [outside])
    assert finding.verdict is Verdict.AGREES
