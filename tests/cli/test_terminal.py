"""What reaches a terminal, a pipe or a channel: JSON that parses, blocks that fit, progress on stderr, completion."""

import io
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from nl_cutover.cli import app
from nl_cutover.output.documents import Document, Table, as_markdown
from nl_cutover.output.progress import Heartbeat
from tests.conftest import Operator
from tests.papers.conftest import plant, whole_road  # noqa: F401 - a fixture

_COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3\d|9\d)m")


def walk(command, words=()):
    children = getattr(command, "commands", None)
    if children is None:
        return [words] if any("--format" in p.opts for p in command.params) else []
    return [found for name, child in children.items() for found in walk(child, (*words, name))]


VERBS = walk(typer.main.get_command(app))


def arguments(verb: tuple[str, ...], road: Operator, scratch) -> tuple[object, ...]:
    """What a verb needs to have something to say; without it, it says what is missing, and that must parse too."""
    checkout = road.folder / "codex"
    files = sorted((road.custody / "receipts").glob("*.json"))
    owned = ("--owner", "neo-operator", "--telemetry", "admit")
    return {
        ("measure",): (checkout, scratch / "nowhere"),
        ("plan",): (checkout, *owned),
        ("migrate",): (checkout, *owned),
        ("settle",): ("--row", "x=resend"),
        ("verify",): (checkout,),
        ("seal",): (plant(scratch / "one", archives=1, seed=904),),
        ("unseal",): (plant(scratch / "two", archives=1, seed=904),),
        ("copy",): (scratch / "rehearsal", checkout, "--url", "http://127.0.0.1:9/mc/mcp"),
        ("cut",): (checkout, "--", "true"),
        ("receipt", "show"): (3,),
        ("receipt", "verify"): files,
        ("receipt", "sign"): (files[0], "--key", "nowhere"),
        ("receipt", "merge"): (*files, "--expect-host", "x" * 300),
        ("mc", "conformance"): ("--url", road.url),
    }.get(verb, ())


@pytest.fixture
def road(whole_road, tmp_path) -> Operator:  # noqa: F811
    """The road with a copy of its custody: what one verb leaves does not disturb the next."""
    copy = Operator(whole_road.folder, whole_road.url, None)
    copy.environ = whole_road.environ | {"FORCE_COLOR": "1", "COLUMNS": "40"}
    copy.custody = shutil.copytree(whole_road.custody, tmp_path / "custody")
    return copy


@pytest.mark.parametrize("verb", VERBS, ids="-".join)
def test_every_verb_gives_json_that_parses(road, tmp_path, verb):
    done = road(*verb, *arguments(verb, road, tmp_path))
    document = json.loads(done.out)
    assert done.out.count("\n") == 1
    assert document["schema"].startswith("nl-cutover/")
    if "exit_code" in document:
        assert document["exit_code"] == done.code
    assert "\x1b" not in done.out + done.err


@pytest.mark.parametrize("verb", VERBS, ids="-".join)
def test_every_verb_gives_markdown_that_can_be_pasted(road, tmp_path, verb):
    words = arguments(verb, road, tmp_path)
    at = words.index("--") if "--" in words else len(words)
    done = road(*verb, *words[:at], "--format", "markdown", *words[at:], json=False)
    assert done.out or done.err, "something is said"
    for block in re.split(r"(?=^```)(?<=\n)\n?", done.out, flags=re.MULTILINE):
        assert len(block) < 2000
        assert all(len(line) <= 80 for line in block.splitlines())
    assert "\x1b" not in done.out


_texts = st.text(st.characters(codec="utf-8"), max_size=600)


@given(
    facts=st.lists(st.tuples(st.just("fact"), _texts), max_size=40),
    rows=st.lists(_texts, max_size=40),
    notes=st.lists(_texts, max_size=40),
    steps=st.lists(_texts, max_size=40),
)
def test_a_block_fits_whatever_is_in_it(facts, rows, notes, steps):
    table = Table("t", ["a", "b"], [[row, row] for row in rows])
    block = as_markdown(Document("nl-cutover x", "refused", 3, "meaning", facts, [table], notes, steps))
    assert len(block) < 2000
    assert all(len(line) <= 80 for line in block.splitlines())


# progress ------------------------------------------------------------------------------------------------------------


def wait_for(true) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_heartbeat_beats_when_nothing_advances():
    """A server that does not answer is when an operator wants to read that the run still waits."""
    stream = io.StringIO()
    with Heartbeat(stream, every=0.02) as beat:
        beat.stage("archives", 40)
        wait_for(lambda: "archives: 0 of 40, 0 s so far" in stream.getvalue())
        beat.advance(10)
        wait_for(lambda: "archives: 10 of 40, " in stream.getvalue())
        beat.stage("measure", 0)
        wait_for(lambda: "measure: 0 s so far" in stream.getvalue())
    assert re.search(r"archives: 10 of 40, \d+/s, about \d+ s left\n", stream.getvalue())
    said = stream.getvalue()
    time.sleep(0.1)
    assert stream.getvalue() == said, "and is silent afterwards"


