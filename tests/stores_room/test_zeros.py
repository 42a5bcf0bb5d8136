"""F87, F100: a plain 0 is not an absence. What a zero is worth, what blocks, and the control that proves the reading."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec
import pytest

from nl_cutover.contract.rows import ACTIONS, ARCHIVES
from nl_cutover.stores import control, measurement
from nl_cutover.stores.report import Report, TableReport
from nl_cutover.stores.seal import Fence
from nl_cutover.stores.summary import summarize
from nl_cutover.stores.verdict import verdict_of, word
from nl_cutover.verdicts import Absent, ExitCode, Measured, Unmeasurable, Zero

from .zoo import STORE, counts, execute, plant, reason, report, store, writer

OFF = {"NEO_NL_ACTION_LOGGING": "false"}


def _zeros(*paths: Path, environ: dict[str, str] | None = None) -> tuple[Zero | None, Zero | None]:
    (found,) = report(*paths, environ=environ or {}).stores
    return found.table(ACTIONS).zero, found.table(ARCHIVES).zero


def test_a_live_zero_names_who_could_fire(tmp_path: Path) -> None:
    path = plant(tmp_path / "a" / STORE)
    assert _zeros(tmp_path / "a") == (Zero.LIVE, Zero.LIVE)
    with writer(path) as w:
        w.run("SELECT 1 FROM nl_action_log")
        (found,) = report(tmp_path / "a").stores
        assert f"pid {w.pid}" in found.table(ARCHIVES).reason
        assert found.table(ARCHIVES).measurement == Measured(0, Zero.LIVE, 0)


def test_telemetry_is_gated_only_where_every_leaf_says_so(tmp_path: Path) -> None:
    """An unset leaf is not assumed, archives are never gated."""
    plant(tmp_path / "a" / STORE)
    (tmp_path / "b").mkdir()
    (tmp_path / "b/.neo-ai-data").symlink_to("../a/.neo-ai-data")
    both = (tmp_path / "a", tmp_path / "b")
    gated = (Zero.GATED, Zero.LIVE)
    live = (Zero.LIVE, Zero.LIVE)
    assert _zeros(*both) == live
    assert _zeros(*both, environ=OFF) == gated
    (tmp_path / "a/.env").write_text("NEO_NL_ACTION_LOGGING=0\n")
    assert _zeros(*both) == live
    assert _zeros(tmp_path / "a") == gated
    (tmp_path / "b/.env").write_text("export NEO_NL_ACTION_LOGGING='off'\n")
    assert _zeros(*both) == gated
    assert _zeros(*both, environ={"NEO_NL_ACTION_LOGGING": "true"}) == live
    (tmp_path / "b/.env").write_text("NEO_NL_ACTION_LOGGING=true\n")
    assert _zeros(*both, environ=OFF) == live
    (tmp_path / "b/.env").write_text("NEO_NL_ACTION_LOGGING=\n")
    assert _zeros(*both) == live


def test_a_sealed_zero(tmp_path: Path) -> None:
    path = plant(tmp_path / "a" / STORE)
    (found,) = report(tmp_path / "a").stores
    with Fence(found.location, found.identity, url="http://mc") as fence:
        fence.plant([ARCHIVES])
        fence.commit()
    assert _zeros(tmp_path / "a", environ=OFF) == (Zero.GATED, Zero.SEALED)
    execute(path, "DROP TRIGGER nl_cutover_seal_insert_nl_transaction_archive")
    execute(
        path, f"CREATE TRIGGER nl_cutover_seal_insert_{ARCHIVES} BEFORE INSERT ON {ARCHIVES} WHEN 0 BEGIN SELECT 1; END"
    )
    (found,) = report(tmp_path / "a").stores
    assert found.table(ARCHIVES).zero is Zero.LIVE
    assert found.seal.foreign == (f"nl_cutover_seal_insert_{ARCHIVES}",)


def test_rows_have_no_kind_of_zero(tmp_path: Path) -> None:
    plant(tmp_path / "a" / STORE, archives=1, actions=1)
    assert _zeros(tmp_path / "a", environ=OFF) == (None, None)


def test_the_seed(tmp_path: Path) -> None:
    """F100: five checkouts, one store, one table empty and one absent, and a sixth whose link dangles."""
    execute(plant(tmp_path / "claude" / STORE), f"DROP TABLE {ARCHIVES}")
    seats = [tmp_path / seat for seat in ("claude", "antigravity", "clio", "codex", "opus-vega", "sixth")]
    for seat in seats[1:]:
        (seat / ".neo-ai-data").mkdir(parents=True)
        target = "../../gone" if seat.name == "sixth" else "../../claude/.neo-ai-data/sqlite"
        (seat / ".neo-ai-data/sqlite").symlink_to(target)
    found = report(*seats, expect=6)
    assert [checkout.state for checkout in found.checkouts] == ["measured"] * 5 + ["unmeasurable"]
    (one,) = found.stores
    assert isinstance(one.table(ACTIONS).measurement, Measured)
    assert isinstance(one.table(ARCHIVES).measurement, Absent)
    assert len(one.aliases) == 5
    assert one.open_mode
    assert verdict_of(found) is ExitCode.UNMEASURABLE
    assert verdict_of(report(*seats[:5])) is ExitCode.PROVED
    assert "--create-missing -- COMMAND" in summarize(report(*seats[:5]), host="here").next_steps[-1]
    assert found.at == "2026-07-01T12:00:00.000Z"


def test_verdicts(tmp_path: Path) -> None:
    plant(tmp_path / "a" / STORE, archives=1)
    empty = msgspec.structs.replace(report(tmp_path / "a"), checkouts=(), stores=())
    assert verdict_of(empty) is ExitCode.UNMEASURABLE
    found = report(tmp_path / "a")
    assert verdict_of(found) is ExitCode.REFUSED
    assert word(verdict_of(found)) == "refused"
    found = report(tmp_path / "a", accounts=lambda *_: True)
    assert verdict_of(found) is ExitCode.PROVED
    assert word(ExitCode.PROVED) == "clear"
    (tmp_path / "b").mkdir()
    assert verdict_of(report(tmp_path / "a", tmp_path / "b", accounts=lambda *_: True)) is ExitCode.REFUSED


def _with_control(monkeypatch: pytest.MonkeyPatch, path: Path, name: str, value: object) -> Report:
    with monkeypatch.context() as patch:
        patch.setattr(measurement, name, value)
        patch.setattr(control, name, value)
        return report(path)


def test_nothing_is_measured_when_the_control_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F87: a verification that cannot fail. The control runs through the very code that counts."""
    plant(tmp_path / "a" / STORE, archives=3)
    real = measurement.walk
    found = _with_control(
        monkeypatch, tmp_path / "a", "walk", lambda _, name, *__: TableReport(name, "measured", rows=0, unaccounted=0)
    )
    assert not found.control.ok
    assert "planted control rows were not found" in reason(found.stores[0])
    assert verdict_of(found) is ExitCode.UNMEASURABLE

    def half_blind(connection: sqlite3.Connection, name: str, *more: object) -> object:
        return TableReport(name, "measured", rows=0) if name == ACTIONS else real(connection, name, *more)  # type: ignore[arg-type]

    assert not _with_control(monkeypatch, tmp_path / "a", "walk", half_blind).control.ok
    assert counts(store(tmp_path / "a")) == (3, 0)


def test_no_room_for_the_control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path / "a" / STORE, archives=3)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    found = report(tmp_path / "a")
    assert "could not be measured" in reason(found.stores[0])
    assert isinstance(found.stores[0].table(ACTIONS).measurement, Unmeasurable)


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 52, 0), False),
    ],
)
def test_engines_that_may_lose_commits(version: tuple[int, int, int], affected: bool) -> None:
    """F17."""
    assert bool(measurement.engine_warnings(version)) is affected


def test_the_engine_is_named(tmp_path: Path) -> None:
    plant(tmp_path / "a" / STORE)
    assert report(tmp_path / "a").sqlite_version == sqlite3.sqlite_version
