"""The npm package of Neo.mjs: exactly the places that load the driver, found by hand, and nothing that only names it."""

import pytest

from ..node import node_modules
from .conftest import check

pytestmark = pytest.mark.node

PACKAGE = "neo.mjs@13.1.0"
BY_HAND = [
    "ai/daemons/wake/queries.mjs:2",
    "ai/examples/db-restore-graph.mjs:2",
    "ai/examples/inspectGraph.mjs:3",
    "ai/graph/storage/SQLite.mjs:49",
    "ai/mcp/server/memory-core/helpers/TurnPresenceHookWriter.mjs:95",
    "ai/scripts/diagnostics/analyzeNlTelemetry.mjs:11",
    "ai/scripts/diagnostics/bootstrapCodexSandbox.mjs:25",
    "ai/scripts/diagnostics/conceptNeighborhoodProbe.mjs:18",
    "ai/scripts/maintenance/auditConceptSpineAliases.mjs:424",
    "ai/scripts/maintenance/compactGraphLog.mjs:6",
    "ai/scripts/maintenance/exportMemoryQuarantine.mjs:279",
    "ai/scripts/maintenance/repairUnprojectedSessions.mjs:286",
    "ai/scripts/maintenance/restore.mjs:751",
    "ai/scripts/migrations/migrateWakeSubscriptions.mjs:438",
    "ai/scripts/migrations/normalizeGraphIdentities.mjs:226",
    "ai/scripts/migrations/renameAgentIdentities.mjs:614",
    "ai/services/knowledge-base/KBRecorderService.mjs:67",
    "ai/services/memory-core/MemoryCoreRecorderService.mjs:71",
    "ai/services/neural-link/RecorderService.mjs:51",
    "test/playwright/integration/ai/daemons/workspaceSafety.spec.mjs:33",
    "test/playwright/unit/ai/daemons/wake/daemon.spec.mjs:4",
    "test/playwright/unit/ai/daemons/wake/queries.spec.mjs:2",
    "test/playwright/unit/ai/graph/Database.spec.mjs:21",
    "test/playwright/unit/ai/mcp/server/memory-core/Server.spec.mjs:400",
    "test/playwright/unit/ai/mcp/server/memory-core/SessionService-worker.mjs:1",
    "test/playwright/unit/ai/mcp/server/memory-core/SessionService.spec.mjs:2",
    "test/playwright/unit/ai/scripts/diagnostics/analyzeNlTelemetry.spec.mjs:22",
    "test/playwright/unit/ai/scripts/maintenance/compactGraphLog.spec.mjs:13",
    "test/playwright/unit/ai/scripts/maintenance/exportMemoryQuarantine.spec.mjs:22",
    "test/playwright/unit/ai/scripts/maintenance/purgeNoContentGraphMemories.spec.mjs:12",
    "test/playwright/unit/ai/scripts/maintenance/restore-filters.spec.mjs:294",
    "test/playwright/unit/ai/scripts/migrations/migrateWakeSubscriptions.spec.mjs:17",
    "test/playwright/unit/ai/scripts/migrations/renameAgentIdentities.spec.mjs:17",
    "test/playwright/unit/hooks/codexContextHook.spec.mjs:2",
]


def test_exactly_the_files_that_import_the_driver():
    tree = node_modules(PACKAGE) / "node_modules" / "neo.mjs"
    code, report = check("static", "--tree", tree, cwd=tree)
    assert (code, report["verdict"]) == (3, "findings")
    assert sorted(
        f"{f['path']}:{f['line']}" for f in report["findings"] if f["specifier"] == "better-sqlite3"
    ) == sorted(BY_HAND)
    # No other driver is loaded anywhere, and no text that only names one counts.
    assert {f["form"] for f in report["findings"] if "sqlite3" in f["specifier"]} == {"static import", "dynamic import"}
    assert report["population"]["found"] == report["population"]["parsed"] == 2576
    assert [p for p in report["population"]["skipped"] if not p["path"].endswith("node_modules/")] == []


def test_what_the_recorder_drags_into_the_server():
    tree = node_modules(PACKAGE) / "node_modules" / "neo.mjs"
    code, report = check("static", "--tree", tree, "--surface", "ai/mcp/server/neural-link/**", cwd=tree)
    chains = {f["path"]: f["chain"] for f in report["findings"] if f["chain"] and f["path"].endswith("mcp-server.mjs")}
    assert code == 3
    assert chains["ai/mcp/server/neural-link/mcp-server.mjs"][-2:] == [
        "ai/services/neural-link/RecorderService.mjs",
        "better-sqlite3",
    ]
