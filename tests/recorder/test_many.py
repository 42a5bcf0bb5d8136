"""A great many records in bounded memory: each is admitted, refused or dropped, and counted."""

import os
import subprocess
import sys

import pytest

RECORDS = 1_000_000 if os.environ.get("NL_CUTOVER_SEEDS") == "full" else 20_000

CODE = """
import os, resource, sys
from nl_cutover.recorder import Telemetry, connector
telemetry = Telemetry(connector(os.environ, url=os.environ["URL"]), enabled=True)
entry = {"tool": "many", "session_id": "s" * 40, "timestamp": 1, "success": True, "app_name": "a"}
def record(number):
    args = '{"componentIds":["%d","%s"]}' % (number, "x" * 500)
    telemetry.record({**entry, "sequence_id": "agent_%d" % (number // 7), "args": args})
for number in range(5_000):
    record(number)
telemetry.flush(60)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for number in range(int(os.environ["RECORDS"])):
    record(number)
    if number % 1_000 == 0:
        s = telemetry.stats()
        assert s.recorded == s.admitted + s.refused + s.dropped + s.failed + s.pending == 5_000 + number + 1
telemetry.flush(120)
s = telemetry.close()
unit = 1 if sys.platform == "darwin" else 1024
print(s.recorded, s.admitted + s.refused + s.dropped, s.pending, s.failed, s.admitted)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit)
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_records_in_bounded_memory(core, admitted):
    environ = os.environ | {"URL": core.url, "NEO_MCP_REMOTE_TOKEN": core.token, "RECORDS": str(RECORDS)}
    done = subprocess.run([sys.executable, "-c", CODE], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counts, grown = done.stdout.splitlines()
    recorded, known, pending, failed, taken = map(int, counts.split())
    assert recorded == known == RECORDS + 5_000
    assert (pending, failed) == (0, 0)
    assert len(admitted("many")) == taken > 0
    assert int(grown) < 64 << 20, "beyond what a full queue holds"
