"""A real `chroma run` server as the source, read through Chroma's own client."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .rows import form, graph_of, memory, session, some, write_jsonl

pytestmark = pytest.mark.chroma

FILL = """
import json, sys
import chromadb
from chromadb.config import Settings
client = chromadb.HttpClient("127.0.0.1", int(sys.argv[1]), settings=Settings(anonymized_telemetry=False))
for kind, name in (("session", "neo-agent-sessions"), ("memory", "neo-agent-memory")):
    rows = [row for row in map(json.loads, open(sys.argv[2], encoding="utf-8")) if row["kind"] == kind]
    collection = client.get_or_create_collection(name, embedding_function=None)
    for at in range(0, len(rows), 500):
        page = rows[at:at + 500]
        collection.upsert(ids=[r["id"] for r in page], embeddings=[[0.0, 1.0]] * len(page),
                          metadatas=[r["metadata"] for r in page], documents=["never read"] * len(page))
"""


@pytest.fixture(scope="module")
def chroma(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Chroma server of its own."""
    if importlib.util.find_spec("chromadb") is None:
        pytest.skip("chromadb is not installed: pip install 'nl-cutover[chroma]'")
    folder = tmp_path_factory.mktemp("chroma")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = shutil.which("chroma", path=str(Path(sys.executable).parent))
    assert program is not None
    log = (folder / "log").open("wb")
    command = [program, "run", "--path", str(folder / "data"), "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=os.environ | {"HOME": str(folder)})
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and server.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        else:
            pytest.fail(f"chroma did not start: {(folder / 'log').read_text()[-500:]}")
        yield port
    finally:
        server.terminate()
        server.wait(20)
        log.close()


def run(*words: object) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "nl_cutover", "graph", *map(str, words), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    return done.returncode, done.stdout, done.stderr


def test_what_comes_from_chroma_is_what_comes_from_json_lines(tmp_path: Path, chroma: int) -> None:
    rows = [*some(30, 50, seed=3), session("s-ü", userId="@ада"), memory("late", "unsummarized")]  # more than one page
    jsonl = write_jsonl(tmp_path / "rows.jsonl", rows)
    subprocess.run([sys.executable, "-c", FILL, str(chroma), str(jsonl)], check=True, timeout=90)
    ours, theirs = graph_of(tmp_path / "jsonl.sqlite"), graph_of(tmp_path / "chroma.sqlite")
    said = json.loads(run("ingest", "--db", ours, "--jsonl", jsonl)[1])
    code, out, complaint = run("ingest", "--db", theirs, "--chroma", f"http://127.0.0.1:{chroma}")
    assert (code, complaint) == (0, "")
    assert json.loads(out) | {"db": ""} == said | {"db": ""}
    assert (said["memories_written"], said["waiting"]) == (1500, 1)
    assert form(theirs) == form(ours)
    assert (
        json.loads(run("backfill", "--db", theirs, "--chroma", f"http://127.0.0.1:{chroma}")[1])["memories_written"]
        == 1
    )
    assert run("check", "--db", theirs)[0] == 0


def test_a_collection_that_is_not_there_is_no_empty_source(tmp_path: Path, chroma: int) -> None:
    graph = graph_of(tmp_path / "graph.sqlite")
    words = ("ingest", "--db", graph, "--chroma", f"http://127.0.0.1:{chroma}", "--sessions", "no-such-collection")
    code, _, complaint = run(*words)
    assert code == 5
    assert "no-such-collection" in complaint


def test_a_server_that_is_not_there_is_unreachable(tmp_path: Path, chroma: int) -> None:
    graph = graph_of(tmp_path / "graph.sqlite")
    assert run("ingest", "--db", graph, "--chroma", "http://127.0.0.1:9")[0] == 5
    assert run("ingest", "--db", graph, "--chroma", "nowhere")[0] == 2
