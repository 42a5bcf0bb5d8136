"""`plane prove` is cut off while the container is away: the old one is there again, or the next call says how."""

import pytest
from docker.types import Mount

from nl_cutover.errors import UnreachableError
from nl_cutover.migration.containers import not_durable
from nl_cutover.plane.durability import recreate
from nl_cutover.plane.engine import Engine, EngineFacts
from nl_cutover.plane.locate import Wanted, inspected, locate
from nl_cutover.testing import embedded_memory_core

from ..conftest import TOKENS
from .conftest import SQLITE
from .scene import Scene

STEPS = ("stop", "rename", "create_container_from_config", "inspect_image", "start")
FACTS = EngineFacts("unix:///e.sock", "test", "Engine", "1.41", local=True, podman=False)


class CutOff:
    """The SDK's client; `step` is carried out, and its answer never comes. `dead`: nothing is carried out after that."""

    def __init__(self, api, step, failure, dead=False):
        self._api, self._step, self._failure, self._dead = api, step, failure, dead

    def __getattr__(self, name):
        found = getattr(self._api, name)
        if (self._step is None and not self._dead) or self._step not in (None, name):
            return found

        def call(*words, **options):
            if self._step is not None:
                found(*words, **options)
            self._step = None
            raise self._failure

        return call


@pytest.fixture
def sleeping(engine, base):
    """An engine, and the pin of a container with a named volume whose end is quick."""
    made = engine.containers.run(
        base,
        ["sh", "-c", "trap exit TERM; sleep 600 & wait"],
        detach=True,
        mounts=[Mount(SQLITE, "nl-cutover-test-returned", type="volume")],
        environment={"NEO_MEMORY_DB_PATH": f"{SQLITE}/g.sqlite"},
        network_mode="none",
    )
    plane = Engine(FACTS, engine.api)
    try:
        yield plane, inspected(plane, made.id)
    finally:
        for left in engine.containers.list(all=True, filters={"name": made.name}):
            left.remove(force=True)
        engine.volumes.get("nl-cutover-test-returned").remove(force=True)


def named(plane, pin):
    listed = plane.api.containers(all=True, filters={"name": pin.name})
    return [(one["Id"], one["Names"][0].lstrip("/"), one["State"]) for one in listed]


@pytest.mark.parametrize("step", STEPS)
def test_cut_off_at_any_step_the_old_one_is_there_again_and_alone(sleeping, step):
    plane, pin = sleeping
    cut = Engine(FACTS, CutOff(plane.api, step, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        recreate(cut, pin, stopped=lambda: None, deadline_s=20, progress=lambda _: None)
    assert named(plane, pin) == [(pin.id, pin.name, "running")]


def test_cut_off_and_not_brought_back_the_next_call_says_how(sleeping):
    plane, pin = sleeping
    cut = Engine(FACTS, CutOff(plane.api, "rename", OSError(), dead=True))
    with pytest.raises(UnreachableError):
        recreate(cut, pin, stopped=lambda: None, deadline_s=20, progress=lambda _: None)
    aside = f"{pin.name}-before-{pin.id[:12]}"
    assert [name for _, name, _ in named(plane, pin)] == [aside]
    for wanted in (Wanted("http://127.0.0.1:9/mc/mcp"), Wanted("", container=pin.name)):
        with pytest.raises(UnreachableError, match="was set aside") as told:
            locate(plane, wanted)
        assert told.value.hint == f"docker rename {aside} {pin.name} && docker start {pin.name}"
    plane.api.rename(aside, pin.name)
    plane.api.start(pin.name)
    assert locate(plane, Wanted("", container=pin.name)).id == pin.id


def test_what_is_proved_by_stopping_it_falls_silent_when_it_is_stopped(container, tmp_path):
    """The ingress is another Memory Core of the same plane, one without a container; only a stop tells them apart."""
    beside = container()
    with embedded_memory_core(tmp_path / "core", tokens=TOKENS) as core:
        scene = Scene(tmp_path / "scene", core, archives=2, actions=0)
        named = ("--container", beside.container.name)
        status = scene("plane", "status", *named)
        assert (status.code, len(status.json["tied"])) == (3, 1)
        assert status.json["not_proved"][0] == status.json["troubles"][0]
        assert "published port" in status.json["not_proved"][0]
        assert any("plane prove" in step for step in status.json["next_steps"])
        migrated = scene("migrate", *scene.checkouts, *named)
        assert [words.split(":")[0] for words in migrated.json["not_proved"]] == ["published port", "durability"]
        assert scene.receipt("migrate")["container"]["not_proved"] == migrated.json["not_proved"]
        run = migrated.json["run"]
        for how in ((), ("--recreate",)):
            refused = scene("plane", "prove", run, *scene.checkouts, *named, *how)
            assert refused.code == 3, refused.out
            assert "still answers while" in refused.json["error"]
            assert inspected(Engine(FACTS, beside.container.client.api), beside.container.id).state == "running"


def test_a_graph_that_is_a_link_is_not_where_the_mounts_say(sleeping):
    plane, pin = sleeping
    graph = pin.home.path
    run = lambda words: plane.api.exec_start(plane.api.exec_create(pin.id, ["sh", "-c", words])["Id"])  # noqa: E731
    run(f"touch {graph}")
    assert not_durable(plane, pin) is None
    run(f"ln -sf /tmp/g.sqlite {graph}")
    assert "is a link to /tmp/g.sqlite" in not_durable(plane, pin)
