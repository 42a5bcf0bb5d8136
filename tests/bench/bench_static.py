"""The static check against ast-grep looking for one pattern in the same files, both on one core.

    python tests/bench/bench_static.py [TREE]

Without TREE the npm package neo.mjs@13.1.0. Prints one line: files a second, both times (CPU seconds), their ratio.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from nl_cutover.denial.rules import load_rules  # noqa: E402
from nl_cutover.denial.static import check_static  # noqa: E402
from tests.node import node_modules  # noqa: E402

RULE = """{id: driver, language: js, rule: {any: [
  {pattern: 'import($A)'}, {pattern: 'require($A)'}, {kind: import_statement}, {kind: export_statement, has: {kind: string}}]}}"""


def one_core() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def main() -> None:
    tree = Path(sys.argv[1]) if len(sys.argv) > 1 else node_modules("neo.mjs@13.1.0") / "node_modules" / "neo.mjs"
    one_core()
    rules = load_rules()
    check_static(tree, rules)  # files into the page cache, grammars into memory
    began, cpu = time.perf_counter(), time.process_time()
    result = check_static(tree, rules)
    wall, ours = time.perf_counter() - began, time.process_time() - cpu
    files = result.report.population.found
    tool = Path(sys.executable).with_name("ast-grep")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile() as out:
        command = [tool, "scan", "--inline-rules", RULE, "--threads", "1", "--no-ignore", "hidden", tree]
        subprocess.run(command, stdout=out, stderr=out, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    theirs = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"static: {files} files, {files / ours:.0f} files/s of CPU ({files / wall:.0f} of wall), "
        f"{ours:.2f} s against ast-grep {theirs:.2f} s, ratio {ours / theirs:.2f}, "
        f"load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
