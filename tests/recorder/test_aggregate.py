"""The local aggregate of a genesis probe: counts that are right, in a root that goes."""

import json
import os
import subprocess
import sys
import threading

import httpx
import pytest

from nl_cutover.recorder import Aggregate, Counted, Telemetry, disposable_aggregate, read_aggregate
from nl_cutover.recorder.aggregate import NAME, OTHER, TOOLS
from tests.recorder.host import ENTRY, Admitting, over


def entry(tool, success=True, duration=1.5):
    return {**ENTRY, "tool": tool, "success": success, "duration_ms": duration}


def test_the_probe_counts_what_was_done_and_its_root_is_gone_afterwards():
    """Memory Core is away: the counts need no remote read."""

    def refuse(request):
        raise httpx.ConnectError("refused")

    with disposable_aggregate() as aggregate:
        telemetry = Telemetry(over(httpx.MockTransport(refuse)), enabled=True, aggregate=aggregate)
        for _ in range(3):
            telemetry.record(entry("get_component_tree"))
        telemetry.record(entry("click", success=False, duration=None))
        telemetry.record(entry("click", success=1, duration=2))
        telemetry.flush(0.2)
        root = aggregate.path.parent
        assert read_aggregate(aggregate.path) == [
            Counted("click", 2, 1, 2.0),
            Counted("get_component_tree", 3, 3, 4.5),
        ]
        assert json.loads(aggregate.path.read_bytes())[0] == {
            "tool": "click",
            "count": 2,
            "successCount": 1,
            "durationMs": 2.0,
        }
        assert [p.name for p in root.iterdir()] == [NAME], "no table, no rest of a write"
    assert not root.exists()
    telemetry.record(entry("late"))
    telemetry.close(0.5)
    assert not root.exists(), "what is recorded afterwards does not bring it back"


def test_the_root_goes_after_a_failure_too():
    with pytest.raises(RuntimeError), disposable_aggregate() as aggregate:
        aggregate.add("t", True, 1)
        assert aggregate.write()
        raise RuntimeError
    assert not aggregate.path.parent.exists()


def test_it_counts_what_the_queue_dropped_too(tmp_path):
    answer = threading.Event()
    aggregate = Aggregate(tmp_path)
    telemetry = Telemetry(over(Admitting(hold=answer)), enabled=True, aggregate=aggregate, capacity=10)
    for _ in range(500):
        telemetry.record(entry("t"))
    assert telemetry.stats().dropped > 0
    telemetry.flush(0.1)
    assert read_aggregate(aggregate.path)[0].count == 500, "while Memory Core hangs"
    answer.set()
    telemetry.close(10)


def test_while_the_gate_is_off_nothing_is_counted(tmp_path):
    telemetry = Telemetry(over(Admitting()), enabled=False, aggregate=Aggregate(tmp_path))
    telemetry.record(ENTRY)
    telemetry.close()
    assert list(tmp_path.iterdir()) == []


def test_every_count_of_every_thread_is_in_it(tmp_path):
    aggregate = Aggregate(tmp_path)

    def count():
        for number in range(2_000):
            aggregate.add(f"tool-{number % 3}", number % 2 == 0, 1)
            if number % 100 == 0:
                aggregate.write()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert aggregate.write()
    counted = read_aggregate(aggregate.path)
    assert sum(c.count for c in counted) == 8_000
    assert sum(c.success_count for c in counted) == 4_000
    assert sum(c.duration_ms for c in counted) == 8_000


def test_a_reader_never_sees_half_a_file(tmp_path):
    """Replaced as a whole: while a writer works, every read is a complete document."""
    code = (
        "import sys; from pathlib import Path; from nl_cutover.recorder import Aggregate\n"
        "a = Aggregate(Path(sys.argv[1]))\n"
        "for n in range(1500):\n a.add('tool-%d' % (n % 300), True, 1)\n a.write()\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=os.environ)
    reads = 0
    while writer.poll() is None:
        try:
            counts = sum(c.count for c in read_aggregate(tmp_path / NAME))
        except FileNotFoundError:
            continue
        assert counts >= reads
        reads = counts
    assert writer.returncode == 0
    assert 0 < reads <= 1500


def test_names_without_end_are_bounded(tmp_path):
    aggregate = Aggregate(tmp_path)
    for number in range(TOOLS + 50):
        aggregate.add(f"tool-{number:05}", True, 1)
    assert aggregate.write()
    counted = read_aggregate(aggregate.path)
    assert len(counted) == TOOLS + 1
    assert {c.tool: c.count for c in counted}[OTHER] == 50


def test_a_name_that_is_no_text_for_a_file_spoils_no_other_count(tmp_path):
    aggregate = Aggregate(tmp_path)
    aggregate.add("half \ud83d", True, 1)
    aggregate.add("half \ud83d", True, 1)
    aggregate.add("click", True, 1)
    assert aggregate.write()
    click, half = read_aggregate(aggregate.path)
    assert (click.tool, click.count, half.tool, half.count) == ("click", 1, "half ?", 2)
