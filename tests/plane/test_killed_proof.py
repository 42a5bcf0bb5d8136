"""`plane prove --recreate` killed at any step: the next call names what was set aside and the command that ends it."""

import os
import signal
import subprocess
import time

import pytest
from docker.types import Mount

from nl_cutover.errors import CutoverError, RefusedError
from nl_cutover.plane.durability import recreate
from nl_cutover.plane.engine import Engine
from nl_cutover.plane.locate import Wanted, finished, inspected, locate, pin_of

from .conftest import SECOND, SQLITE
from .scene import Scene
from .test_engine_stops import own_engine  # noqa: F401
from .test_inspection import ID, engine_with, inspection, listed
from .test_returned import FACTS, CutOff, named
from .test_road import until_it_answers

ALWAYS = {"Name": "always", "MaximumRetryCount": 0}
POLICIES = [ALWAYS, {"Name": "on-failure", "MaximumRetryCount": 3}, {"Name": "no", "MaximumRetryCount": 0}]


@pytest.fixture
def sleeping(base):
    """`sleeping(client, policy)`: an engine, and the pin of a container with a named volume whose end is quick."""
    made = []

    def start(client, policy, image=base):
        container = client.containers.run(
            image,
            ["sh", "-c", "trap exit TERM; sleep 600 & wait"],
            detach=True,
            mounts=[Mount(SQLITE, f"nl-cutover-test-aside-{os.getpid()}", type="volume")],
            environment={"NEO_MEMORY_DB_PATH": f"{SQLITE}/g.sqlite"},
            network_mode="none",
            restart_policy=policy,
            healthcheck={"test": ["NONE"]},
        )
        made.append((client, container.name))
        return Engine(FACTS, client.api), inspected(Engine(FACTS, client.api), container.id)

    yield start
    for client, name in made:
        for left in client.containers.list(all=True, filters={"name": name}):
            left.remove(force=True)
        client.volumes.get(f"nl-cutover-test-aside-{os.getpid()}").remove(force=True)


def killed_at(plane: Engine, pin, step: str) -> None:
    """Nothing is carried out after `step`, as after a SIGKILL."""
    cut = Engine(FACTS, CutOff(plane.api, step, OSError(), dead=True))
    with pytest.raises(CutoverError):
        recreate(cut, pin, stopped=lambda: None, deadline_s=20, progress=lambda _: None)


def policy_of(plane: Engine, container: str):
    return plane.api.inspect_container(container)["HostConfig"]["RestartPolicy"]


def look(plane: Engine, pin) -> CutoverError | None:
    """What a verb that is about this container says first."""
    try:
        finished(plane, locate(plane, Wanted("", container=pin.name)))
    except CutoverError as error:
        return error
    return None


STEPS = ("rename", "update_container", "create_container_from_config", "start")
CASES = [
    (step, policy) for step in STEPS for policy in POLICIES if step != "update_container" or policy["Name"] != "no"
]


@pytest.mark.parametrize(("step", "policy"), CASES, ids=lambda part: part if isinstance(part, str) else part["Name"])
def test_the_command_that_is_told_puts_things_right(engine, sleeping, step, policy):
    plane, pin = sleeping(engine, policy)
    assert look(plane, pin) is None
    killed_at(plane, pin, step)
    told = look(plane, pin)
    assert told is not None
    assert f"{pin.name}-before-{pin.id[:12]}" in told.message
    assert "was set aside" in told.message
    if step in ("create_container_from_config", "start"):
        assert policy_of(plane, pin.id)["Name"] == "no", "the old one never comes up beside the new one"
    subprocess.run(["sh", "-c", told.hint], check=True, capture_output=True)
    ((now, name, state),) = named(plane, pin)
    assert (name, state) == (pin.name, "running")
    assert (now == pin.id) is (step != "start")
    assert policy_of(plane, now) == policy
    assert look(plane, pin) is None


