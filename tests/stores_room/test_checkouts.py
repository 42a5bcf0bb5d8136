"""Finding checkouts: what is named, configured, found below a root, known to git; and what their `.env` says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nl_cutover.contract.leaves import switch
from nl_cutover.errors import RefusedError, UnmeasurableError
from nl_cutover.stores import dotenv
from nl_cutover.stores.checkouts import Checkout, discover, seat_of
from nl_cutover.stores.finding import worktrees_of
from nl_cutover.stores.measurement import measure
from nl_cutover.stores.verdict import verdict_of
from nl_cutover.testing import plant_store
from nl_cutover.verdicts import ExitCode

from .zoo import STORE, as_nobody, checkouts, counts, plant, report

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")


def _neo(path: Path, name: str = "neo.mjs") -> Path:
    path.mkdir(parents=True)
    (path / "package.json").write_text(json.dumps({"name": name}))
    return path


def _paths(found: list[Checkout]) -> list[Path]:
    return [checkout.path for checkout in found]


@pytest.mark.parametrize(
    ("path", "seat"),
    [
        ("/Users/Shared/codex/neomjs/neo", "codex"),
        ("/Users/Shared/github/neomjs/neo", "Shared"),
        ("/Users/Shared/agent-os/neo-agent-brain", "neo-agent-brain"),
        ("/x/clio/.neo-ai-data/sqlite/memory-core-graph.sqlite", "clio"),
        ("/x/closed/memory-core-graph.sqlite", "closed"),
        ("/w/neo/.claude/worktrees/brave-otter", "brave-otter"),
        ("/neo", "neo"),
        ("/", "checkout"),
        ("/x/a\nb", "a\\nb"),
    ],
)
def test_seats(path: str, seat: str) -> None:
    assert seat_of(Path(path)) == seat


def test_equal_seats_are_told_apart(tmp_path: Path) -> None:
    for disk in ("one", "two", "three"):
        (tmp_path / disk / "codex/neomjs/neo").mkdir(parents=True)
    found = checkouts(*(tmp_path / disk / "codex/neomjs/neo" for disk in ("one", "two", "three")))
    assert [checkout.seat for checkout in found] == ["codex", "codex-2", "codex-3"]


def test_one_directory_under_two_names(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to("a")
    assert len(checkouts(tmp_path / "a", tmp_path / "a/", config_checkouts=[tmp_path / "a"])) == 1
    assert len(checkouts(tmp_path / "a", tmp_path / "b")) == 2  # both were named: two seats, one store
    _neo(tmp_path / "c")
    (tmp_path / "d").symlink_to("c")
    assert len(checkouts(tmp_path / "d", roots=[tmp_path])) == 1


def test_none_found_is_an_error(tmp_path: Path) -> None:
    """F40: success over nothing."""
    with pytest.raises(UnmeasurableError, match="no checkout found"):
        checkouts(roots=[tmp_path])
    with pytest.raises(UnmeasurableError, match="no checkout found"):
        checkouts(expect=0)


def test_the_number_can_be_pinned(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    both = (tmp_path / "a", tmp_path / "b")
    assert len(checkouts(*both, expect=2)) == 2
    with pytest.raises(UnmeasurableError, match="3 checkouts expected, 2 found"):
        checkouts(*both, expect=3)
    with pytest.raises(RefusedError, match="1 checkout expected, 2 found"):
        checkouts(*both, expect=1)


def test_checkouts_that_are_not_there_hide_nobody(tmp_path: Path) -> None:
    plant(tmp_path / "good" / STORE, archives=2)
    (tmp_path / "dangling").symlink_to("gone")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("x")
    found = report(
        tmp_path / "missing", tmp_path / "dangling", tmp_path / "loop", tmp_path / "file/x", tmp_path / "good"
    )
    reasons = [checkout.reason for checkout in found.checkouts]
    assert [checkout.state for checkout in found.checkouts] == ["unmeasurable"] * 4 + ["measured"]
    words = ("does not exist", "dangling link, gone", "cannot be entered", "cannot be entered")
    assert all(word in why for word, why in zip(words, reasons, strict=False))
    assert all(checkout.hint for checkout in found.checkouts[:4])
    assert counts(found.stores[0]) == (2, 0)
    assert verdict_of(found) is ExitCode.UNMEASURABLE


def test_a_checkout_without_a_store_is_latent(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    found = report(tmp_path / "a")
    assert (found.checkouts[0].state, found.checkouts[0].store) == ("absent", None)
    assert "latent" in found.checkouts[0].reason
    assert verdict_of(found) is ExitCode.REFUSED
    assert verdict_of(found, allow_absent=True) is ExitCode.PROVED


@root_only
def test_a_closed_checkout(public: Path) -> None:
    plant(public / "a" / STORE)
    (public / "a").chmod(0o700)
    found = as_nobody(lambda: report(public / "a"))
    assert "door closed" in found.checkouts[0].reason
    (public / "a").chmod(0o755)
    (public / "a/.env").write_text("X=1")
    (public / "a/.env").chmod(0o600)
    found = as_nobody(lambda: report(public / "a"))
    assert found.checkouts[0].state == "unmeasurable"
    assert "which store its recorder writes" in found.checkouts[0].reason


def test_every_place_where_rows_may_be(tmp_path: Path) -> None:
    checkout, home = tmp_path / "c", tmp_path / "home"
    plant(checkout / STORE, archives=1)
    plant(checkout / ".neo-ai-data/neo-sqlite/memory-core.sqlite", archives=2)
    plant(checkout / "own/db.sqlite", archives=3)
    plant(checkout / "plane/sqlite/memory-core-graph.sqlite", archives=4)
    plant(tmp_path / "env.sqlite", archives=5)
    plant(home / ".neo-ai-data/memory-core.sqlite", archives=6)
    (checkout / ".env").write_text("NEO_MEMORY_DB_PATH=./own/db.sqlite # mine\nexport NEO_PLANE_DATA_ROOT='plane'\n")
    found = report(checkout, home=home, environ={"NEO_MEMORY_DB_PATH": str(tmp_path / "env.sqlite")})
    assert [counts(one)[0] for one in found.stores] == [3, 5, 4, 1, 2, 6]
    assert [checkout.seat for checkout in found.checkouts] == ["c", "(user)"]
    assert found.checkouts[0].store == found.stores[0].id
    assert found.checkouts[0].also == tuple(one.id for one in found.stores[1:5])


def test_an_override_that_dangles_is_told(tmp_path: Path) -> None:
    plant(tmp_path / "c" / STORE, archives=1)
    (tmp_path / "c/.env").write_text("NEO_MEMORY_DB_PATH=link.sqlite")
    (tmp_path / "c/link.sqlite").symlink_to("gone.sqlite")
    found = report(tmp_path / "c")
    assert found.checkouts[0].state == "unmeasurable"
    assert "dangling" in found.checkouts[0].reason
    assert counts(found.stores[0]) == (1, 0)


def test_roots(tmp_path: Path) -> None:
    first = _neo(tmp_path / "Shared/codex/neomjs/neo")
    second = _neo(tmp_path / "Shared/clio/neomjs/neo", "neo-agent-brain")
    third = plant(tmp_path / "Shared/old" / STORE).parent.parent.parent
    below = _neo(third / "inside")  # a home directory may hold both
    _neo(tmp_path / "Shared/codex/neomjs/neo/node_modules/neo.mjs")
    _neo(tmp_path / "Shared/1/2/3/4/5/6/too-deep")
    _neo(tmp_path / "Shared/other", "something-else")
    (tmp_path / "Shared/concepts/.neo-ai-data/concepts").mkdir(parents=True)
    (tmp_path / "Shared/loop").symlink_to(".")
    (tmp_path / "Shared/again").symlink_to("codex")
    assert set(_paths(checkouts(roots=[tmp_path / "Shared"]))) >= {second, third, below}
    found = {path.resolve() for path in _paths(checkouts(roots=[tmp_path / "Shared", tmp_path]))}
    assert found == {first, second, third, below}


@root_only
def test_a_root_with_a_closed_door(public: Path) -> None:
    _neo(public / "r/a")
    (public / "r/shut").mkdir(mode=0o700)
    found = as_nobody(lambda: checkouts(roots=[public / "r"]))
    assert _paths(found) == [public / "r/a", public / "r/shut"]
    assert found[1].trouble is not None
    assert "cannot be searched" in found[1].trouble.reason


@root_only
def test_a_worktree_with_a_closed_door(public: Path) -> None:
    plant(public / "c" / STORE)
    (public / "c/.claude/worktrees/shut").mkdir(mode=0o700, parents=True)
    found = as_nobody(lambda: report(public / "c"))
    assert [checkout.state for checkout in found.checkouts] == ["measured", "unmeasurable"]
    assert "door closed" in found.checkouts[1].reason


def _git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.email=a@b", "-c", "user.name=x")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    main = tmp_path / "main"
    main.mkdir()
    _git(main, "init", "-q")
    _git(main, "commit", "-q", "--allow-empty", "-m", "x")
    return main


def _worktree(main: Path, path: Path) -> Path:
    _git(main, "worktree", "add", "-q", "--detach", str(path))
    return path


def test_worktrees(repository: Path, tmp_path: Path) -> None:
    """F40: `.git` may be a file; any member of the family leads to the others that have a store."""
    linked = _worktree(repository, tmp_path / "linked\nline")
    empty = _worktree(repository, tmp_path / "empty")
    gone = _worktree(repository, tmp_path / "gone")
    shutil.rmtree(gone)
    claude = repository / ".claude/worktrees/otter"
    for path in (repository, linked, claude):
        plant(path / STORE)
    assert (linked / ".git").is_file()
    said = subprocess.run(
        ["git", "-C", str(linked), "worktree", "list", "--porcelain", "-z"], check=True, capture_output=True
    ).stdout
    listed = {os.fsdecode(line[9:]) for line in said.split(b"\0") if line.startswith(b"worktree ")}
    assert {str(path) for path in worktrees_of(linked)} == listed - {str(gone)}
    family = {repository, linked, claude}
    assert set(_paths(checkouts(repository))) == family
    assert set(_paths(checkouts(linked))) == family - {claude}
    assert set(_paths(checkouts(empty))) == {empty, repository, linked}
    assert _paths(checkouts(repository, git_worktrees=False)) == [repository]
    with pytest.raises(RefusedError, match="1 checkout expected, 3 found"):
        checkouts(repository, expect=1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A=b", "b"),
        ("export A=b", "b"),
        ("  A = b  ", "b"),
        ("A: b", "b"),
        ("A='b c' # d", "b c"),
        ('A="b#c"', "b#c"),
        ('A="b\\nc"', "b\nc"),
        ("A='b\\nc'", "b\\nc"),
        ('A="b\nc"', "b\nc"),
        ("A=`b'\"c`", "b'\"c"),
        ("A=b # c", "b"),
        ("A=b#c", "b"),
        ("A=", ""),
        ("# A=b", None),
        ("B=c\r\nA=b\r\n", "b"),
        ("A=first\nA=last", "last"),
        ("\ufeffA=b", "b"),
        ("A=$HOME/~x", "$HOME/~x"),
        ("A='it''s", "'it''s"),
        ("AA=b", None),
    ],
)
def test_dotenv(text: str, value: str | None) -> None:
    assert dotenv.parse(text).get("A") == value


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("false", False),
        ("0", False),
        ("OFF", False),
        ("true", True),
        ("1", True),
        ("", None),
        (None, None),
        ("x", None),
    ],
)
def test_switches(value: str | None, told: bool | None) -> None:
    assert switch(value) is told


def test_a_store_named_in_env_that_is_not_there_is_latent_whatever_else_is_reached(tmp_path):
    """The recorder goes by the name: an unsealed file would come into being after the cut."""
    path = tmp_path / "codex"
    plant_store(path / ".neo-ai-data/sqlite/memory-core-graph.sqlite", archives=1, actions=1)
    (path / ".env").write_text("NEO_MEMORY_DB_PATH=elsewhere/x.sqlite\n")
    made = measure(discover([path], environ={}, home=tmp_path), clock=lambda: datetime.now(UTC), environ={})
    (checkout,) = made.checkouts
    assert (checkout.state, checkout.store) == ("absent", None)
    assert "NEO_MEMORY_DB_PATH in .env" in checkout.reason
    assert checkout.also == (made.stores[0].id,)
    assert verdict_of(made) is ExitCode.REFUSED


def test_an_env_that_is_a_pipe_is_not_waited_for(tmp_path):
    path = tmp_path / "codex"
    plant_store(path / ".neo-ai-data/sqlite/memory-core-graph.sqlite", archives=1, actions=1)
    os.mkfifo(path / ".env")
    made = measure(discover([path], environ={}, home=tmp_path), clock=lambda: datetime.now(UTC), environ={})
    assert made.checkouts[0].state == "unmeasurable"
    assert "not a regular file" in made.checkouts[0].reason
