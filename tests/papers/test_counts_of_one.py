"""Whatever is printed: one of a thing is not told in the plural."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nl_cutover.custody.reading import Odd
from nl_cutover.migration.plan import Loss
from nl_cutover.migration.report import Archives, Marks, RunReport, TelemetryCounts, exit_code, next_steps
from nl_cutover.output.documents import as_markdown, as_table
from nl_cutover.output.page import as_html
from nl_cutover.output.paper_views import as_paste, explain_document
from nl_cutover.output.views import run_document
from nl_cutover.papers.explaining import explain
from nl_cutover.papers.story import loss_in_words
from nl_cutover.wording import counted, fitted
from tests.papers.conftest import STORE, plant
from tests.papers.stories import told

MANY = (
    "archives|rows|actions|stores|marks|replays|outcomes|receipts|checkouts|losses|kinds|names|lines|calls|processes|"
    "workers|errors|memories|mounts|minutes|are|were|have|get|lose|become|stay|stand|share|hold"
)
WRONG = re.compile(rf"(?<![\w.,:/-])1 (?:(?:more|replay|unnamed|writing|such|refused) ){{0,2}}(?:{MANY})\b.*")


def plurals(text: str) -> list[str]:
    return WRONG.findall(text)


def test_the_search_finds_what_it_looks_for():
    text = "1 archives\n0 of 1 rows\n1 more refused rows\n11 rows\n1.1 minutes\n1 row has\n1 rows have\n"
    assert len(plurals(text)) == 4


@given(st.integers(0, 3))
def test_a_count_and_its_words(count):
    assert counted(count, "row|s has|have it|them") == ("1 row has it" if count == 1 else f"{count} rows have them")
    assert fitted(count, "no pair here: a|") == "no pair here: a|"


ARCHIVES = ("refused", "unknown", "pending", "differs", "excluded", "confirmed")
ACTIONS = ("admitted", "refused", "left", "discarded", "unknown", "pending", "excluded")


def reports():
    """A run of one row, in each of its states, and one with a single of everything."""
    no_marks = Marks(0, 0)
    for name in ARCHIVES:
        yield archives(**{name: 1}), no_marks, telemetry()
    for name in ACTIONS:
        yield archives(), no_marks, telemetry(**{name: 1})
    yield archives(confirmed=1), Marks(1, 0), telemetry()
    yield archives(confirmed=1), Marks(1, 0, 1), telemetry()
    yield archives(**dict.fromkeys(ARCHIVES, 1)), Marks(1, 0, 1), telemetry(**dict.fromkeys(ACTIONS, 1))


def archives(**states: int) -> Archives:
    given = dict.fromkeys(ARCHIVES, 0) | states
    return Archives(rows=sum(given.values()), **given)


def telemetry(**states: int) -> TelemetryCounts:
    given = dict.fromkeys(ACTIONS, 0) | states
    return TelemetryCounts(rows=sum(given.values()), **given)


@pytest.mark.parametrize("counts", list(reports()), ids=str)
def test_a_run_of_one_row(counts, receipts):
    code = exit_code(*counts, None)
    a, m, t = counts
    report = RunReport(
        run="r", verdict="", exit_code=int(code), at="", archives=a, marks=m, telemetry=t,
        losses=[], receipt=None, next_steps=next_steps(code, a, m, t), custody="/custody", url="", sent=1,
        odd=[Odd("archive", str(at), "refused", "x") for at in range(41)],
    )  # fmt: skip
    story = told(receipts)
    moved = msgspec.structs.replace(story.moved, archives=a, marks=m, telemetry=t)
    story = msgspec.structs.replace(story, moved=moved, id_map=story.id_map[:1])
    said = [
        as_table(run_document(report)),
        as_markdown(run_document(report)),
        as_table(explain_document(explain(report, []))),
    ]
    assert plurals("\n".join([*said, as_paste(story), re.sub("<[^>]*>", " ", as_html(story))])) == []


@pytest.mark.parametrize("loss", ["get a new id", "gets a new id"])
def test_a_loss_is_told_with_its_noun_whoever_wrote_the_receipt(loss):
    assert loss_in_words(Loss("archive_id", 1, loss)).startswith("1 archive ")
    assert loss_in_words(Loss("archive_id", 2, loss)).startswith("2 archives ")


@pytest.mark.parametrize(
    ("telemetry", "replays", "seed"),
    [("admit", "marks", 7001), ("admit", "receipt", 7002), ("leave", "marks", 7003), ("discard=1", "marks", 7004)],
)
def test_the_whole_road_of_one_archive_and_one_action(operator, tmp_path, telemetry, replays, seed):
    checkout = plant(tmp_path / "one", archives=1, actions=1, seed=seed)
    with closing(sqlite3.connect(checkout / STORE)) as store, store:
        store.execute("UPDATE nl_transaction_archive SET replay_count = 1, last_replayed_at = 1, name = NULL")
    how = ("--telemetry", operator.telemetry(1) if telemetry == "admit" else telemetry, "--replays", replays)
    said = []
    for words in (
        ("measure", checkout),
        ("plan", checkout, *how, "--owner", "neo-operator"),
        ("migrate", checkout, *how, "--owner", "neo-operator"),
        ("status",),
        ("explain",),
        ("verify", checkout),
        ("cut", checkout, "--", "false"),
        ("measure", checkout),
        ("report", "--format", "markdown"),
        ("receipt", "show"),
    ):
        done = operator(*words, json=False)
        said.append(done.out + done.err)
    assert "archive" in said[1]
    assert plurals("\n".join(said)) == []
