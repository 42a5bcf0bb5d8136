"""Which engine, and each way of having none in its own words. No engine is needed here: what answers is a fake."""

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

import pytest

from nl_cutover.errors import UnreachableError
from nl_cutover.migration.containers import NoContainer, container_of
from nl_cutover.plane.engine import Choice, Engine, NoEngine, choose, connect, shown
from nl_cutover.plane.locate import Wanted

from ..conftest import Operator

VERSION = {"Version": "27.0", "ApiVersion": "1.46", "MinAPIVersion": "1.24", "Components": [{"Name": "Engine"}]}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Short paths: a socket's name has 107 bytes."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def context(home: Path, name: str, url: str, current: bool = False) -> None:
    folder = home / ".docker" / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest()
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps({"Name": name, "Endpoints": {"docker": {"Host": url}}}))
    if current:
        (home / ".docker" / "config.json").write_text(json.dumps({"currentContext": name}))


@contextmanager
def fake_engine(path: Path, answers: dict[str, object], oldest: float = 0):
    class Handler(BaseHTTPRequestHandler):
        def address_string(self):
            return "client"

        def log_message(self, *_):
            pass

        def do_GET(self):
            version, _, rest = self.path.removeprefix("/v").partition("/")
            known = (rest if self.path.startswith("/v1") else self.path.lstrip("/")).partition("?")[0]
            old = self.path.startswith("/v1") and float(version.partition(".")[2]) < oldest
            body = json.dumps({"message": f"client version {version} is too old"} if old else answers.get(known, "OK"))
            self.send_response(400 if old else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

    with ThreadingUnixStreamServer(str(path), Handler) as server:
        server.handle_error = lambda *_: None  # a client that knocks and leaves
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def nowhere(home: Path) -> str:
    return f"unix://{home}/nowhere.sock"


def test_flag_before_environment_before_context_before_default(tmp_path):
    context(tmp_path, "desktop", "unix:///desktop.sock", current=True)
    context(tmp_path, "other", "unix:///other.sock")
    host = {"DOCKER_HOST": "unix:///host.sock"}
    assert choose("unix:///flag.sock", host, tmp_path) == Choice("unix:///flag.sock", "--engine")
    assert choose("other", host, tmp_path) == Choice("unix:///other.sock", "--engine, context other")
    assert choose(None, host, tmp_path) == Choice("unix:///host.sock", "DOCKER_HOST")
    assert choose(None, {"DOCKER_CONTEXT": "other"}, tmp_path).url == "unix:///other.sock"
    assert choose(None, {}, tmp_path) == Choice("unix:///desktop.sock", "context desktop")
    (tmp_path / ".docker" / "config.json").write_text("{}")
    (tmp_path / "there.sock").touch()
    default = f"unix://{tmp_path}/there.sock"
    assert choose(None, {}, tmp_path, default) == Choice(default, "default")
    assert choose("none", host, tmp_path).kind == "declined"


def test_a_context_that_is_not_there_is_not_the_default_one(tmp_path):
    assert choose(None, {"DOCKER_CONTEXT": "gone"}, tmp_path).kind == "context"
    assert "gone" in choose("gone", {}, tmp_path).reason
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker" / "config.json").write_text("{")
    assert choose(None, {}, tmp_path).kind == "context"


def test_no_engine_on_this_machine_is_not_the_same_as_a_socket_of_the_user(tmp_path):
    environ = {"XDG_RUNTIME_DIR": str(tmp_path / "run")}
    none = choose(None, environ, tmp_path, nowhere(tmp_path))
    assert (none.kind, none.reason) == ("none", "no engine on this machine")
    (tmp_path / "run" / "podman").mkdir(parents=True)
    (tmp_path / "run" / "podman" / "podman.sock").touch()
    found = choose(None, environ, tmp_path, nowhere(tmp_path))
    assert found.kind == "absent"
    assert "podman/podman.sock" in found.next


def kind_of(url: str, deadline: float = 0.3) -> NoEngine:
    found = connect(Choice(url, "DOCKER_HOST"), deadline_s=deadline)
    assert isinstance(found, NoEngine)
    assert found.reason
    assert isinstance(found.error(), UnreachableError)
    return found


def test_each_way_of_not_answering_has_its_own_word(place):
    assert kind_of("unix://gone.sock").kind == "absent"
    os.symlink("gone.sock", "link.sock")
    assert "link to nowhere" in kind_of("unix://link.sock").reason
    Path("file.sock").touch()
    assert kind_of("unix://file.sock").kind == "absent"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind("deaf.sock")
    assert kind_of("unix://deaf.sock").kind == "deaf"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind("silent.sock")
        silent.listen(1)
        assert kind_of("unix://silent.sock").kind == "silent"
    for number, answer in enumerate(([], {"ApiVersion": "x.y"}, VERSION | {"Components": [None]})):
        with fake_engine(Path(f"odd-{number}.sock"), {"version": answer}):
            assert kind_of(f"unix://odd-{number}.sock", 5).kind == "failed"
    for url in ("tcp://127.0.0.1:1", "tcp://127.0.0.1:99999", "unix:///a\0b", "no://engine"):
        assert kind_of(url, 2).kind == "failed"


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed to be denied")
def test_a_socket_of_root_alone_denies(place):
    place.chmod(0o755)
    for folder in place.parents:
        if folder.stat().st_mode & 0o055 != 0o055 and folder != Path("/"):
            folder.chmod(0o755)
    with fake_engine(Path("root.sock"), {"version": VERSION}):
        Path("root.sock").chmod(0o600)
        code = (
            "import sys; sys.path[:0] = sys.argv[2:]\n"
            "from nl_cutover.plane.engine import Choice, connect\n"
            "print(connect(Choice('unix://' + sys.argv[1], 'default')).kind)"
        )
        command = [sys.executable, "-c", code, str(place / "root.sock"), *sys.path]
        demoted = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
        done = subprocess.run(demoted, capture_output=True, text=True, timeout=60, check=False)
    if "Permission denied" in done.stderr and not done.stdout:
        pytest.skip("the other user cannot read this checkout")
    assert done.stdout.strip() == "denied", done.stderr


def test_an_engine_says_what_it_is(place):
    with fake_engine(Path("e.sock"), {"version": VERSION}):
        found = connect(Choice(f"unix://{place}/e.sock", "default"))
    assert isinstance(found, Engine)
    assert (found.facts.server, found.facts.api_version, found.facts.podman) == ("Engine 27.0", "1.46", False)
    assert found.facts.local


def test_podman_is_named(place):
    with fake_engine(Path("p.sock"), {"version": VERSION | {"Components": [{"Name": "Podman Engine"}]}}):
        found = connect(Choice(f"unix://{place}/p.sock", "default"))
    assert found.facts.podman
    assert found.facts.server == "Podman 27.0"


def test_an_engine_that_takes_no_old_api_is_asked_in_its_own(place):
    newest = VERSION | {"ApiVersion": "1.52", "MinAPIVersion": "1.44"}
    with fake_engine(Path("n.sock"), {"version": newest, "containers/json": []}, oldest=44):
        found = connect(Choice(f"unix://{place}/n.sock", "default"))
        assert isinstance(found, Engine), found
        with found.asking("the listing of containers") as api:
            assert api.containers() == []


def test_an_engine_that_ends_in_between_is_one_sentence(place):
    with fake_engine(Path("e.sock"), {"version": VERSION}):
        found = connect(Choice(f"unix://{place}/e.sock", "default"))
    os.unlink("e.sock")
    with pytest.raises(UnreachableError, match="did not carry out the listing of containers"):
        with found.asking("the listing of containers") as api:
            api.containers()


def test_without_the_sdk_the_extra_is_named(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "docker", None)
    with fake_engine(Path("e.sock"), {"version": VERSION}):
        found = connect(Choice(f"unix://{place}/e.sock", "default"))
    assert found.kind == "no-sdk"
    assert "nl-cutover[docker]" in found.next


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("unix:///var/run/docker.sock", True),
        ("tcp://127.0.0.1:2375", True),
        ("tcp://10.0.0.5:2375", False),
        ("ssh://ops@plane.example", False),
    ],
)
def test_an_engine_elsewhere_has_other_paths(url, local):
    assert Choice(url, "DOCKER_HOST").local is local


