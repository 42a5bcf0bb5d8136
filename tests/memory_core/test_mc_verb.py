"""`nl-cutover mc`: exit codes and what is printed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from nl_cutover.cli import main
from nl_cutover.testing import EmbeddedMemoryCore


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["mc", *arguments])
    return int(end.value.code or 0)


@pytest.fixture
def slot(monkeypatch: pytest.MonkeyPatch, core: EmbeddedMemoryCore) -> str:
    monkeypatch.setenv("MC_TOKEN", core.token)
    return "MC_TOKEN"


def test_conformance_prints_a_table(core: EmbeddedMemoryCore, slot: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("conformance", "--url", core.url, "--token-env", slot) == 0
    printed = capsys.readouterr()
    assert "Conformance: AGREES (exit 0" in printed.out
    assert "get name=null archive after mark" in printed.out
    assert "stay on that Memory Core" in printed.err
    assert core.token not in printed.out + printed.err


def test_conformance_as_json(core: EmbeddedMemoryCore, slot: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("conformance", "--url", core.url, "--token-env", slot, "--format", "json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["schema"], report["verdict"], report["exit_code"]) == ("nl-cutover/conformance/1", "agrees", 0)
    assert {"case": "ping", "verdict": "agrees", "detail": ""} in report["findings"]


def test_a_server_that_answers_otherwise_ends_in_8(
    core: EmbeddedMemoryCore, slot: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # Another path of the same server knows nothing: every case but a few differs.
    assert run("conformance", "--url", core.url.removesuffix("/mcp") + "/else", "--token-env", slot) == 8
    assert "status: expected 401, got 404" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("url", "token", "code", "told"),
    [
        ("http://127.0.0.1:9/mc/mcp", "t", 5, "does not answer"),
        (None, "wrong", 6, "refuses the token"),
        (None, "", 6, "holds no token"),
    ],
)
def test_what_stops_a_conformance_run(
    core: EmbeddedMemoryCore,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    url: str | None,
    token: str,
    code: int,
    told: str,
) -> None:
    monkeypatch.setenv("MC_TOKEN", token)
    assert run("conformance", "--url", url or core.url, "--token-env", "MC_TOKEN") == code
    assert told in capsys.readouterr().err


def test_serve_without_the_extra_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "nl_cutover.memory_core.server", raising=False)
    assert run("serve", "--db", str(tmp_path / "graph.sqlite"), "--token-file", str(tmp_path / "tokens")) == 2
    assert "pip install 'nl-cutover[memory-core]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_serve_without_a_token_file_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("serve", "--db", str(tmp_path / "graph.sqlite"), "--token-file", str(tmp_path / "absent")) == 6
    assert "cannot be read" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
