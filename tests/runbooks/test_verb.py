"""`nl-cutover runbook`: every runbook, with the operator's own names in it."""

import re
import tomllib

import msgspec
import pytest

from nl_cutover.cli.settings import Config
from nl_cutover.papers.runbooks import names
from tests.conftest import Operator
from tests.papers.conftest import whole_road  # noqa: F401 - a fixture
from tests.runbooks.scene import ROOT

NAMES = sorted(path.stem for path in (ROOT / "runbooks").glob("*.md"))
SETTINGS = """
url = "http://127.0.0.1:4711/mc/mcp"
custody = "kept here"
owner = "neo-somebody"
checkouts = [{ seat = "ada", path = "ada's/neo" }, "ben"]
[plane]
id = "neo-other-plane"
container = "mc-7"
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "nl-cutover.toml").write_text(SETTINGS)
    operator = Operator(tmp_path, None, None)
    return lambda *words: operator("runbook", *words, json=False)


def test_without_a_name_all_are_listed_with_their_moment(own):
    done = own()
    assert done.code == 0
    assert re.findall(r"^(\S+)  ", done.out, re.MULTILINE) == NAMES == list(names())
    assert all(sentence.startswith("Use this") for sentence in names().values())
    assert all(len(line) <= 80 for line in done.out.splitlines())


def test_a_name_that_is_none_is_refused_with_those_that_are(own):
    done = own("nothing")
    assert done.code == 2
    assert ", ".join(NAMES) in done.err


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_the_example_is_left(own, tmp_path, name):
    text = own(name).out
    assert text.startswith("# ")
    for example in ("scene:", "127.0.0.1:3102", "<path>/custody", "neo-local-canonical", "neo-operator", "CHECKOUT..."):
        assert example not in text
    for mine in ("http://127.0.0.1:4711/mc/mcp", "neo-other-plane", "mc-7", str(tmp_path / "custody")):
        assert mine in text


def test_the_settings_that_it_shows_are_the_operators_own(own, tmp_path):
    (shown,) = re.findall(r"^```toml\n(.*?)^```$", own("measure").out, re.MULTILINE | re.DOTALL)
    config = msgspec.convert(tomllib.loads(shown), Config)
    assert (config.url, config.owner, config.plane.id) == (
        "http://127.0.0.1:4711/mc/mcp",
        "neo-somebody",
        "neo-other-plane",
    )
    assert [c.path for c in config.checkouts] == [str(tmp_path / "ada's/neo"), str(tmp_path / "ben")]
    assert "--expect-checkouts 2" in own("measure").out


def test_a_flag_comes_before_the_settings(own):
    text = own("wrong-plane", "--plane", "neo-of-the-flag", "--url", "http://127.0.0.1:9/mc/mcp").out
    assert "neo-of-the-flag" in text
    assert "neo-other-plane" not in text
    assert "127.0.0.1:4711" not in text


def test_without_settings_the_example_stays_and_is_called_one(tmp_path):
    done = Operator(tmp_path, None, None)("runbook", "measure", json=False)
    assert "none named; those below are an example" in done.out
    assert "antigravity/neomjs/neo" in done.out


def test_the_run_of_the_custody_is_named(whole_road):  # noqa: F811
    done = whole_road("runbook", "settle", json=False)
    run = whole_road("status").json["run"]
    assert f"- run: {run}\n" in done.out