def measure(*checkouts, **environ):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NEO_", "NL_CUTOVER", "DOCKER_"))}
    code = (
        "import sys\n"
        "from nl_cutover.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    print([n for n in ('docker', 'requests', 'httpx', 'rich') if n in sys.modules], file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "measure", *map(str, checkouts), "--format", "json"]
    return subprocess.run(command, env=kept | environ, capture_output=True, text=True, timeout=60, check=False)


def test_measure_says_what_it_looked_at_and_imports_no_sdk_without_an_engine(place, checkout):
    planted = checkout("live")
    for environ, said, warned in (
        ({"DOCKER_HOST": f"unix://{place}/gone.sock"}, "could not look", True),
        ({"NL_CUTOVER_ENGINE": "none"}, "not looked at", False),
    ):
        done = measure(planted, "--custody", place / "none", HOME=str(place), **environ)
        report = json.loads(done.stdout)
        assert said in report["containers"]
        assert any("is not known" in warning for warning in report["warnings"]) is warned
        assert done.stderr.splitlines()[-1] == "[]", "no client of a network and no terminal was imported"
        assert report["totals"]["archives"] > 0


def test_an_engine_that_was_declined_is_not_missed_for_a_container_that_the_settings_name():
    none = {kind: NoEngine(kind, "why") for kind in ("declined", "denied", "none")}
    behind, named = Wanted("http://127.0.0.1:9/mc/mcp"), Wanted("http://127.0.0.1:9/mc/mcp", container="mc")
    for kind in none:
        assert container_of(none[kind], behind, lambda: 0) == NoContainer("why")
        with pytest.raises(UnreachableError):
            container_of(none[kind], behind, lambda: 0, required=True)
    assert container_of(none["declined"], named, lambda: 0) == NoContainer("why")
    with pytest.raises(UnreachableError):
        container_of(none["denied"], named, lambda: 0)


def test_two_sources_of_evidence_are_one_too_many(operator):
    for words in (("--evidence", "container", "--graph", "g.sqlite"), ("--evidence", "file")):
        assert operator("settle", *words).code == 2


def test_what_an_error_quotes_cannot_steer_the_terminal(place, operator):
    done = operator("plane", "backup", "--engine", "unix:///a\x1b]0;b\x07")
    assert done.code == 5
    assert "\x1b" not in done.err
    assert "a\\x1b]0;b\\x07" in done.err


SECRET = "hunter2"


@pytest.mark.parametrize(
    "url",
    [
        f"ssh://ops:{SECRET}@plane.example",
        f"ssh://ops:{SECRET}/x@plane.example",
        f"SSH://ops:{SECRET}@plane.example:99999",
        f"ssh://ops:{SECRET}://x@plane.example",
        f"tcp:///ops:{SECRET}@plane.example:1",
        f"tcp://ops:{SECRET}@plane.example:1",
        f"tcp://{SECRET}@plane.example:1",
        f"https://ops:{SECRET}@plane.example:1",
        f"ops:{SECRET}@plane.example:1",
        f"{SECRET}@plane.example:1",
    ],
)
def test_credentials_in_the_name_of_an_engine_are_not_shown(tmp_path, url):
    context(tmp_path, "held", url, current=True)
    for chosen in (choose(url, {}, tmp_path), choose(None, {"DOCKER_HOST": url}, tmp_path), choose(None, {}, tmp_path)):
        refused = connect(chosen, deadline_s=1)
        assert SECRET not in refused.reason + refused.next
        assert "@plane.example" in refused.reason


def test_the_name_of_a_user_is_no_secret_and_a_path_has_no_user():
    for url in ("ssh://ops@plane.example", "unix:///run/user/me:1@home/docker.sock", "tcp://10.0.0.5:2375"):
        assert shown(url) == url


def test_credentials_in_the_name_of_an_engine_are_printed_and_kept_nowhere(place, core, checkout):
    url, planted = f"ssh://ops:{SECRET}@127.0.0.1", checkout("live")
    operator = Operator(place, core.url, core.token, core.shape)
    by_host = {"DOCKER_HOST": url, "NL_CUTOVER_ENGINE": "", "NL_CUTOVER_DEBUG": "1"}
    said = ""
    for words in (
        ("plane", "backup"),
        ("measure", planted),
        ("migrate", planted, "--owner", "x", "--telemetry", "leave"),
        ("verify", planted),
    ):
        for given, environ in ((("--engine", url), {}), ((), by_host)):
            done = operator(*words, *given, **environ)
            said += done.out + done.err
    kept = b"".join(path.read_bytes() for path in operator.custody.rglob("*") if path.is_file())
    assert said.count("ops:[redacted]@127.0.0.1") > 4
    assert b"ops:[redacted]@127.0.0.1" in kept
    assert SECRET.encode() not in said.encode() + kept
