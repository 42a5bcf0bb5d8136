"""`nl-cutover copy`: what a cut is rehearsed on. The stores are only read, and nothing of it reaches the real plane."""

import os
import tomllib

from nl_cutover.testing import embedded_memory_core
from tests.conftest import SLOT, TOKENS, Operator, state_of

ELSEWHERE = "http://127.0.0.1:9/mc/mcp"


def copied(operator, *checkouts, url=ELSEWHERE):
    return operator("copy", operator.folder / "rehearsal", *checkouts, "--url", url)


def test_every_store_once_with_as_many_checkouts(operator, checkout, link, tmp_path):
    live = checkout("live")
    seats = [live, link("clio", live), checkout("closed"), checkout("empty", None)]
    before = {path: state_of(path) for path in seats}
    operator.custody = tmp_path / "unused"
    done = copied(operator, *seats)
    assert done.code == 0, done.err
    assert {path: state_of(path) for path in seats} == before
    folder = tmp_path / "rehearsal"
    assert len(list(folder.glob("*.sqlite"))) == 2
    assert folder.stat().st_mode & 0o777 == 0o700
    real = operator("measure", *seats, "--allow-absent").json
    copy = operator("measure", "--config", folder / "nl-cutover.toml", "--allow-absent").json
    assert copy["totals"] == real["totals"]
    assert [c["state"] for c in copy["checkouts"]] == [c["state"] for c in real["checkouts"]]
    assert sorted(s["seats"] for s in copy["stores"]) == sorted(s["seats"] for s in real["stores"])


def test_a_copy_is_never_written_over_anything(operator, checkout, tmp_path):
    (tmp_path / "rehearsal").mkdir()
    done = copied(operator, checkout("closed"))
    assert done.code == 3
    assert os.listdir(tmp_path / "rehearsal") == []


def test_a_rehearsal_wants_a_memory_core_of_its_own(operator, checkout, tmp_path):
    for words in ((), ("--url", "http://127.0.0.1:3102/mc/mcp")):
        done = operator("copy", tmp_path / "rehearsal", checkout(f"c{len(words)}", "closed"), *words)
        assert done.code == 2
        assert "of its own" in done.err
    assert not (tmp_path / "rehearsal").exists()


def test_the_real_memory_core_is_refused_from_there(operator, checkout, tmp_path):
    assert copied(operator, checkout("closed")).code == 0
    settings = tmp_path / "rehearsal" / "nl-cutover.toml"
    assert tomllib.loads(settings.read_text())["plane"]["id"] == "neo-rehearsal"
    done = operator("migrate", "--config", settings, "--owner", "x", "--telemetry", "admit")  # at the real url
    assert done.code == 3
    assert "expected neo-rehearsal" in done.err


def test_a_cut_of_the_copies_seals_the_copies_alone(checkout, tmp_path):
    path = checkout("closed")
    with embedded_memory_core(tmp_path / "core", tokens=TOKENS, plane_id="neo-rehearsal") as core:
        operator = Operator(tmp_path, None, core.token)
        assert copied(operator, path, url=core.url).code == 0
        settings = ("--config", tmp_path / "rehearsal" / "nl-cutover.toml")
        assert operator("migrate", *settings, "--owner", "neo-operator", "--telemetry", "admit").code == 0
        assert operator("verify", *settings).code == 0
        assert operator("cut", *settings, "--", "true").code == 0
        assert operator("measure", *settings).json["stores"][0]["seal"]["sealed"]
        assert not operator("measure", path).json["stores"][0]["seal"]["sealed"]
    assert SLOT in operator.environ
