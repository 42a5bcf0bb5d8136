"""The plane's reports in every format: a block that a channel takes whole, and JSON that is JSON."""

import json

import pytest

from nl_cutover.migration.evidence import StoredArchive
from nl_cutover.migration.plane import BackupReport, EvidenceReport, StatusReport
from nl_cutover.output.documents import as_markdown, as_table
from nl_cutover.output.json import as_json
from nl_cutover.output.plane import backup_document, evidence_document, status_document
from nl_cutover.plane.backup import Backup
from nl_cutover.plane.engine import EngineFacts
from nl_cutover.plane.evidence import Facts
from nl_cutover.plane.locate import pin_of
from nl_cutover.plane.mounts import health_of, mounts_of

from .test_inspection import inspection, mount

FACTS = inspection(*(mount("volume", f"volume-{n}", f"/data/{n}/" + "deep/" * 9) for n in range(40)), restarts=3)
STATUS = StatusReport(
    verdict="refused",
    exit_code=3,
    at="2026-08-24T10:00:00.000Z",
    engine=EngineFacts("ssh://ops@plane.example", "DOCKER_HOST", "Engine 27", "1.46", local=False, podman=False),
    container=pin_of(FACTS),
    health=health_of(FACTS),
    mounts=mounts_of(FACTS),
    graph=Facts({"nl-transaction-archive": 12, "Memory": 3}, 57_344),
    troubles=["the graph is on the container's own layer: it is gone with the container"],
    next_steps=["put the graph on a named volume before anything is migrated"],
)
NOTHING = StatusReport(
    verdict="unreachable",
    exit_code=5,
    at="2026-08-24T10:00:00.000Z",
    troubles=["no engine on this machine"],
    next_steps=[],
)
EVIDENCE = EvidenceReport(
    container="container mc (4f4f4f4f4f4f)",
    reader="node 20.20.2, sqlite 3.53.2",
    as_of="2026-08-24T10:00:00.000Z",
    clock_offset_s=-31.0,
    archives=[StoredArchive(f"nl-transaction-archive:{n}", f"12e{n}", "ab" * 32, 0.0, n) for n in range(50)],
    actions={"cd" * 32: 2},
)
BACKUP = BackupReport(
    at="2026-08-24T10:00:00.000Z",
    container="container mc (4f4f4f4f4f4f)",
    backup=Backup("/custody/backups/" + "x" * 90 + ".sqlite", "ab" * 32, 57_344, {"Memory": 1}, "python 3.11.2"),
)


@pytest.mark.parametrize(
    ("report", "document"),
    [
        (STATUS, status_document),
        (NOTHING, status_document),
        (EVIDENCE, evidence_document),
        (BACKUP, backup_document),
    ],
)
def test_every_format(report, document):
    shown = document(report)
    markdown = as_markdown(shown)
    assert len(markdown) < 2_000
    assert max(map(len, markdown.splitlines())) <= 80
    assert report.verdict.upper() in as_table(shown)
    assert json.loads(as_json(report))["exit_code"] == report.exit_code
    for trouble in getattr(report, "troubles", []):
        assert trouble[:40] in as_table(shown)
    assert "12e5" in as_table(shown) or report is not EVIDENCE, "an id is never a number"
