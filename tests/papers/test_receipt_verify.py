"""`receipt verify`: what it takes for whole, what it finds out, and what it says that it cannot know."""

import json
import shutil

import pytest
import rfc8785
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nl_cutover.papers.verifying import Paper, check
from tests.conftest import Operator


@pytest.fixture
def stranger(tmp_path) -> Operator:
    """Somebody with the files alone: no token, no custody, no Memory Core."""
    (tmp_path / "elsewhere").mkdir()
    return Operator(tmp_path / "elsewhere", None, None)


def rewrite(path, change) -> None:
    """Change the body and write it as canonically as before."""
    body = json.loads(path.read_text())
    change(body)
    path.write_bytes(rfc8785.dumps(body))


def test_a_stranger_finds_a_whole_chain_intact(stranger, receipts):
    done = stranger("receipt", "verify", *receipts)
    assert done.code == 0, done.out
    report = done.json
    assert report["verdict"] == "intact"
    kinds = ["measure", "plan", "migrate", "settle", "verify", "landing", "cut", "measure"]
    assert [r["kind"] for r in report["receipts"]] == kinds
    assert report["receipts"][6]["says"] == "landed (exit 0)"
    assert any("the very bytes that the next one names" in sentence for sentence in report["proves"])
    assert any("0008-measure.json is as it was written" in sentence for sentence in report["cannot"])
    assert not stranger.custody.exists()


def test_a_stranger_finds_one_named_row_in_a_single_receipt(stranger, receipts, whole_road):
    """Old id, new id and the digest of the row's bytes: the digest can be had from the store alone."""
    import sqlite3

    from nl_cutover.contract.rows import ARCHIVES, COLUMNS, Text, row_digest

    done = stranger("receipt", "verify", receipts[2])
    assert done.code == 0
    assert any("number 2 was not given" in sentence for sentence in done.json["cannot"])
    entry = json.loads(receipts[2].read_text())["id_map"][0]
    store = whole_road.folder / "codex/.neo-ai-data/sqlite/memory-core-graph.sqlite"
    connection = sqlite3.connect(store)
    connection.text_factory = Text
    names = COLUMNS[ARCHIVES]
    asked = f"SELECT {', '.join(names)} FROM {ARCHIVES} WHERE archive_id = ?"
    row = connection.execute(asked, (entry["old"],)).fetchone()
    connection.close()
    assert row_digest(names, row) == entry["digest"]


def test_the_newest_may_be_missing_and_that_is_said(stranger, receipts):
    done = stranger("receipt", "verify", *receipts[:-1])
    assert done.code == 0
    assert "whether another receipt came after 0007-cut.json" in done.json["cannot"]


@pytest.mark.parametrize(
    ("name", "change", "word"),
    [
        ("0003-migrate", lambda b: b["outcome"]["archives"].update(confirmed=5), "add up to 5, there are 6"),
        (
            "0003-migrate",
            lambda b: b["outcome"]["archives"].update(confirmed=5, unknown=1),
            "proved, and counts 1 unknown",
        ),
        ("0003-migrate", lambda b: b["outcome"]["telemetry"].update(rows=8), "add up to 9, there are 8"),
        ("0003-migrate", lambda b: b["outcome"]["marks"].update(made=99), "marks"),
        ("0003-migrate", lambda b: b["id_map"].pop(), "the id map confirms 5"),
        ("0003-migrate", lambda b: b["id_map"][0].update(new=b["id_map"][1]["new"]), "to 2 archives"),
        ("0003-migrate", lambda b: b["id_map"].__setitem__(0, b["id_map"][1]), "names the archive"),
        ("0002-plan", lambda b: b["plan"].update(owner="somebody"), "not what its digest says"),
        ("0005-verify", lambda b: b["outcome"].update(equal=5), "1 archive is not equal, 0 named"),
        ("0001-measure", lambda b: b["outcome"]["totals"].update(unaccounted=0), "its totals say 0"),
        (
            "0008-measure",
            lambda b: b["measured"]["stores"][0]["tables"][0].update(state="unmeasurable"),
            "could not be read",
        ),
        ("0007-cut", lambda b: b["outcome"]["command"].update(exit_code=1), "its command ended with 1"),
        ("0007-cut", lambda b: b["outcome"]["stores"][0].update(seal="removed"), "without a seal"),
        ("0007-cut", lambda b: b["outcome"].update(stores=[]), "not those that were measured"),
    ],
)
def test_a_receipt_that_contradicts_itself_is_broken(receipts, name, change, word):
    path = next(p for p in receipts if p.stem == name)
    assert check(Paper([path])).verdict == "intact", "the control: unchanged it is whole"
    rewrite(path, change)
    report = check(Paper([path]))
    assert (report.verdict, report.exit_code) == ("broken", 8)
    assert report.proves == []
    assert word in " ".join(report.receipts[0].problems)