@pytest.mark.parametrize(
    ("state", "status", "command"),
    [
        ("running", "Up 2 minutes", "docker rm mc-before-4f4f4f4f4f4f.always"),
        ("running", "Up 2 minutes (healthy)", "docker rm mc-before-4f4f4f4f4f4f.always"),
        (
            "running",
            "Up 2 seconds (health: starting)",
            "wait until mc is healthy, then: docker rm mc-before-4f4f4f4f4f4f.always",
        ),
        ("running", "Up 2 minutes (unhealthy)", "docker rm -f mc && docker rename"),
        ("restarting", "Restarting (1) 2 seconds ago", "docker rm -f mc && docker rename"),
    ],
)
def test_the_old_one_is_removed_only_beside_a_new_one_that_is_well(state, status, command):
    new = listed("mc", state=state) | {"Status": status, "Id": "5e" * 32}
    old = listed("mc-before-4f4f4f4f4f4f.always", state="exited") | {"Id": ID}
    with pytest.raises(RefusedError) as told:
        finished(engine_with(old, new), pin_of(inspection()))
    assert told.value.hint.startswith(command)
    finished(engine_with(old | {"Id": "5e" * 32}, new), pin_of(inspection()))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy["Name"])
def test_undone_it_restarts_by_itself_as_before(engine, sleeping, policy):
    plane, pin = sleeping(engine, policy)
    cut = Engine(FACTS, CutOff(plane.api, "create_container_from_config", KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        recreate(cut, pin, stopped=lambda: None, deadline_s=20, progress=lambda _: None)
    assert named(plane, pin) == [(pin.id, pin.name, "running")]
    assert policy_of(plane, pin.id) == policy


def test_the_one_that_was_set_aside_does_not_come_up_with_the_engine(own_engine, image, sleeping):  # noqa: F811
    import docker

    client = docker.DockerClient(own_engine.url)
    plane, pin = sleeping(client, ALWAYS, image)
    killed_at(plane, pin, "start")
    own_engine.end()
    client = own_engine.start()
    end = time.monotonic() + 30
    while (states := {name: state for _, name, state in named(Engine(FACTS, client.api), pin)})[pin.name] != "running":
        assert time.monotonic() < end, states
        time.sleep(0.2)
    assert {name.partition("-before-")[1]: state for name, state in states.items()} == {
        "": "running",
        "-before-": "exited",
    }


def test_killed_while_the_new_one_starts(container, tmp_path):
    core = container(health={"interval": 2 * SECOND, "start_period": 900 * SECOND}, wait=False, restart_policy=ALWAYS)
    scene = Scene(tmp_path, core, archives=3, actions=0)
    until_it_answers(scene, core)
    run = scene("migrate", *scene.checkouts).json["run"]
    client, name = core.container.client, core.container.name
    proving = scene.start("plane", "prove", run, *scene.checkouts, "--recreate")
    end = time.monotonic() + 60
    while len(both := client.containers.list(all=True, filters={"name": name})) < 2 or not any(
        one.name == name and one.status == "running" for one in both
    ):
        assert time.monotonic() < end
        assert proving.poll() is None, proving.communicate()
        time.sleep(0.02)
    proving.send_signal(signal.SIGKILL)
    proving.communicate()
    aside = f"{name}-before-{core.container.id[:12]}"
    until_it_answers(scene, core)
    for words in (("plane", "status"), ("plane", "prove", run, *scene.checkouts), ("migrate", *scene.checkouts)):
        told = scene(*words)
        assert told.code == 3, told.out
        assert aside in told.out
        assert any(f"docker rm {aside}" in step for step in told.json["next_steps"])
    status = scene("plane", "status")
    assert status.json["container"]["name"] == name
    (hint,) = status.json["next_steps"]
    subprocess.run(["sh", "-c", hint.rpartition("then: ")[2]], check=True, capture_output=True, env=scene.environ)
    core.container = client.containers.get(name)
    assert scene.held() == scene.source()
    assert scene("plane", "status").code == 0
