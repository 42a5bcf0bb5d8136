"""The reference in the shapes of older servers: it agrees with their cases, and with nobody else's."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

import pytest

from nl_cutover.contract.surface import derive_tools
from nl_cutover.memory_core.conformance import Verdict, load_cases, otherwise, run
from nl_cutover.memory_core.shapes import Shape, ShapeName, load_shape
from nl_cutover.memory_core.surface import load_document
from nl_cutover.testing import EmbeddedMemoryCore, embedded_memory_core

from .mcp_caller import Connect
from .test_mc_verb import run as verb

OLDER = [shape for shape in ShapeName if shape is not ShapeName.FINAL]
TOKENS = {"vega": "token-of-vega", "ada": "token-of-ada"}
ACTION = {"sequenceId": "11111111-1111-4111-8111-111111111111", "success": True}


@pytest.fixture(scope="module", params=OLDER)
def older(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMemoryCore]:
    folder = tmp_path_factory.mktemp(request.param)
    with embedded_memory_core(folder, tokens=TOKENS, shape=request.param) as running:
        yield running


def verdicts(core: EmbeddedMemoryCore, cases: ShapeName) -> dict[Verdict, set[str]]:
    findings = list(run(core.url, core.token, load_cases(cases)))
    return {verdict: {f.case for f in findings if f.verdict is verdict} for verdict in Verdict}


def test_each_shape_agrees_with_its_cases(older: EmbeddedMemoryCore) -> None:
    found = verdicts(older, ShapeName(older.shape))
    assert found[Verdict.DIFFERS] == set()
    assert found[Verdict.AGREES_OTHERWISE] == {"Origin header"}, "these have identities"


@pytest.mark.parametrize("shape", OLDER)
def test_the_final_shape_differs_from_every_case_of_an_older_one(core: EmbeddedMemoryCore, shape: ShapeName) -> None:
    found = verdicts(core, shape)
    assert found[Verdict.DIFFERS] | found[Verdict.AGREES_OTHERWISE] == set(otherwise(shape))
    # An interim form of 902ddd4d declared sequenceId, as the final one does.
    assert all(case.startswith(("tools/list", "admit")) for case in found[Verdict.AGREES_OTHERWISE])


def test_the_older_shapes_differ_from_the_final_cases_and_from_one_another(older: EmbeddedMemoryCore) -> None:
    for shape in set(ShapeName) - {ShapeName(older.shape)}:
        assert verdicts(older, shape)[Verdict.DIFFERS], shape


@pytest.mark.parametrize("shape", OLDER)
def test_cases_of_a_shape_are_named_as_the_cases_they_replace(shape: ShapeName) -> None:
    final = {case.name: case.expect for case in load_cases()}
    changed = {case.name for case in load_cases(shape) if case.expect != final[case.name]}
    assert changed == set(otherwise(shape))


def test_a_foreign_archive_and_none_are_both_null_and_a_mark_says_no_more(
    older: EmbeddedMemoryCore, connect: Connect
) -> None:
    vega, ada = connect(older), connect(older, "token-of-ada")
    archive_id = vega.save()
    assert vega.get(archive_id)["archiveId"] == archive_id
    answer = json.loads(ada.raw("get_nl_transaction", json.dumps({"archiveId": archive_id})))["result"]
    content = [{"type": "text", "text": "null"}]
    assert answer == {"content": content, "structuredContent": {"result": None}, "isError": False}
    assert ada.mark(archive_id) == {"updated": False}
    assert vega.mark(archive_id) == {"updated": True}


def test_what_is_kept_names_no_custodian_and_a_mark_leaves_it_unnamed(
    older: EmbeddedMemoryCore, connect: Connect
) -> None:
    caller = connect(older)
    archive_id = caller.save()
    caller.mark(archive_id)
    with sqlite3.connect(f"file:{older.db}?mode=ro", uri=True) as graph:
        found = graph.execute("SELECT data FROM Nodes WHERE id = ?", (f"nl-transaction-archive:{archive_id}",))
        kept = json.loads(found.fetchone()[0])["properties"]
    graph.close()
    assert (kept["name"], kept["replayCount"], kept["userId"]) == (None, 1, "vega")
    assert kept["ops"] == [{"label": "one"}]
    assert not {"custodian", "custodySource"} & kept.keys()


def test_only_the_first_shape_strips_the_token(older: EmbeddedMemoryCore, connect: Connect) -> None:
    lost = older.shape == ShapeName.FIRST
    answer = connect(older).call("admit_nl_actions", {"actions": [ACTION]})
    assert answer == {"admitted": int(not lost), "refused": int(lost)}


def test_a_read_of_a_locked_store_is_null_too() -> None:
    failed = {"status": "unavailable", "reason": "archive-store-unavailable: database is locked"}
    assert [load_shape(shape).answer("get_nl_transaction", failed) for shape in OLDER] == [None, None]
    assert load_shape(ShapeName.FINAL).answer("get_nl_transaction", failed) == failed


def test_the_final_shape_is_the_document_as_it_stands() -> None:
    document = load_document()
    assert load_shape(ShapeName.FINAL) == Shape()
    assert Shape().surface(document) == document
    load_shape(ShapeName.FIRST).surface(document)
    assert document == load_document(), "a shape takes nothing away from another's document"
    assert "sequenceId" in str(derive_tools(document)["admit_nl_actions"].input_schema)


def test_the_verb_takes_a_shape(
    older: EmbeddedMemoryCore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MC_TOKEN", older.token)
    asked = ("conformance", "--url", older.url, "--token-env", "MC_TOKEN", "--format", "json")
    assert verb(*asked, "--shape", older.shape) == 0
    assert json.loads(capsys.readouterr().out)["shape"] == older.shape
    assert verb(*asked) == 8
    assert json.loads(capsys.readouterr().out)["shape"] == "final"
    assert verb(*asked, "--shape", "latest") == 2