def test_a_changed_receipt_is_found_by_the_next_one(receipts):
    rewrite(receipts[5], lambda body: body["tool"].update(version="6.6.6"))
    report = check(Paper(receipts))
    assert report.exit_code == 8
    assert "does not follow 0006-landing.json" in report.receipts[6].problems[0]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda paths: [*paths[:3], *paths[4:]], "receipt 4 is missing"),
        (lambda paths: [*paths, shutil.copy(paths[3], paths[3].with_name("again.json"))], "have the number 4"),
    ],
)
def test_a_lost_or_doubled_receipt_is_broken(receipts, change, word):
    report = check(Paper([type(receipts[0])(p) for p in change(receipts)]))
    assert report.exit_code == 8
    assert word in str(report.receipts)


def test_a_host_that_changed_its_name_is_still_one_chain(receipts):
    """Laptops are renamed by the networks that they join."""
    import hashlib

    rewrite(receipts[7], lambda body: body["tool"].update(host="renamed.local"))
    report = check(Paper(receipts))
    assert report.exit_code == 0
    assert not any("was not given" in sentence for sentence in report.cannot)
    previous = json.loads(receipts[7].read_text())["previous"]
    assert previous == hashlib.sha256(receipts[6].read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"kind":"cut"}',
        b"[" * 100_000,
        b'{"a":1,"a":1}',
        b'{"a":1e999}',
        b'{"a":"\\ud800"}',
    ],
)
def test_what_is_no_receipt_is_unreadable_in_words(tmp_path, text):
    (tmp_path / "x.json").write_bytes(text)
    report = check(Paper([tmp_path / "x.json"]))
    assert (report.verdict, report.exit_code) == ("unreadable", 4)
    assert report.receipts[0].problems


def test_a_broken_one_and_one_that_is_not_there(stranger, receipts):
    rewrite(receipts[2], lambda body: body["outcome"]["archives"].update(confirmed=5))
    assert stranger("receipt", "verify", receipts[2]).code == 8
    done = stranger("receipt", "verify", receipts[3], "nowhere.json")
    assert done.code == 4
    assert "No such file" in done.json["receipts"][1]["problems"][0]


def test_a_receipt_of_a_newer_kind_is_unreadable_not_broken(receipts):
    rewrite(receipts[7], lambda body: body.update(kind="teleport"))
    report = check(Paper(receipts))
    assert (report.verdict, report.exit_code) == ("unreadable", 4)
    assert "of no kind that this version knows" in report.receipts[7].problems[0]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_changed_byte_is_found_out_or_the_text_says_why_not(receipts, data):
    path = data.draw(st.sampled_from(receipts), label="file")
    original = path.read_bytes()
    at = data.draw(st.integers(0, len(original) - 1), label="at")
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != original[at]), label="byte")
    path.write_bytes(original[:at] + bytes([byte]) + original[at + 1 :])
    try:
        report = check(Paper(receipts))
    finally:
        path.write_bytes(original)
    if report.exit_code == 0:
        assert path == receipts[-1], "a receipt that another one follows"
        assert any(f"whether {path.name} is as it was written" in sentence for sentence in report.cannot)
    else:
        assert any(one.problems for one in report.receipts)
