"""A planted store, a custody, and `migrate` over them through a proxy."""

import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nl_cutover.contract.rows import ACTIONS, ARCHIVES, COLUMNS
from nl_cutover.errors import SurfaceError
from nl_cutover.ingress.endpoint import Endpoint, Token
from nl_cutover.ingress.session import Session
from nl_cutover.migration.job import migrate
from nl_cutover.migration.policy import Policy, Telemetry
from nl_cutover.migration.progress import Silent
from nl_cutover.migration.report import RunReport
from nl_cutover.stores.checkouts import discover
from nl_cutover.stores.measurement import measure
from nl_cutover.testing import EmbeddedMemoryCore, plant_store
from tests.conftest import FIRST, STRIPPED, RefusedByName
from tests.exactly_once.fault_proxy import FaultProxy
from tests.exactly_once.graph import Graph

CALL_TIMEOUT_S = 4.0  # far beyond what an answer takes on a loaded machine: only silence meets it
WORKERS = 4


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Migration:
    """A planted store, a custody, and what a run makes of them."""

    def __init__(self, folder: Path, core: EmbeddedMemoryCore, *, archives: int, actions: int, seed: int) -> None:
        self._folder, self._core = folder, core
        self.custody = folder / "custody"
        self.graph = Graph(core.db)
        store = folder / "checkout" / ".neo-ai-data" / "sqlite" / "memory-core-graph.sqlite"
        plant_store(store, archives=archives, actions=actions, seed=seed)
        connection = sqlite3.connect(store)
        # Memory Core deletes old telemetry; these rows must outlive the test.
        connection.execute(f"UPDATE {ACTIONS} SET timestamp = ? - rowid", (now_ms(),))
        connection.commit()
        self.archives = self._rows(connection, ARCHIVES)
        self.actions = self._rows(connection, ACTIONS)
        connection.close()

    def run(self, proxy: FaultProxy, *, call_timeout: float = CALL_TIMEOUT_S, **options: Any) -> RunReport:
        """One `migrate` through the proxy; `options` are its own."""
        checkouts = discover([self._folder / "checkout"], environ={}, home=self._folder)
        target = Endpoint(proxy.url, Token(self._core.token), call_timeout=call_timeout)
        given = {
            "custody": self.custody,
            "new_session": lambda: Session(target),
            "expected_plane": self._core.plane_id,
            "expected_root": None,
            "acknowledged": None,
            "clock": now_ms,
            "progress": Silent(),
            "workers": WORKERS,
        }
        report = measure(checkouts, clock=lambda: datetime.now(UTC), environ={})
        try:
            return migrate(report, Policy(Telemetry.parse("admit"), owner="neo-operator"), **(given | options))
        except SurfaceError as refused:
            if self._core.shape != FIRST or STRIPPED not in refused.message or self.custody.exists():
                raise
            raise RefusedByName from refused

    def ledger(self) -> tuple[dict[str, dict], dict[str, str]]:
        """(archives by key, state of each action by key), as the ledger has them."""
        connection = sqlite3.connect(self.custody / "ledger.sqlite")
        connection.row_factory = sqlite3.Row
        archives = [dict(row) for row in connection.execute("SELECT * FROM archives")]
        actions = connection.execute("SELECT key, state FROM actions").fetchall()
        connection.close()
        assert len({row["key"] for row in archives}) == len(archives)
        return {row["key"]: row for row in archives}, dict(actions)

    @staticmethod
    def _rows(connection: sqlite3.Connection, table: str) -> dict[str, dict]:
        rows = connection.execute(f"SELECT * FROM {table}").fetchall()
        return {row[0]: dict(zip(COLUMNS[table], row, strict=True)) for row in rows}
