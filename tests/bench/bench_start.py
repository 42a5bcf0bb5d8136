"""How long `--help` and `measure` of five checkouts take, as a ratio to importing typer and sqlite3.

usage: python tests/bench/bench_start.py
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from nl_cutover.testing import plant_store

ROUNDS = 15


def seconds(*command: str) -> float:
    """The median wall time of a command, in seconds."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkouts = [folder / seat for seat in ("antigravity", "claude", "clio", "codex", "opus-vega")]
        store = checkouts[0] / ".neo-ai-data" / "sqlite"
        plant_store(store / "memory-core-graph.sqlite", archives=40, actions=188)
        for checkout in checkouts[1:]:
            (checkout / ".neo-ai-data").mkdir(parents=True)
            (checkout / ".neo-ai-data" / "sqlite").symlink_to(store)
        tool = [sys.executable, "-m", "nl_cutover"]
        base = seconds(sys.executable, "-c", "import typer, sqlite3")
        print(f"{'import typer, sqlite3':24} {base:.3f} s  1.00")
        measure = [*tool, "measure", *map(str, checkouts), "--custody", str(folder / "none")]
        for title, command, limit in (("--help", [*tool, "--help"], 0.3), ("measure, 5 checkouts", measure, 0.5)):
            took = seconds(*command)
            print(f"{title:24} {took:.3f} s  {took / base:.2f}  (limit {limit} s)")


if __name__ == "__main__":
    main()
