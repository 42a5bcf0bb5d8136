"""The container engine: which one, why that one, and, where there is none, the reason in a sentence of its own."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ..errors import UnreachableError

DEFAULT = "unix:///var/run/docker.sock"
DEADLINE_S = 10.0  # a machine under load is slow, not silent
_CALL_S = 60  # an answer to anything but a question that is being worked on
_ODD = (ValueError, TypeError, AttributeError)  # what the SDK trips over in a URL or an answer that is none
_SDK = "pip install 'nl-cutover[docker]'"


class Choice(msgspec.Struct, frozen=True):
    """`why`: --engine | DOCKER_HOST | context NAME | default. `tls`: the folder of ca.pem, cert.pem and key.pem."""

    url: str
    why: str
    tls: str | None = None

    @property
    def socket(self) -> str | None:
        return self.url.removeprefix("unix://") if self.url.startswith("unix://") else None

    @property
    def local(self) -> bool:
        """Whether the engine's paths are paths of this host."""
        host = self.url.partition("://")[2].rpartition(":")[0]
        return self.url.startswith(("unix://", "npipe://")) or host in ("127.0.0.1", "localhost", "[::1]")

    @property
    def words(self) -> str:
        return f"{shown(self.url)} ({self.why})"


class NoEngine(msgspec.Struct, frozen=True):
    """kind: declined | none | context | absent | denied | deaf | silent | no-sdk | failed.

    `none`: nobody named an engine and there is no default one. All others but `declined` mean: could not look.
    """

    kind: str
    reason: str
    next: str = ""

    def error(self) -> UnreachableError:
        return UnreachableError(self.reason, self.next or "name an engine with --engine URL")


class EngineFacts(msgspec.Struct, frozen=True):
    """What a receipt says of an engine."""

    url: str
    why: str
    server: str
    api_version: str
    local: bool
    podman: bool


@dataclass(frozen=True)
class Engine:
    """An engine that answered. `api` is the SDK's low-level client; use it inside `asking`."""

    facts: EngineFacts
    api: Any

    @contextmanager
    def asking(self, what: str) -> Iterator[Any]:
        """The client. Whatever it raises becomes an UnreachableError that names the engine and `what` was asked."""
        import requests
        from docker.errors import APIError, DockerException

        try:
            yield self.api
        except APIError as error:
            raise UnreachableError(
                f"the engine {self.facts.url} refused {what}: {error.explanation or error}", "look at the engine's log"
            ) from None
        except (DockerException, requests.RequestException, OSError) as error:
            raise UnreachableError(
                f"the engine {self.facts.url} did not carry out {what}: {type(error).__name__}",
                "start the engine, then again",
            ) from None


def choose(flag: str | None, environ: Mapping[str, str], home: Path, default: str = DEFAULT) -> Choice | NoEngine:
    """--engine (a URL, a context's name, or `none`), DOCKER_HOST, the active context, the default socket.

    The SDK before 7.2 knows nothing of contexts, so they are resolved here (docker-py#3146).
    """
    folder = Path(environ.get("DOCKER_CONFIG") or home / ".docker")
    if flag == "none":
        return NoEngine("declined", "not looked at, as --engine none asks")
    if flag:
        return Choice(flag, "--engine", _tls(environ)) if "://" in flag else _context(folder, flag, "--engine")
    if host := environ.get("DOCKER_HOST"):
        return Choice(host, "DOCKER_HOST", _tls(environ))
    if name := environ.get("DOCKER_CONTEXT"):
        return _context(folder, name, "DOCKER_CONTEXT")
    try:
        name = json.loads((folder / "config.json").read_bytes()).get("currentContext")
    except FileNotFoundError:
        name = None
    except (OSError, ValueError, AttributeError) as error:
        return NoEngine("context", f"the active context cannot be read: {folder / 'config.json'}: {error}")
    if name and name != "default":
        return _context(folder, name, f"context {name}")
    path = default.removeprefix("unix://")
    if not os.path.lexists(path):
        others = [found for found in _user_sockets(environ, home) if os.path.exists(found)]
        if not others:
            return NoEngine("none", "no engine on this machine")
        hint = f"name it: --engine unix://{others[0]}"
        return NoEngine("absent", f"no engine at {default} (default), but a socket at {', '.join(others)}", hint)
    return Choice(default, "default")


