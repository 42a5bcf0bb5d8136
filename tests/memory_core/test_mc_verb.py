"""`nl-cutover mc`: exit codes and what is printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from nl_cutover.cli import main
from nl_cutover.testing import EmbeddedMemoryCore, embedded_memory_core

# Without a token: a Host that is let in gets as far as the 401.
HOSTS = {"mc.example": 401, "mc-server": 401, "localhost": 401, "elsewhere.example": 403}


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
    assert "nl-cutover mc conformance: AGREES (exit 0" in printed.out
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


@pytest.fixture
def token_file(core: EmbeddedMemoryCore, tmp_path: Path) -> Path:
    path = tmp_path / "mcp-auth-token"
    path.write_text(f"neo-operator={core.token}\n")
    return path


def test_health_names_the_plane_and_leaves_no_session(
    core: EmbeddedMemoryCore, token_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("health", "--url", core.url, "--token-file", str(token_file), "--data-root", str(core.directory)) == 0
    assert capsys.readouterr().out == f"healthy: {core.plane_id} at {core.directory}\n"


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("--plane", "other"), 3, "answers for plane neo-local-canonical, expected other"),
        (("--data-root", "/elsewhere"), 3, "expected /elsewhere"),
        (("--url", "http://127.0.0.1:9/mc/mcp"), 5, "cannot be reached"),
    ],
)
def test_what_is_not_healthy(
    core: EmbeddedMemoryCore,
    token_file: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    code: int,
    told: str,
) -> None:
    assert run("health", "--url", core.url, "--token-file", str(token_file), *options) == code
    assert told in capsys.readouterr().err
    token_file.write_text("neo-operator=wrong")
    if code == 3:
        assert run("health", "--url", core.url, "--token-file", str(token_file), *options) == 6


def serve_by_environment(**environ: str) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NEO_", "MCP_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "nl_cutover", "mc", "serve"],
        env=kept | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_serve_takes_the_environment_of_the_real_server(tmp_path: Path, token_file: Path) -> None:
    db = tmp_path / "sqlite" / "memory-core-graph.sqlite"
    with serve_by_environment(
        NEO_TRANSPORT="sse",
        NEO_MCP_LISTEN_HOST="127.0.0.1",
        MCP_HTTP_PORT="0",
        NEO_MEMORY_DB_PATH=str(db),
        NEO_PLANE_ID="plane-of-the-environment",
        NEO_PLANE_DATA_ROOT="/root-of-the-environment",
        NEO_MCP_HEALTHCHECK_TOKEN_FILE=str(token_file),
        NEO_MCP_ALLOWED_HOSTS="mc.example, mc-server",
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().removeprefix("listening on ").strip()
            options = ("--plane", "plane-of-the-environment", "--data-root", "/root-of-the-environment")
            assert run("health", "--url", url, "--token-file", str(token_file), *options) == 0
            told = {host: httpx.post(url, headers={"host": host}).status_code for host in HOSTS}
            assert told == HOSTS
        finally:
            process.terminate()
    assert process.returncode == 0
    assert db.exists()


def test_serve_is_no_stdio_server(tmp_path: Path, token_file: Path) -> None:
    with serve_by_environment(
        NEO_TRANSPORT="stdio",
        NEO_MEMORY_DB_PATH=str(tmp_path / "graph.sqlite"),
        NEO_MCP_HEALTHCHECK_TOKEN_FILE=str(token_file),
    ) as process:
        _, told = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "NEO_TRANSPORT" in told


def test_image_without_the_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    assert run("image", "--engine", "tcp://127.0.0.1:1") == 5
    assert "pip install 'nl-cutover[docker]'" in capsys.readouterr().err


def test_image_without_an_engine_ends_in_5(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    for words, named in (
        ((), "none.sock (DOCKER_HOST)"),
        (("--engine", f"unix://{tmp_path}/x.sock"), "x.sock (--engine)"),
    ):
        assert run("image", *words) == 5
        assert named in capsys.readouterr().err
    assert run("image", "--engine", "none") == 5


def test_what_the_host_sets_for_its_own_memory_core_is_not_meant_for_an_embedded_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"NEO_TRANSPORT": "stdio", "NEO_MCP_LISTEN_HOST": "192.0.2.1", "MCP_HTTP_PORT": "x"}.items():
        monkeypatch.setenv(name, value)
    with embedded_memory_core(tmp_path / "core", tokens="t") as core:
        assert core.url.startswith("http://127.0.0.1:")
