"""Rows of a store that a run was not given, and telemetry that was discarded and is wanted after all."""

import json
import shutil
import sqlite3
from pathlib import Path

import httpx
import pytest

from nl_cutover.migration.report import report_from_ledger
from nl_cutover.testing import plant_store
from tests.migration.test_settle import Job

RETRY = "give the same `nl-cutover migrate` command again: it resumes and sends nothing twice"


class Stopped(BaseException):
    pass


def begun(job: Job, at: str) -> None:
    """A run that ends at a barrier, as a killed process does."""

    def stop(name: str) -> None:
        if name == at:
            raise Stopped

    with pytest.raises(Stopped):
        job.migrate(barrier=stop, workers=1)


def replace_store(job: Job) -> None:
    """Another inode under the same name, as a restored backup or a fresh clone is."""
    job.store.parent.rename(job.folder / "vanished")  # kept, so that its inode's number does not come back
    plant_store(job.store, archives=2, actions=0, seed=9)


def test_rows_of_a_replaced_store_are_refused_with_a_way_out(told):
    begun(told, "before intent")
    replace_store(told)
    done = told.migrate()
    assert done.exit_code == 7
    assert (done.archives.pending, done.archives.refused) == (0, 6)
    assert (done.telemetry.pending, done.telemetry.refused) == (0, 30)
    assert all("not among the stores of this run" in o.reason for o in done.odd)
    assert RETRY not in done.next_steps, "it would change nothing"
    told.settle(*(f"{o.key}=exclude" for o in done.odd))
    again = told.migrate()
    assert (again.exit_code, again.archives.excluded, again.telemetry.excluded) == (0, 6, 30)


def test_rows_of_a_store_that_comes_back_are_carried(job):
    begun(job, "before intent")
    kept = job.store.parent.rename(job.folder / "kept")
    plant_store(job.store, archives=2, actions=0, seed=9)
    assert job.migrate().archives.refused == 6
    shutil.rmtree(job.store.parent)
    kept.rename(job.store.parent)
    done = job.migrate()
    assert done.exit_code == 0, done.odd
    assert set(job.source()) <= set(job.held()[0])


def test_an_archive_that_was_saved_and_cannot_be_compared_any_more_is_told(job):
    begun(job, "after record")
    replace_store(job)
    done = job.migrate()
    assert done.exit_code == 7
    (saved,) = [o for o in done.odd if o.state == "delivered"]
    assert "cannot be compared" in saved.reason


def test_marks_that_are_still_wanted_of_an_absent_store_are_told(job):
    def gone(name: str, nth: int) -> None:
        if name == "mark_nl_transaction_replayed":
            raise httpx.ConnectError("gone")

    assert job.migrate(gone).marks.made == 0
    replace_store(job)
    done = job.migrate()
    assert done.exit_code == 7
    assert [(o.kind, o.state) for o in done.odd if "its marks cannot" in o.reason] == [("mark", "pending")], done.odd


def test_what_was_discarded_is_admitted_when_the_operator_says_so_later(told):
    assert told.migrate(telemetry="discard=30").telemetry.discarded == 30
    notes = []

    done = told.migrate(telemetry="admit", note=notes.append)
    assert done.exit_code == 0
    assert (done.telemetry.admitted, done.telemetry.discarded) == (30, 0)
    assert told.held()[1] == 30
    assert "30 actions that an earlier command discarded are taken up again" in notes
    assert json.loads(Path(done.receipt).read_text())["outcome"]["taken_up_again"] == 30
    assert told.migrate(telemetry="discard=30").telemetry.admitted == 30, "what was sent stays sent"


def test_what_was_discarded_is_left_when_the_operator_says_so_later(told):
    told.migrate(telemetry="discard=30")
    done = told.migrate(telemetry="leave")
    assert (done.telemetry.left, done.telemetry.discarded, done.exit_code) == (30, 0, 3)
    assert report_from_ledger(told.custody, at="", losses=[]).telemetry.left == 30


def test_a_discarded_row_that_the_host_took_back_is_gone(told):
    told.migrate(telemetry="discard=30")
    store = sqlite3.connect(told.store)
    store.execute("DELETE FROM nl_action_log WHERE rowid <= 10")
    store.commit()
    store.close()
    done = told.migrate(telemetry="admit")
    assert (done.telemetry.rows, done.telemetry.admitted) == (20, 20)
