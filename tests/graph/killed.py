"""Ingest, and die by SIGKILL before a statement: `python -m tests.graph.killed GRAPH JSONL STATEMENT`."""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from pathlib import Path

from nl_cutover.memory_core.graph import open_migrated
from nl_cutover.memory_core.ingestion import ingest, read_source
from nl_cutover.memory_core.sources import read_jsonl

graph, jsonl, last = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
numbers = count(1)


def die(_: str) -> None:
    if next(numbers) == last:
        os.kill(os.getpid(), signal.SIGKILL)


with open_migrated(graph) as connection:
    connection.set_trace_callback(die)
    for _ in ingest(connection, read_source(read_jsonl(jsonl))):
        pass
sys.stdout.write(f"{next(numbers) - 1}\n")  # statements of a run that was not killed
