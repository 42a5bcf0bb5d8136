"""A sentinel token and sentinel args are in no output, log, traceback, ledger or receipt, at any verbosity."""

import sqlite3
import subprocess
import sys

import pytest

from nl_cutover.output.redaction import redact
from tests.conftest import SLOT, Operator

TOKEN = "sentinel-token-e5f1"
ARGS = "SENTINEL-ARGS-77"


@pytest.fixture
def planted(checkout):
    path = checkout("closed")
    with sqlite3.connect(path / ".neo-ai-data/sqlite/memory-core-graph.sqlite") as store:
        store.execute("UPDATE nl_action_log SET args = ?, result = ?", (f'{{"text":"{ARGS}"}}', f'"{ARGS}"'))
        store.execute("UPDATE nl_transaction_archive SET ops = ?", (f'[{{"text":"{ARGS}"}}]',))
    store.close()
    return path


def everything(operator: Operator) -> bytes:
    return b"".join(p.read_bytes() for p in sorted(operator.custody.rglob("*")) if p.is_file())


def test_nothing_that_is_printed_or_kept_holds_them(tmp_path, planted, serve):
    with serve(tmp_path / "core", tokens={"neo-operator": TOKEN}) as core:
        operator = Operator(tmp_path, core.url, TOKEN, core.shape)
        said = ""
        for verb in (
            ("measure", planted),
            ("plan", planted, "--owner", "x", "--telemetry", "admit"),
            ("migrate", planted, "--owner", "x", "--telemetry", "admit"),
            ("verify", planted),
            ("cut", planted, "--", "true"),
            ("status",),
            ("receipt", "show", "1"),
        ):
            for json in (True, False):
                done = operator(*verb, json=json, NL_CUTOVER_DEBUG="1")
                said += done.out + done.err
        assert "confirmed" in said, "the control: it ran"
        for secret in (TOKEN, ARGS):
            assert secret not in said
            assert secret.encode() not in everything(operator)
        assert ARGS.encode() in core.db.read_bytes() + core.db.with_name(core.db.name + "-wal").read_bytes(), (
            "the control: the archive's ops did arrive"
        )
        assert TOKEN not in (core.directory / "memory-core.log").read_text()


def test_a_fault_shows_where_and_never_what(tmp_path, planted):
    code = (
        "import sys; from nl_cutover.ingress import preflight as p; from nl_cutover.migration import job\n"
        "def broken(session, **k):\n    token = session.endpoint.token.reveal(); raise ValueError('bad ' + token)\n"
        "job.preflight = broken\n"
        "from nl_cutover.cli import main; main(sys.argv[1:])"
    )
    operator = Operator(tmp_path, None, TOKEN)
    for debug in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", code, "migrate", str(planted), "--owner", "x", "--custody", str(operator.custody)],
            env=operator.environ | {"NL_CUTOVER_DEBUG": debug},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert "ValueError" in done.stderr
        assert TOKEN not in done.stdout + done.stderr
        assert ("broken" in done.stderr) is (debug == "1")


def test_what_the_landing_command_prints_is_redacted_in_the_receipt(operator, checkout):
    path = checkout("closed")
    assert operator("migrate", path, "--owner", "x", "--telemetry", "admit").code == 0
    done = operator("cut", path, "--", "sh", "-c", f"echo Authorization: Bearer {TOKEN}")
    assert done.code == 0
    assert "[redacted]" in done.json["command"]["output_tail"]
    assert TOKEN.encode() not in everything(operator)
    assert TOKEN not in done.out


def test_redaction_takes_bearer_values_url_credentials_and_given_secrets():
    text = f"Bearer {TOKEN} http://user:{TOKEN}@h/x and {TOKEN}"
    assert TOKEN not in redact(text, [TOKEN])
    assert redact(f"docker -H ssh://ops:{TOKEN}@h ps") == "docker -H ssh://ops:[redacted]@h ps"
    assert redact("unix:///run/me:1@home ssh://ops@h") == "unix:///run/me:1@home ssh://ops@h"
    assert redact("a plain sentence") == "a plain sentence"


def test_the_token_is_no_argument_of_any_verb(operator):
    for verb in ("measure", "plan", "migrate", "settle", "verify", "cut"):
        text = operator(verb, "--help", json=False).out
        assert "--token " not in text
    assert SLOT in operator("migrate", "--help", json=False).out
