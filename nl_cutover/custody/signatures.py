"""Signatures over receipts by the operator's SSH key: `ssh-keygen -Y`, namespace `nl-cutover` (OpenSSH 8.2 or newer).

A signature stands beside its receipt as FILE.sig. Keys are never read here, only named to ssh-keygen.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ..errors import CredentialsError, CustodyError, UsageError

NAMESPACE = "nl-cutover"


def signature_path(receipt: Path) -> Path:
    return receipt.with_name(f"{receipt.name}.sig")


def sign(receipt: Path, key: Path) -> Path:
    """Sign a receipt; the path of its signature, which takes the place of an older one.

    `key` is a private key (ssh-keygen asks for its passphrase on the terminal) or a public one whose private half an
    agent holds. Raises CredentialsError when the key cannot be used, CustodyError when the signature cannot be written.
    """
    if not key.is_file():
        raise CredentialsError(f"there is no key {key}", "name the file of an SSH key: --key ~/.ssh/id_ed25519")
    done = _ssh_keygen("sign", "-n", NAMESPACE, "-f", str(key), data=receipt.read_bytes())
    if done.returncode != 0 or not done.stdout.startswith(b"-----BEGIN SSH SIGNATURE-----"):
        raise CredentialsError(
            f"ssh-keygen could not sign with {key}: {_last_line(done.stderr)}",
            "a key with a passphrase needs a terminal to ask on, or an agent that holds it (ssh-add); "
            "then --key may name the .pub file",
        )
    path = signature_path(receipt)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        partial.write_bytes(done.stdout)
        os.replace(partial, path)
    except OSError as error:
        raise CustodyError(f"the signature {path} cannot be written: {error.strerror}") from None
    return path


def signer_of(receipt: Path, body: bytes, allowed: Path, signer: str | None = None) -> str | None:
    """Who of the allowed signers signed these bytes, or None: no signature, a wrong one, or by nobody who may.

    Raises UsageError when the allowed-signers file cannot be read.
    """
    if not os.access(allowed, os.R_OK):
        raise UsageError(f"the allowed-signers file {allowed} cannot be read", "see: man ssh-keygen, ALLOWED SIGNERS")
    signature = signature_path(receipt)
    if not signature.is_file():
        return None
    about = ("-s", str(signature), "-f", str(allowed))
    names = [signer] if signer is not None else _lines(_ssh_keygen("find-principals", *about, data=b"").stdout)
    for name in names:
        if _ssh_keygen("verify", "-n", NAMESPACE, "-I", name, *about, data=body).returncode == 0:
            return name
    return None


def _ssh_keygen(verb: str, *options: str, data: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["ssh-keygen", "-Y", verb, *options], input=data, capture_output=True, check=False)
    except FileNotFoundError:
        raise UsageError(
            "ssh-keygen is not installed: signatures are made and checked by it",
            "install OpenSSH's client (Debian: openssh-client)",
        ) from None


def _lines(output: bytes) -> list[str]:
    return [line for line in output.decode("utf-8", "replace").splitlines() if line]


def _last_line(output: bytes) -> str:
    return (_lines(output) or ["it did not say why"])[-1].removeprefix("Enter passphrase: ").strip()
