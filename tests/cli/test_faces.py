"""What an operator sees when something is wrong, and that machine output stays machine output."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import SLOT, Operator

VERBS = ("measure", "plan", "migrate", "verify", "cut", "status", "receipt", "mc", "check", "demo")


def nothing_happened(operator: Operator, done, code: int, *words: str) -> None:
    assert done.code == code, done.err
    assert done.json["exit_code"] == code
    for word in words:
        assert word in done.err
    assert "next:" in done.err
    assert not operator.custody.exists()


def admit(operator, *arguments, **environ):
    return operator("migrate", *arguments, "--telemetry", "admit", "--owner", "x", **environ)


def test_a_wrong_token(operator, checkout):
    done = admit(operator, checkout("closed"), **{SLOT: "sentinel-wrong-token"})
    nothing_happened(operator, done, 6, "does not take the token")
    assert "sentinel" not in done.err + done.out


def test_no_token(operator, checkout):
    del operator.environ[SLOT]
    nothing_happened(operator, admit(operator, checkout("closed")), 6, SLOT, "not set")


def test_a_wrong_plane(operator, checkout):
    done = admit(operator, checkout("closed"), "--plane", "neo-somewhere-else")
    nothing_happened(operator, done, 3, "neo-local-canonical", "neo-somewhere-else")


def test_an_unreachable_url(operator, checkout):
    operator.url = "http://127.0.0.1:9/mc/mcp"
    nothing_happened(operator, admit(operator, checkout("closed")), 5, "cannot be reached", "nothing was sent")


def test_a_path_that_is_no_mcp_endpoint(operator, checkout, core):
    operator.url = core.url.replace("/mc/mcp", "/mcp")
    nothing_happened(operator, admit(operator, checkout("closed")), 5, "no MCP endpoint")


def test_a_missing_store(operator, checkout):
    path = checkout("empty", None)
    done = operator("measure", path)
    assert done.code == 3
    assert done.json["checkouts"][0]["state"] == "absent"
    assert done.json["checkouts"][0]["store"] is None
    nothing_happened(operator, admit(operator, path), 4, "no store")
    assert list((path / ".neo-ai-data" / "sqlite").iterdir()) == []


def test_a_dangling_link(operator, checkout, tmp_path):
    path = checkout("dangling", None)
    target = tmp_path / "gone.sqlite"
    (path / ".neo-ai-data/sqlite/memory-core-graph.sqlite").symlink_to(target)
    done = operator("measure", path, checkout("closed"))
    assert done.code == 4
    assert [c["state"] for c in done.json["checkouts"]] == ["unmeasurable", "measured"]
    assert "dangling" in done.json["checkouts"][0]["reason"]
    assert done.json["totals"]["archives"] == 12, "one checkout's trouble does not hide another's rows"
    nothing_happened(operator, admit(operator, path), 4, "dangling")
    assert not target.exists()


def test_a_checkout_that_is_not_there(operator, tmp_path):
    done = operator("measure", tmp_path / "nowhere")
    assert done.code == 4
    assert "does not exist" in done.json["checkouts"][0]["reason"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("measure",), "no checkout is named"),
        (("measure", "--root", "."), "no checkout found"),
        (("migrate", ".", "--telemetry", "discard"), "--telemetry takes"),
        (("migrate", ".", "--replays", "never"), "--replays takes"),
        (("cut", "."), "lands a command"),
        (("measure", "--no-such-option"), "No such option"),
        (("measure", "--config", "missing.toml"), "missing.toml"),
    ],
)
def test_a_command_line_that_cannot_work(operator, arguments, word):
    done = operator(*arguments)
    assert done.code == (4 if "--root" in arguments else 2)
    assert word in done.err
    assert done.json["exit_code"] == done.code


def test_the_configuration_names_checkouts_and_everything_else(operator, checkout, link, core):
    canonical = checkout("closed")
    link("clio", canonical)
    (operator.folder / "nl-cutover.toml").write_text(
        f'url = "{core.url}"\nowner = "neo-operator"\ncheckouts = [{{seat = "one", path = "closed"}}, "clio"]\n'
    )
    report = operator("measure").json
    assert [c["seat"] for c in report["checkouts"]] == ["one", "clio"]
    assert operator("migrate", "--telemetry", "admit").code == 0
    (operator.folder / "nl-cutover.toml").write_text('urll = "x"\n')
    wrong = operator("measure", canonical)
    assert wrong.code == 2
    assert "urll" in wrong.err


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_the_help_names_the_exit_codes(operator, verb):
    done = operator(verb, "--help", json=False)
    assert done.code == 0
    assert "Usage: nl-cutover" in done.out
    top = operator("--help", json=False)
    assert verb in top.out


def test_json_is_json_whatever_the_terminal(operator, checkout):
    path = checkout("closed")
    for verb in (("measure", path), ("plan", path, "--owner", "x"), ("status",)):
        done = operator(*verb, FORCE_COLOR="1", COLUMNS="40", NO_COLOR="1")
        assert done.out.count("\n") == 1
        assert json.loads(done.out)["exit_code" if verb[0] != "plan" else "digest"] is not None


@pytest.mark.parametrize("verb", ["measure", "plan"])
def test_markdown_can_be_pasted(operator, checkout, verb):
    done = operator(verb, checkout("hostile"), checkout("live"), "--format", "markdown", json=False, FORCE_COLOR="1")
    assert len(done.out) < 2000
    assert max(map(len, done.out.splitlines())) <= 80
    assert "\x1b" not in done.out
    assert "│" not in done.out


def test_a_closed_pipe_changes_no_exit_code(operator, checkout):
    path = checkout("live")
    command = f"{sys.executable} -m nl_cutover measure {path} --custody {operator.custody} --format json; echo $? >&2"
    done = subprocess.run(["sh", "-c", f"({command}) | true"], capture_output=True, text=True, env=operator.environ)
    assert done.stderr.strip().splitlines()[-1] == "3"
    assert "Traceback" not in done.stderr


def test_a_dead_server_in_the_middle_is_partial_and_the_same_command_resumes(checkout, tmp_path, serve):
    with serve(tmp_path / "mortal", tokens={"neo-operator": "t-1"}) as core:
        operator = Operator(tmp_path, core.url, "t-1", core.shape)
        path = checkout("live")
        command = [sys.executable, "-m", "nl_cutover", "migrate", str(path), "--owner", "x"]
        command += ["--custody", str(operator.custody), "--url", core.url, "--format", "json", "--workers", "1"]
        command += ["--telemetry", operator.telemetry(188)]
        child = subprocess.Popen(
            command, env=operator.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        ledger = operator.custody / "ledger.sqlite"
        _wait_for_confirmed(ledger, 5)
        core.kill()
        out, err = child.communicate(timeout=60)
        assert child.returncode == 7, err
        first = json.loads(out)
        assert first["archives"]["unknown"] + first["marks"]["unknown"] <= 1
        core.restart()
        again = admit(operator, path)
        report = again.json
        assert report["archives"]["confirmed"] + report["archives"]["unknown"] == 40
        assert report["telemetry"]["admitted"] == 188


def test_interrupted_with_ctrl_c_it_finishes_the_calls_in_hand_and_resumes(operator, checkout):
    path = checkout("live")
    command = [sys.executable, "-m", "nl_cutover", "migrate", str(path), "--owner", "x"]
    command += ["--custody", str(operator.custody), "--url", operator.url, "--format", "json", "--workers", "1"]
    command += ["--telemetry", operator.telemetry(188)]
    child = subprocess.Popen(
        command, env=operator.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    _wait_for_confirmed(operator.custody / "ledger.sqlite", 5)
    os.kill(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    first = json.loads(out)
    assert first["archives"]["unknown"] == 0, (first["odd"], first["stopped"], err)
    assert 5 <= first["archives"]["confirmed"] < 40
    done = admit(operator, path)
    assert done.code == 0
    assert done.json["archives"]["confirmed"] == 40
    assert done.json["marks"]["made"] == 24


def _wait_for_confirmed(ledger, rows: int) -> None:
    import sqlite3

    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            connection = sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)
            try:
                found = connection.execute("SELECT count(*) FROM archives WHERE state = 'confirmed'").fetchone()[0]
            finally:
                connection.close()
            if found >= rows:
                return
        except sqlite3.OperationalError:
            pass
        time.sleep(0.002)
    raise AssertionError("the run never came that far")
