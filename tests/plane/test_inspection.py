"""Where a graph lives, how a container is, which container it is: over inspections as engines write them."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nl_cutover.errors import RefusedError, UnreachableError
from nl_cutover.plane import evidence, inside
from nl_cutover.plane.durability import configuration
from nl_cutover.plane.engine import Engine, EngineFacts
from nl_cutover.plane.evidence import _Lines
from nl_cutover.plane.locate import Wanted, choose, locate, pin_of, publishes, tied
from nl_cutover.plane.mounts import Home, health_of, home_of

ID = "4f" * 32
FOLDER = "/app/.neo-ai-data/sqlite"
GRAPH = f"{FOLDER}/memory-core-graph.sqlite"
ANONYMOUS = "ab" * 32
FACT = b'{"counts": {}, "bytes": 1}\n'


def mount(kind, source, target=FOLDER, rw=True):
    named = {"Name": source, "Source": f"/var/lib/docker/volumes/{source}/_data"} if kind == "volume" else {}
    return {"Type": kind, "Source": source, "Destination": target, "RW": rw} | named


def inspection(*mounts, env=(), host=None, state=None, labels=None, networks=None, ports=None, restarts=0):
    return {
        "Id": ID,
        "Name": "/mc",
        "Image": "sha256:" + "cd" * 32,
        "RestartCount": restarts,
        "Config": {
            "Hostname": ID[:12],
            "Image": "nl-cutover-mc",
            "Env": list(env),
            "Labels": labels or {},
            "WorkingDir": "/app",
            "Cmd": ["nl-cutover", "mc", "serve"],
        },
        "HostConfig": {"NetworkMode": "default", "AutoRemove": False} | (host or {}),
        "State": {"Status": "running", "Running": True, "StartedAt": "2026-08-24T10:00:00Z", "ExitCode": 0}
        | (state or {}),
        "Mounts": list(mounts),
        "NetworkSettings": {"Networks": networks or {}, "Ports": ports or {}},
    }


def listed(name, service="mc-server", project=None, port=None, state="running", ip="127.0.0.1"):
    labels = {"com.docker.compose.service": service} if service else {}
    labels |= {"com.docker.compose.project": project} if project else {}
    ports = [{"IP": ip, "PublicPort": port, "PrivatePort": 3001}] if port else []
    return {"Id": name.ljust(64, "0"), "Names": [f"/{name}"], "Labels": labels, "State": state, "Ports": ports}


@pytest.mark.parametrize(
    ("facts", "kind", "refused"),
    [
        (inspection(mount("volume", "shared-sqlite-data")), "volume", None),
        (inspection(mount("volume", ANONYMOUS)), "volume", "anonymous"),
        (inspection(mount("volume", ANONYMOUS), host={"AutoRemove": True}), "volume", "--rm"),
        (inspection(mount("volume", "named"), host={"AutoRemove": True}), "volume", None),
        (inspection(mount("bind", "/srv/neo", "/app/.neo-ai-data")), "bind", None),
        (inspection(mount("bind", "/srv/graph.sqlite", GRAPH)), "file", "single file"),
        (inspection(), "layer", "own layer"),
        (inspection(mount("volume", "other", "/app/.neo-ai-data/sqlite-backups")), "layer", "own layer"),
        (inspection(mount("tmpfs", "")), "tmpfs", "memory"),
        (inspection(host={"Tmpfs": {FOLDER: ""}}), "tmpfs", "memory"),
        (inspection(mount("volume", "deep"), mount("bind", "/srv", "/app")), "volume", None),
        (inspection(mount("volume", "all", "/app"), host={"Tmpfs": {FOLDER: ""}}), "tmpfs", "memory"),
        (inspection(mount("volume", "v", "/data"), env=["NEO_MEMORY_DB_PATH=/data/g.sqlite"]), "volume", None),
        (
            inspection(mount("volume", "v", "/app/data"), env=["NEO_MEMORY_DB_PATH=data/../data/g.sqlite"]),
            "volume",
            None,
        ),
        (inspection(mount("volume", "v", "/data"), env=["NEO_MEMORY_DB_PATH=/data-2/g.sqlite"]), "layer", "own layer"),
    ],
)
def test_where_the_graph_lives(facts, kind, refused):
    home = home_of(facts)
    assert home.kind == kind
    assert (home.refusal is None) is (refused is None)
    assert (refused or "") in (home.refusal or "")


def test_the_host_path_of_a_bound_folder():
    assert home_of(inspection(mount("bind", "/srv/neo", "/app/.neo-ai-data"))).host_path == (
        "/srv/neo/sqlite/memory-core-graph.sqlite"
    )


@pytest.mark.parametrize(
    ("state", "restarts", "kind", "looping"),
    [
        ({}, 0, "none", False),
        ({"Health": {"Status": "none"}}, 0, "none", False),
        ({"Health": {"Status": "starting", "Log": []}}, 0, "starting", False),
        ({"Health": {"Status": "healthy"}}, 2, "healthy", False),
        (
            {"Health": {"Status": "unhealthy", "Log": [{"Output": "old"}, {"Output": "no\nplane"}]}},
            0,
            "unhealthy",
            False,
        ),
        ({"Status": "restarting", "Running": False, "Restarting": True, "ExitCode": 1}, 9, "stopped", True),
        ({"Status": "exited", "Running": False, "ExitCode": 137, "OOMKilled": True}, 0, "stopped", False),
    ],
)
def test_the_kinds_of_health(state, restarts, kind, looping):
    health = health_of(inspection(state=state, restarts=restarts))
    assert (health.kind, health.looping, health.restarts) == (kind, looping, restarts)
    if kind == "unhealthy":
        assert health.said == "no plane"
    if state.get("OOMKilled"):
        assert "memory" in health.said


def test_a_container_that_does_not_run_gives_no_answer_rather_than_an_empty_one():
    for state in ("exited", "paused", "restarting", "created", "dead"):
        pin = pin_of(inspection(state={"Status": state, "ExitCode": 137}))
        with pytest.raises(UnreachableError, match="cannot be looked up"):
            pin.running()
    pin_of(inspection()).running()


def test_by_name_by_labels_by_port():
    one, two = listed("a-mc-1", project="a", port=3102), listed("b-mc-1", project="b")
    all_ = [one, two, listed("other", service=None)]
    url = "http://127.0.0.1:3102/mc/mcp"
    assert choose(all_, Wanted(url))[0] == [one]
    assert choose(all_, Wanted(url, container="b-mc-1"))[0] == [two]
    assert choose(all_, Wanted(url, container="b-mc-"))[0] == [], "a part of a name is no name"
    assert choose(all_, Wanted(url, container=two["Id"][:12]))[0] == [two]
    assert choose(all_, Wanted(url, service="mc-server"))[0] == [one, two]
    assert choose(all_, Wanted(url, project="b"))[0] == [two]
    assert choose(all_, Wanted("http://127.0.0.1:9/mc/mcp"))[0] == []


def test_another_machines_port_is_not_this_ones():
    elsewhere = Engine(EngineFacts("ssh://ops@plane", "--engine", "Engine 27", "1.46", local=False, podman=False), None)
    with pytest.raises(UnreachableError, match="another machine"):
        locate(elsewhere, Wanted("http://127.0.0.1:3102/mc/mcp"))


def test_behind_a_reverse_proxy_it_is_the_service_of_the_same_project():
    proxy = listed("a-ingress-1", service="ingress", project="a", port=3102)
    core, kb = listed("a-mc-server-1", project="a"), listed("a-kb-server-1", service="kb-server", project="a")
    namesake = listed("b-mc-server-1", project="b")
    assert choose([proxy, core, kb, namesake], Wanted("http://localhost:3102/mc/mcp"))[0] == [core]


@pytest.mark.parametrize(
    ("ip", "url", "leads"),
    [
        ("127.0.0.1", "http://127.0.0.1:3102/mc/mcp", True),
        ("127.0.0.1", "http://localhost:3102/mc/mcp", True),
        ("0.0.0.0", "http://127.0.0.1:3102/mc/mcp", True),
        ("127.0.0.2", "http://127.0.0.1:3102/mc/mcp", False),
        ("0.0.0.0", "https://plane.example:3102/mc/mcp", False),
        ("127.0.0.1", "http://127.0.0.1:3103/mc/mcp", False),
    ],
)
def test_a_published_port_leads_to_the_url_or_not(ip, url, leads):
    assert publishes(listed("mc", port=3102, ip=ip), url) is leads


def test_a_pin_sees_another_start_image_and_volume():
    pin = pin_of(inspection(mount("volume", "v")))
    assert pin.moved(pin_of(inspection(mount("volume", "v")))) == []
    again = inspection(mount("volume", "w"), state={"StartedAt": "2026-08-24T11:00:00Z"})
    again["Image"] = "sha256:00"
    assert [words.split()[0] for words in pin.moved(pin_of(again))] == ["started_at", "image_id", "the"]


def test_the_configuration_that_makes_it_again():
    facts = inspection(
        mount("volume", "named"),
        mount("volume", ANONYMOUS, "/cache", rw=False),
        host={
            "Binds": ["named:/app/.neo-ai-data/sqlite:rw", "/srv/token:/run/secrets/t:ro"],
            "Mounts": [{"Type": "volume", "Target": "/cache"}, {"Type": "tmpfs", "Target": "/tmp"}],
            "NetworkMode": "a_default",
            "PortBindings": {"3001/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}]},
        },
        networks={
            "a_default": {"Aliases": ["mc-server", ID[:12]], "IPAMConfig": None, "IPAddress": "172.18.0.2"},
            "more": {"Aliases": ["x"], "IPAMConfig": {"IPv4Address": "10.1.0.9"}},
        },
        ports={"3001/tcp": [{"HostIp": "127.0.0.1", "HostPort": "32768"}]},
        labels={"com.docker.compose.project": "a"},
    )
    config, further = configuration(facts)
    assert "Hostname" not in config
    assert config["Labels"] == {"com.docker.compose.project": "a"}
    host = config["HostConfig"]
    assert host["Binds"] == facts["HostConfig"]["Binds"]
    assert host["Mounts"] == [
        {"Type": "tmpfs", "Target": "/tmp"},
        {"Type": "volume", "Source": ANONYMOUS, "Target": "/cache", "ReadOnly": True},
    ]
    assert host["PortBindings"]["3001/tcp"][0]["HostPort"] == "32768", "a port the engine chose is kept"
    assert config["NetworkingConfig"]["EndpointsConfig"]["a_default"]["Aliases"] == ["mc-server"]
    assert further["more"]["IPAMConfig"] == {"IPv4Address": "10.1.0.9"}


def test_ports_that_the_engine_published_by_itself_are_kept():
    """With -P the configuration names none."""
    bound = [{"HostIp": "0.0.0.0", "HostPort": "49153"}]
    facts = inspection(host={"PublishAllPorts": True, "PortBindings": {}}, ports={"3001/tcp": bound, "9/tcp": None})
    assert configuration(facts)[0]["HostConfig"]["PortBindings"] == {"3001/tcp": bound}


@given(st.lists(st.integers(0, 9), max_size=6), st.integers(1, 7), st.integers(0, 40))
def test_an_answer_counts_only_when_it_is_whole(values, size, lost):
    import json

    parts = [{"reader": "r", "now": 1}, *values, {"end": len(values)}]
    text = "".join(json.dumps(part) + "\n" for part in parts).encode()
    cut = text[: len(text) - lost] if lost else text
    got = []
    lines = _Lines(got.append)
    try:
        for at in range(0, len(cut), size):
            lines.feed(cut[at : at + size])
        assert lines.end()["reader"] == "r"
        whole = True
    except (ValueError, KeyError, TypeError):
        whole = False
    assert whole is (lost == 0)
    assert got == (values if whole else got)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param([b"\0" * (1 << 20)] * 1000, id="a line without an end"),
        pytest.param([b"[" * 100_000, b"\n"], id="nested beyond reason"),
        pytest.param([b'{"reader": "r", "now": 1}\n{"end": 0}\n'], id="no facts"),
        pytest.param([b'{"reader": "r", "now": 1}\n{"counts": []}\n{"end": 1}\n'], id="other facts"),
        pytest.param(
            [b'{"reader": "r", "now": 1' + b"0" * 400 + b"}\n", FACT, b'{"end": 1}\n'], id="a clock beyond numbers"
        ),
    ],
)
def test_what_a_container_says_instead_of_an_answer_is_none(monkeypatch, said):
    def ran(engine, pin, orders, out):
        for chunk in said:
            out(chunk)

    monkeypatch.setattr(evidence, "run_reader", ran)
    with pytest.raises(UnreachableError, match=r"cut short, or is none|does not end"):
        evidence.graph_facts(None, pin_of(inspection()), lambda: 0)


def test_a_python_without_sqlite3_is_as_none():
    code = "import sys; sys.modules['sqlite3'] = None; exec(open(sys.argv[1]).read(), {'__name__': '__main__'})"
    done = subprocess.run([sys.executable, "-c", code, inside.__file__], input=b"{}", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (127, b"")


class Listing:
    """The client of an engine that lists these containers."""

    def __init__(self, *running):
        self._running = running

    def containers(self, all=False):
        return list(self._running)


def engine_with(*running, local=True):
    facts = EngineFacts("unix:///e.sock", "default", "Engine 27", "1.46", local=local, podman=False)
    return Engine(facts, Listing(*running))


def test_the_data_root_that_every_memory_core_has_ties_nothing():
    url, root = "http://127.0.0.1:3102/mc/mcp", "/app/.neo-ai-data"
    with pytest.raises(RefusedError, match="nothing ties"):
        tied(engine_with(), pin_of(inspection(mount("volume", "v"))), url, "p", root)
    of_plane = pin_of(inspection(mount("volume", "v"), env=["NEO_PLANE_ID=p"]))
    assert len(tied(engine_with(), of_plane, url, "p", root).proved) == 2


def test_each_of_both_ties_is_proved_or_said_not_to_be():
    url = "http://127.0.0.1:3102/mc/mcp"
    of_plane, of_none = (pin_of(inspection(mount("volume", "v"), env=env)) for env in (["NEO_PLANE_ID=p"], []))
    own = listed("mc", port=3102) | {"Id": of_plane.id}
    both = tied(engine_with(own), of_plane, url, "p", None)
    assert ([w.split(":")[0] for w in both.proved], both.not_proved) == (["published port", "plane id"], [])
    for engine in (engine_with(), engine_with(own, local=False)):
        alone = tied(engine, of_plane, url, "p", None)
        assert [w.split(":")[0] for w in alone.proved] == ["plane id"]
        assert [w.split(":")[0] for w in alone.not_proved] == ["published port"]
    for pin, answered in ((of_none, "p"), (of_plane, None)):
        led = tied(engine_with(own), pin, url, answered, None)
        assert [w.split(":")[0] for w in led.proved] == ["published port"]
        assert [w.split(":")[0] for w in led.not_proved] == ["plane id"]
    stopped = tied(engine_with(), of_plane, url, "p", None, silent=True)
    assert "silent while it was stopped" in stopped.proved[0]
    assert stopped.not_proved == []


def test_a_home_is_named():
    for kind, word in (
        ("volume", "volume"),
        ("bind", "folder"),
        ("file", "file"),
        ("tmpfs", "memory"),
        ("layer", "layer"),
    ):
        assert word in Home("/g", kind, "s").words


def test_a_proxy_is_not_taken_for_the_memory_core_behind_it():
    class Api:
        def containers(self, all):
            return [listed("caddy", service=None, port=3102), listed("named", service=None)]

        def inspect_container(self, _):
            return inspection()

    engine = Engine(EngineFacts("unix:///e.sock", "default", "Engine 27", "1.46", local=True, podman=False), Api())
    url = "http://127.0.0.1:3102/mc/mcp"
    with pytest.raises(UnreachableError, match=r"no Memory Core: caddy .*NEO_MEMORY_DB_PATH"):
        locate(engine, Wanted(url))
    assert locate(engine, Wanted(url, container="named")).home.kind == "layer"
