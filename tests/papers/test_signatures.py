"""Signatures by an SSH key, and what is said when a key, an agent or ssh-keygen is not to be had."""

import os
import pty
import select
import shutil
import signal
import subprocess
import sys

import pytest

from tests.conftest import Operator

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")


@pytest.fixture
def desk(tmp_path, receipts) -> Operator:
    """A folder with receipts, two keys and a file that allows the one of them."""
    for name, phrase in (("key", ""), ("other", ""), ("locked", "a phrase")):
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", phrase, "-C", name, "-f", str(tmp_path / name)]
        subprocess.run(make, check=True)
    public = (tmp_path / "key.pub").read_text()
    (tmp_path / "allowed").write_text(f'mia@example.org namespaces="nl-cutover" {public}')
    operator = Operator(tmp_path, None, None)
    operator.environ.pop("SSH_AUTH_SOCK", None)
    return operator


def verify(desk, *words):
    return desk("receipt", "verify", *words, "--allowed-signers", "allowed")


def test_the_last_signature_covers_all_that_it_follows(desk, receipts):
    done = desk("receipt", "sign", receipts[-1], "--key", "key")
    assert done.code == 0, done.err
    assert receipts[-1].with_name(receipts[-1].name + ".sig").read_text().startswith("-----BEGIN SSH SIGNATURE-----")
    report = verify(desk, *receipts)
    assert report.code == 0, report.out
    assert report.json["receipts"][-1]["signer"] == "mia@example.org"
    assert any("mia@example.org signed 0008-measure.json" in sentence for sentence in report.json["proves"])
    assert not any("as it was written" in sentence for sentence in report.json["cannot"])
    assert verify(desk, *receipts, "--signer", "mia@example.org").code == 0
    wrong = verify(desk, *receipts, "--signer", "tom@example.org")
    assert (wrong.code, wrong.json["verdict"]) == (3, "unsigned")


def test_any_change_under_a_signature_is_found_out(desk, receipts):
    assert desk("receipt", "sign", receipts[-1], "--key", "key").code == 0
    body = receipts[-1].read_bytes()
    receipts[-1].write_bytes(body.replace(b'"name":"nl-cutover"', b'"name":"nl-cut0ver"'))
    assert desk("receipt", "verify", *receipts).code == 0, "the control: without the signature nobody can see it"
    done = verify(desk, *receipts)
    assert done.code == 3
    assert "not one of an allowed signer over these bytes" in done.json["next_steps"][0]


def test_a_signature_by_nobody_who_may_is_none(desk, receipts):
    assert desk("receipt", "sign", receipts[-1], "--key", "other").code == 0
    assert verify(desk, *receipts).code == 3
    assert desk("receipt", "sign", receipts[-1], "--key", "key").code == 0, "it takes the older one's place"
    assert verify(desk, *receipts).code == 0


def test_a_signature_for_another_purpose_is_none(desk, receipts):
    path = receipts[-1]
    done = subprocess.run(
        ["ssh-keygen", "-Y", "sign", "-n", "git", "-f", str(desk.folder / "key")],
        input=path.read_bytes(),
        capture_output=True,
        check=True,
    )
    path.with_name(f"{path.name}.sig").write_bytes(done.stdout)
    (desk.folder / "allowed").write_text(f"mia@example.org {(desk.folder / 'key.pub').read_text()}")
    assert verify(desk, *receipts).code == 3


def test_an_earlier_signature_does_not_cover_what_came_later(desk, receipts):
    assert desk("receipt", "sign", receipts[3], "--key", "key").code == 0
    done = verify(desk, *receipts)
    assert (done.code, done.json["verdict"]) == (3, "unsigned")
    assert done.json["receipts"][3]["signer"] == "mia@example.org"
    assert verify(desk, *receipts[:4]).code == 0


def test_a_key_with_a_passphrase_and_nobody_to_ask(desk, receipts):
    done = desk("receipt", "sign", receipts[-1], "--key", "locked")
    assert done.code == 6
    assert "passphrase" in done.err
    assert "ssh-add" in done.err
    assert not list(receipts[-1].parent.glob("*.sig*"))


def test_a_key_with_a_passphrase_is_asked_for_on_the_terminal(desk, receipts):
    """A process with a terminal of its own, and somebody who types."""
    command = [
        sys.executable,
        "-m",
        "nl_cutover",
        "receipt",
        "sign",
        str(receipts[-1]),
        "--key",
        str(desk.folder / "locked"),
    ]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, desk.environ)
    seen = b""
    while b"passphrase" not in seen:
        assert select.select([terminal], [], [], 60)[0], seen
        seen += os.read(terminal, 4096)
    os.write(terminal, b"a phrase\n")
    try:
        while piece := os.read(terminal, 4096):
            seen += piece
    except OSError:  # Linux says EIO when the other end is gone
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, seen
    assert b"a phrase" not in seen
    (desk.folder / "allowed").write_text(f"mia@example.org {(desk.folder / 'locked.pub').read_text()}")
    assert verify(desk, *receipts).code == 0


def test_a_key_that_an_agent_holds(desk, receipts):
    started = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
    agent = dict(part.split("=", 1) for part in started.replace("\n", "").split(";") if "=" in part)
    try:
        slot = {"SSH_AUTH_SOCK": agent["SSH_AUTH_SOCK"]}
        subprocess.run(
            ["ssh-add", "-q", str(desk.folder / "key")], env=os.environ | slot, check=True, capture_output=True
        )
        (desk.folder / "key").unlink()
        assert desk("receipt", "sign", receipts[-1], "--key", "key.pub", **slot).code == 0
        assert verify(desk, *receipts).code == 0
    finally:
        os.kill(int(agent["SSH_AGENT_PID"]), signal.SIGTERM)
    done = desk("receipt", "sign", receipts[-1], "--key", "key.pub")
    assert done.code == 6
    assert "No private key found" in done.err


def test_without_ssh_keygen_it_says_so(desk, receipts, tmp_path):
    (tmp_path / "empty").mkdir()
    for words in (("sign", receipts[0], "--key", "key"), ("verify", receipts[0], "--allowed-signers", "allowed")):
        receipts[0].with_name(f"{receipts[0].name}.sig").write_text("x")
        done = desk("receipt", *words, PATH=str(tmp_path / "empty"))
        assert done.code == 2
        assert "openssh-client" in done.err


@pytest.mark.parametrize(
    ("words", "code", "word"),
    [
        (("--key", "nowhere"), 6, "there is no key nowhere"),
        (("--key", "allowed"), 6, "could not sign with allowed"),
    ],
)
def test_a_key_that_is_none(desk, receipts, words, code, word):
    done = desk("receipt", "sign", receipts[0], *words)
    assert done.code == code
    assert word in done.err


def test_a_broken_receipt_is_not_signed(desk, receipts):
    receipts[0].write_bytes(receipts[0].read_bytes()[:-1])
    done = desk("receipt", "sign", receipts[0], "--key", "key")
    assert done.code == 8
    assert not list(receipts[0].parent.glob("*.sig"))


def test_signers_that_cannot_be_asked_for(desk, receipts):
    assert desk("receipt", "verify", receipts[0], "--signer", "mia").code == 2
    assert desk("receipt", "verify", receipts[0], "--allowed-signers", "nowhere").code == 2
