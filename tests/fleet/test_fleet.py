"""Three hosts, one playbook: all of them land, or none does."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from tests.conftest import TOKENS
from tests.plane.scene import GRAPH, HELD
from tests.runbooks.scene import ROOT

FLEET = ROOT / "runbooks" / "fleet"
NAMES = ("ada", "ben", "cyn")
STORE = "neo/.neo-ai-data/sqlite/memory-core-graph.sqlite"
SETTINGS = """
url = "http://memory-core:3001/mc/mcp"
custody = "custody"
owner = "neo-operator"
checkouts = [{ seat = "one", path = "../neo" }, { seat = "two", path = "../two" }]
"""
LATE = "5f0c1d2e-0000-4000-8000-000000000009"
pytestmark = pytest.mark.timeout(600)  # the first run builds images and installs Ansible


def prepare(host, seed: int) -> None:
    """A checkout with a store, a second one that is a link to it, settings, a token, a landing that leaves a mark."""
    host.python(
        "from pathlib import Path; from nl_cutover.testing import plant_store; "
        f"plant_store(Path('{STORE}'), archives=4, actions=6, seed={seed})"
    )
    host.sh(
        "mkdir -p two/.neo-ai-data cutover; ln -s ../../neo/.neo-ai-data/sqlite two/.neo-ai-data/sqlite; cd cutover; "
        f"cat > nl-cutover.toml <<'END'{SETTINGS}END\n"
        f"(umask 077; echo NEO_MCP_REMOTE_TOKEN={TOKENS['neo-operator']} > tokens); "
        "printf '#!/bin/sh\\ndate >> landed\\n' > land.sh; chmod 755 land.sh"
    )


def late_row(host) -> None:
    """The host's recorder, its own process, saves an archive after the migration."""
    host.python(
        f"import sqlite3; store = sqlite3.connect('{STORE}'); store.execute(\"INSERT INTO nl_transaction_archive SELECT "
        f"'{LATE}', name, source_tx_id, source_agent_id, source_agent_session_id, app_session_id, origin_writer, "
        'committed_at, archived_at, ops, 0, NULL FROM nl_transaction_archive WHERE rowid = 1"); store.commit()'
    )


def state(host) -> tuple[int, bool]:
    """How often it landed, and whether its store refuses rows."""
    landings = host.sh("cat cutover/landed 2>/dev/null | wc -l")
    seals = host.python(
        f"import sqlite3; print(sqlite3.connect('{STORE}').execute(\"SELECT count(*) FROM sqlite_master "
        "WHERE type = 'trigger'\").fetchone()[0])"
    )
    return int(landings), int(seals) > 0


def source(host) -> list[str]:
    told = host.python(
        f"import json, sqlite3; print(json.dumps(sqlite3.connect('{STORE}').execute("
        '"SELECT source_tx_id FROM nl_transaction_archive").fetchall()))'
    )
    return [tx for (tx,) in json.loads(told)]