def test_a_heartbeat_is_at_most_10_s_apart_and_no_line_is_too_many():
    """By a clock that the test turns: the beat comes 10 s after the line before it, whichever that was."""
    now = [0.0]
    stream = io.StringIO()
    beat = Heartbeat(stream, monotonic=lambda: now[0], every=10)
    beat.stage("archives", 100)
    now[0] = 10.0
    beat.advance(50)
    assert beat._state() == "archives: 50 of 100, 5/s, about 10 s left"
    beat.advance(50)
    assert stream.getvalue() == "archives: 100 rows\narchives: 100 of 100 done in 10.0 s\n"


def test_a_heartbeat_survives_a_closed_stream():
    stream = io.StringIO()
    stream.close()
    with Heartbeat(stream, every=0.01) as beat:
        beat.stage("archives", 2)
        time.sleep(0.05)
        beat.advance(2)


def on_a_terminal(operator: Operator, *words: object, columns: int = 100, **environ: str) -> tuple[int, str, str]:
    """Exit code, stdout (a pipe) and what the terminal got on stderr."""
    import fcntl
    import struct
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    variables = {k: v for k, v in operator.environ.items() if k not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    command = [sys.executable, "-m", "nl_cutover", *map(str, words), "--custody", str(operator.custody)]
    child = subprocess.Popen(
        command, env=variables | {"TERM": "xterm-256color"} | environ, stdout=subprocess.PIPE, stderr=slave, text=True
    )
    os.close(slave)
    seen = b""
    while True:
        ready, _, _ = select.select([master], [], [], 60)
        assert ready, "the terminal stays silent"
        try:
            piece = os.read(master, 1 << 16)
        except OSError:  # Linux says EIO when the last writer is gone
            break
        if not piece:
            break
        seen += piece
    os.close(master)
    out, _ = child.communicate(timeout=60)
    return child.returncode, out, seen.decode("utf-8", "replace")


@pytest.fixture
def migrate(operator, checkout):
    words = (
        "migrate",
        checkout("closed"),
        "--owner",
        "x",
        "--telemetry",
        "admit",
        "--url",
        operator.url,
        "--format",
        "json",
    )
    return lambda **environ: on_a_terminal(operator, *words, **environ)


def test_on_a_terminal_there_is_a_bar_with_rate_and_time_and_stdout_stays_json(migrate):
    code, out, seen = migrate()
    assert code == 0
    assert json.loads(out)["exit_code"] == 0
    assert "12/12" in seen
    assert re.search(r"\d/s", seen)
    assert re.search(r"\d:\d\d:\d\d", seen), "time left"
    assert _COLOUR.search(seen)


def test_no_color_is_heeded(migrate):
    code, _, seen = migrate(NO_COLOR="1")
    assert code == 0
    assert "12/12" in seen
    assert not _COLOUR.search(seen)


def test_a_narrow_terminal_gets_narrow_lines(migrate):
    _, _, seen = migrate(COLUMNS="40")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    assert max(len(line) for line in re.split(r"[\r\n]+", plain)) <= 40


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"TERM": "dumb", "FORCE_COLOR": "1"}])
def test_a_dumb_terminal_gets_plain_lines(migrate, environ):
    code, out, seen = migrate(**environ)
    assert code == json.loads(out)["exit_code"] == 0
    assert "archives: 12 of 12 done" in seen
    assert "\x1b" not in seen


@pytest.mark.parametrize("closing", [">&-", "2>&-", ">&- 2>&-", "| true", ">/dev/full"])
def test_a_stream_that_is_gone_changes_no_exit_code(operator, checkout, closing):
    if closing == ">/dev/full" and not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    path = checkout("closed")
    command = f"set -o pipefail; {sys.executable} -m nl_cutover measure {path} --custody {operator.custody} {closing}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=operator.environ, check=False)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr


# completion ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("nl-cutover rece", ["receipt"]),
        ("nl-cutover receipt ", ["show", "verify", "sign", "merge"]),
        ("nl-cutover measure --expect", ["--expect-checkouts"]),
        ("nl-cutover report --format ", ["markdown", "html", "json"]),
    ],
)
def test_bash_completes(tmp_path, typed, offered):
    """The script that `--show-completion` prints, in the shell that it is for."""
    tool = tmp_path / "nl-cutover"
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nl_cutover "$@"\n')
    tool.chmod(0o755)
    words = typed.split(" ")
    array = " ".join(f"'{word}'" for word in words)
    script = (
        'eval "$(nl-cutover --show-completion)"\n'
        f"COMP_WORDS=({array})\nCOMP_CWORD={len(words) - 1}\n"
        '_nl_cutover_completion nl-cutover\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    environ = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "SHELL": shutil.which("bash")}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environ, check=False)
    assert done.stdout.split() == offered, done.stderr
