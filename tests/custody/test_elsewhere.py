"""Two custody directories for one store: Memory Core cannot be asked, so each run finds the ledgers of the others."""

import os
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nl_cutover.custody.directory import LEDGER, MARKER
from nl_cutover.custody.elsewhere import others, remember
from nl_cutover.errors import CustodyError
from tests.papers.conftest import plant


def begun(path):
    path.mkdir(parents=True)
    (path / MARKER).touch()
    (path / LEDGER).touch()
    return path


@given(st.lists(st.text(st.characters(exclude_characters="\0/"), min_size=1, max_size=20), min_size=1, unique=True))
def test_any_folder_is_found_again_by_the_stores_that_it_carried(tmp_path_factory, names):
    root = tmp_path_factory.mktemp("hosts")
    registry = root / "stores"
    made = {}
    for number, name in enumerate(names):
        try:
            folder = begun(root / f"{number}{name}")
        except (OSError, UnicodeEncodeError):
            continue
        remember(registry, ["fe00-1", f"own-{number}"], folder)
        remember(registry, ["fe00-1"], folder)
        made[number] = folder
    for number, folder in made.items():
        found = others(registry, ["fe00-1"], folder)
        assert sorted(map(os.fspath, found)) == sorted(os.path.realpath(f) for n, f in made.items() if n != number)
        assert others(registry, [f"own-{number}"], folder) == []


def test_what_is_gone_is_not_asked_and_a_lost_ledger_is_told(tmp_path):
    registry = tmp_path / "stores"
    one, two = begun(tmp_path / "one"), begun(tmp_path / "two")
    remember(registry, ["s"], one)
    remember(registry, ["s"], two)
    with (registry / "s").open("a") as torn:
        torn.write('"/no end')
    assert others(registry, ["s"], tmp_path / "new") == [one, two]
    shutil.rmtree(one)
    assert others(registry, ["s"], tmp_path / "new") == [two]
    (two / LEDGER).unlink()
    with pytest.raises(CustodyError):
        others(registry, ["s"], tmp_path / "new")


def test_rows_that_another_custody_carried_are_not_sent_again(operator, core, serve, tmp_path):
    path = plant(tmp_path / "codex", archives=3, actions=0, seed=931)
    words = ("migrate", path, "--owner", "neo-operator")
    assert operator(*words).code == 0
    first, operator.custody = operator.custody, tmp_path / "second"
    refused = operator(*words)
    assert refused.code == 3
    assert f"in custody {first} carried 3 rows of these stores to this plane" in refused.json["error"]
    assert f"--custody {first}" in refused.json["next_steps"][0]
    assert not operator.custody.exists()
    plant(tmp_path / "clio", archives=2, actions=0, seed=932)
    assert operator("migrate", tmp_path / "clio", "--owner", "neo-operator").code == 0, "another store is its own"
    with serve(tmp_path / "anew", tokens={"neo-operator": core.token}) as other:
        operator.custody = tmp_path / "third"
        operator.url, url = other.url, operator.url
        assert operator(*words).code == 0, "another plane has none of it"
        operator.url = url
    operator.custody = first
    assert operator(*words).code == 0, "its own run goes on"
    operator.custody = tmp_path / "fourth"
    assert operator(*words, "--afresh").json["archives"]["confirmed"] == 3


def test_a_store_that_was_cut_begins_no_new_run(operator, tmp_path):
    """By another user, or where the first custody is gone: no ledger is found, but the seal tells."""
    path = plant(tmp_path / "codex", archives=2, actions=0, seed=934)
    words = ("migrate", path, "--owner", "neo-operator")
    assert operator(*words).code == 0
    assert operator("cut", path, "--", "true").code == 0
    assert operator(*words).code == 0
    operator.custody = tmp_path / "second"
    refused = operator(*words, HOME=str(tmp_path / "another home"))
    assert refused.code == 3
    assert "was sealed by a cut that began" in refused.json["error"]
    assert not operator.custody.exists()


def test_a_run_that_may_not_remember_says_so(operator, tmp_path):
    path = plant(tmp_path / "codex", archives=1, actions=0, seed=933)
    (tmp_path / "home" / ".local").mkdir(parents=True)
    (tmp_path / "home" / ".local" / "state").touch()
    done = operator("migrate", path, "--owner", "neo-operator", XDG_STATE_HOME="")
    assert done.code == 0
    assert "a run with another --custody would not know of this one" in done.err