def connect(choice: Choice | NoEngine, *, deadline_s: float = DEADLINE_S) -> Engine | NoEngine:
    """Ask the engine for its version. The SDK is imported only once something answers on the socket."""
    if isinstance(choice, NoEngine):
        return choice
    if shown(choice.url) != choice.url:  # the SDK takes no password either, and quotes it
        hint = "name it without: ssh://USER@HOST with a key, or tcp://HOST:PORT with TLS"
        return NoEngine("failed", f"the engine {choice.words} is named with credentials, which it does not take", hint)
    if choice.socket is not None and (failure := _knock(choice, choice.socket, deadline_s)) is not None:
        return failure
    try:
        import docker
        import requests
        from docker.tls import TLSConfig
    except ImportError as error:
        return NoEngine("no-sdk", f"an engine is at {choice.words}, but {error.name} is not installed", _SDK)
    try:
        folder = choice.tls
        tls: Any = False
        if folder is not None:
            pair = (f"{folder}/cert.pem", f"{folder}/key.pem")
            tls = TLSConfig(client_cert=pair, ca_cert=f"{folder}/ca.pem", verify=True)
        ssh = choice.url.startswith("ssh://")
        api = docker.APIClient(
            base_url=choice.url, version="auto", timeout=math.ceil(deadline_s), tls=tls, use_ssh_client=ssh
        )
        version = api.version()
        names = [str(part.get("Name")) for part in version.get("Components") or []]
        podman = any("podman" in name.lower() for name in names)
        server = f"{'Podman' if podman else names[0] if names else 'Engine'} {version.get('Version', '?')}"
    except (docker.errors.DockerException, requests.RequestException, OSError, *_ODD) as error:
        what = f"the engine {choice.words} gave no usable answer: {error} (SDK docker {docker.__version__})"
        return NoEngine("failed", what, "see that `docker version` works with it")
    api.timeout = _CALL_S
    return Engine(EngineFacts(choice.url, choice.why, server, api.api_version, choice.local, podman), api)


def shown(url: str) -> str:
    """How an engine's URL is written: without what stands before the @ of its host, but for the user of ssh."""
    scheme, sep, rest = url.partition("://") if "://" in url else ("", "", url)
    held, at, host = rest.rpartition("@")
    user, colon, _ = held.partition(":")
    if not at or scheme.endswith(("unix", "npipe")) or (scheme == "ssh" and not colon):
        return url
    return f"{scheme}{sep}{user + ':' if scheme == 'ssh' else ''}[redacted]@{host}"


def _context(folder: Path, name: str, why: str) -> Choice | NoEngine:
    if name == "default":
        return Choice(DEFAULT, why)
    key = hashlib.sha256(name.encode()).hexdigest()
    try:
        meta = json.loads((folder / "contexts" / "meta" / key / "meta.json").read_bytes())
        url = str(meta["Endpoints"]["docker"]["Host"])
    except (OSError, ValueError, KeyError, TypeError):
        what = f"the docker context {shown(name)} ({why}) is not defined in {folder}"
        return NoEngine("context", what, "docker context ls")
    tls = folder / "contexts" / "tls" / key / "docker"
    return Choice(
        url, why if why.startswith("context") else f"{why}, context {name}", str(tls) if tls.is_dir() else None
    )


def _tls(environ: Mapping[str, str]) -> str | None:
    return environ.get("DOCKER_CERT_PATH") if environ.get("DOCKER_TLS_VERIFY") else None


def _user_sockets(environ: Mapping[str, str], home: Path) -> list[str]:
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return [
        f"{home}/.docker/run/docker.sock",
        f"{runtime}/docker.sock",
        f"{runtime}/podman/podman.sock",
        "/run/podman/podman.sock",
    ]


def _knock(choice: Choice, path: str, deadline_s: float) -> NoEngine | None:
    """One ping over the bare socket, so that each way of not answering has its own words (docker-py#3248)."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return NoEngine("absent", f"{choice.words} is not a socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
            knocking.settimeout(deadline_s)
            knocking.connect(path)
            knocking.sendall(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
            answered = knocking.recv(64)
    except FileNotFoundError:
        why = "it is a link to nowhere" if os.path.islink(path) else "the socket is not there"
        return NoEngine(
            "absent", f"no engine at {choice.words}: {why}", "start the engine, or name another: --engine URL"
        )
    except PermissionError:
        hint = "join the socket's group, or name an engine of your own user: --engine URL"
        return NoEngine("denied", f"the engine {choice.words} does not let uid {os.geteuid()} in", hint)
    except ValueError as error:  # a NUL in the path
        return NoEngine("failed", f"the engine {choice.words} cannot be reached: {error}")
    except TimeoutError:
        hint = "restart the engine; it accepts calls and answers none"
        return NoEngine("silent", f"the engine {choice.words} did not answer within {deadline_s:g} s", hint)
    except OSError as error:
        if error.errno in (errno.ECONNREFUSED, errno.ECONNRESET):
            return NoEngine("deaf", f"nobody listens at {choice.words}: the engine is stopped", "start the engine")
        return NoEngine("failed", f"the engine {choice.words} cannot be reached: {error.strerror or error}")
    if not answered.startswith(b"HTTP/1."):
        return NoEngine("failed", f"what answers at {choice.words} is no engine")
    return None