@pytest.fixture
def fleet(container, start_host, ansible_playbook, key, tmp_path):
    """The hosts by name, and `fleet.play(...)`: the exit code and the output of the playbook."""
    core = container(environment={"NEO_MCP_ALLOWED_HOSTS": "memory-core"})
    core.container.reload()
    address = core.container.attrs["NetworkSettings"]["IPAddress"]
    hosts = {name: start_host(name, {"memory-core": address}) for name in NAMES}
    for seed, host in enumerate(hosts.values(), start=930):
        prepare(host, seed)
    folder = shutil.copytree(FLEET, tmp_path / "fleet")
    inventory = yaml.safe_load((folder / "inventory.example.yml").read_text())
    assert tuple(inventory["all"]["hosts"]) == NAMES
    for name, host in hosts.items():
        inventory["all"]["hosts"][name] = {"ansible_host": "127.0.0.1", "ansible_port": host.port}
    inventory["all"]["vars"] |= {
        "ansible_user": "ops",
        "ansible_ssh_private_key_file": str(key),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={key.parent / 'known_hosts'} -o IdentitiesOnly=yes",
        "nl_cutover_command": "/opt/nl-cutover/bin/nl-cutover",
        "nl_cutover_folder": "/home/ops/cutover",
        "nl_cutover_tokens": "/home/ops/cutover/tokens",
        "nl_cutover_options": ["--allow-cleartext"],
    }
    (folder / "inventory.yml").write_text(yaml.safe_dump(inventory))
    here = tmp_path / "bin" / "nl-cutover"
    here.parent.mkdir()
    here.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nl_cutover "$@"\n')
    here.chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NEO_", "NL_CUTOVER", "ANSIBLE"))}
    # Sockets of SSH connections lie under its home, and their names may not be long.
    home = tmp_path.parent / "h"
    home.mkdir(exist_ok=True)
    environ = kept | {"HOME": str(home), "PATH": f"{here.parent}{os.pathsep}{kept['PATH']}", "LC_ALL": "C.UTF-8"}
    environ |= {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}

    class Fleet:
        def __init__(self):
            self.hosts, self.core, self.folder = hosts, core, folder

        def play(self, *words: str) -> tuple[int, str]:
            with open(tmp_path / "played", "w+") as said:
                try:
                    done = subprocess.run(
                        [ansible_playbook, "cutover.yml", *words],
                        cwd=folder,
                        env=environ,
                        stdin=subprocess.DEVNULL,
                        stdout=said,
                        stderr=subprocess.STDOUT,
                        timeout=250,
                        check=False,
                    )
                except subprocess.TimeoutExpired as stuck:
                    said.seek(0)
                    doing = "\n".join(f"{name}: {host.container.top()['Processes']}" for name, host in hosts.items())
                    raise AssertionError(f"{said.read()}\nit hangs; on the hosts run:\n{doing}") from stuck
                said.seek(0)
                out = said.read()
            print(f"$ ansible-playbook cutover.yml {' '.join(words)}\n{out}")
            assert TOKENS["neo-operator"] not in out
            return done.returncode, out

        def here(self, *words) -> subprocess.CompletedProcess[str]:
            command = [str(word) for word in (here, *words)]
            return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)

        def held(self) -> list[str]:
            """The source transactions that Memory Core holds, counted inside it without this project's code."""
            code, told = core.container.exec_run(["python3", "-c", HELD.format(GRAPH)])
            assert code == 0, told
            return sorted(row[0] for row in json.loads(told) if row[0])

        def state(self) -> dict[str, tuple[int, bool]]:
            return {name: state(host) for name, host in hosts.items()}

    return Fleet()


def in_one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.docker
def test_all_hosts_land_or_none_does(fleet):
    """A host that is gone refuses the fleet, and so does a late row; when both are mended all land."""
    none_landed = dict.fromkeys(NAMES, (0, False))
    ben, cyn = fleet.hosts["ben"], fleet.hosts["cyn"]
    code, out = fleet.play("--tags", "migrate")
    assert code == 0, out
    assert fleet.state() == none_landed

    cyn.stop()
    code, out = fleet.play("--tags", "cut")
    cyn.start()
    assert code == 2
    assert "Nothing landed on any host." in out
    assert "cyn: no receipt of it is here" in in_one_line(out)
    assert "cyn: ITS SEAL MAY STILL STAND" in out, "it went before it could say"
    assert "ada: ITS SEAL" not in out
    assert fleet.state() == none_landed, "no landing, and the seals of the others are gone"

    late_row(ben)
    code, out = fleet.play("--tags", "cut")
    assert code == 2
    assert "ben: its measure says refused (exit 3); 1 of 5 rows of nl_transaction_archive" in in_one_line(out)
    assert LATE in out
    assert fleet.state() == none_landed

    code, out = fleet.play()
    assert code == 0, out
    assert fleet.state() == dict.fromkeys(NAMES, (1, True))
    assert "hosts: 3 of 3 clear" in out
    assert fleet.held() == sorted(tx for host in fleet.hosts.values() for tx in source(host)), "each row once"

    newest = max((fleet.folder / "home").iterdir())
    check = fleet.here("receipt", "verify", *sorted(newest.glob("*.json")), "--format", "json")
    assert check.returncode == 0, check.stdout
    assert {p.name.split("-")[0] for p in newest.iterdir()} == set(NAMES)
    kinds = [p.name.split("-", 1)[1] for p in sorted(newest.glob("ben-*.json"))]
    assert kinds[0] == "0001-measure.json"
    assert kinds[-2:] == [f"{len(kinds) - 1:04}-cut.json", f"{len(kinds):04}-measure.json"]


def test_its_papers_fit_and_lead_somewhere():
    text = (FLEET / "README.md").read_text()
    assert all(len(line) <= 80 for line in text.splitlines() if not line.startswith("|"))
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (FLEET / target).exists(), target
    for variable in set(re.findall(r"nl_cutover_\w+", (FLEET / "cutover.yml").read_text() + text)):
        assert variable in yaml.safe_load((FLEET / "inventory.example.yml").read_text())["all"]["vars"], variable
