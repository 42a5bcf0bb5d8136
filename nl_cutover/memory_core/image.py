"""Builds the container image of the reference Memory Core. Wheels are collected outside; the build has no network."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import docker
import msgspec
from docker.errors import BuildError, DockerException

from .. import __version__
from ..errors import RefusedError

FOLDER = Path(__file__).with_name("container")  # Dockerfile and compose.yaml

_PROBE = (
    "import os, platform, sys; "
    "print(*sys.version_info[:2], platform.machine(), os.confstr('CS_GNU_LIBC_VERSION').split('.')[1])"
)
_OLDEST_GLIBC = 17  # 2.17: what manylinux2014 promises
_TAIL = 500  # characters of what a failed step said last


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """What was built. `revision`: the commit of the checkout, or `unknown`; `compose`: a file to start it with."""

    schema: str = "nl-cutover/image/1"
    verdict: str = "built"
    exit_code: int = 0
    tag: str
    id: str
    base: str
    version: str
    revision: str
    plane_id: str
    compose: str


def build(
    engine: docker.DockerClient,
    *,
    base: str,
    tag: str,
    plane_id: str,
    wheel: Path | None,
    progress: Callable[[str], None],
) -> Image:
    """Build and tag the image. `wheel` None: made from the checkout this runs from, else the release of this version.

    Raises RefusedError with the reason: a base that will not do, wheels that cannot be had, a build that fails.
    """
    progress(f"asking {base} which Python it has")
    platform = _platform(engine, base)
    checkout = Path(__file__).resolve().parents[2]
    revision = "unknown"
    with tempfile.TemporaryDirectory() as scratch:
        if wheel is None and (checkout / "pyproject.toml").is_file():
            progress(f"making the wheel of {checkout}")
            _pip("wheel", "--no-deps", "--wheel-dir", scratch, str(checkout))
            wheel = next(Path(scratch).glob("*.whl"))
            revision = _revision(checkout)
        progress("collecting the wheels that it needs")
        wheels = Path(scratch, "wheels")
        wanted = f"nl-cutover[memory-core]=={__version__}" if wheel is None else f"{wheel.resolve()}[memory-core]"
        _pip("download", "--only-binary=:all:", *platform, "--dest", str(wheels), wanted)
        version = next(wheels.glob("nl_cutover-*.whl")).name.split("-")[1]
        progress(f"building {tag}, without network")
        arguments = {"BASE": base, "VERSION": version, "REVISION": revision, "PLANE_ID": plane_id}
        image_id = _build(engine, _context(wheels), tag, arguments)
    return Image(
        tag=tag,
        id=image_id,
        base=base,
        version=version,
        revision=revision,
        plane_id=plane_id,
        compose=str(FOLDER / "compose.yaml"),
    )


def _platform(engine: docker.DockerClient, base: str) -> list[str]:
    """pip's options for wheels that run on the base image; the engine may be of another architecture than the host."""
    try:
        told = engine.containers.run(base, ["-c", _PROBE], entrypoint="python3", network_mode="none", remove=True)
        major, minor, machine, glibc = told.decode().split()
    except (DockerException, OSError, ValueError) as failure:
        raise RefusedError(
            f"{base} will not do as a base: {_told(failure)}",
            "--base names an image with python3 (3.11 or newer, with venv) on glibc; docker pull brings it",
        ) from None
    options = ["--python-version", f"{major}.{minor}"]
    for level in range(int(glibc), _OLDEST_GLIBC - 1, -1):
        options += ["--platform", f"manylinux_2_{level}_{machine}"]
    return [*options, "--platform", f"manylinux2014_{machine}"]


def _build(engine: docker.DockerClient, context: io.BytesIO, tag: str, arguments: dict[str, str]) -> str:
    try:
        image, _ = engine.images.build(
            fileobj=context,
            custom_context=True,
            tag=tag,
            buildargs=arguments,
            network_mode="none",
            rm=True,
            forcerm=True,
        )
    except BuildError as failure:
        said = "".join(line.get("stream", "") for line in failure.build_log if isinstance(line, dict))
        raise RefusedError(f"the image cannot be built: {failure.msg}: {said[-_TAIL:].strip()}") from None
    except (DockerException, OSError) as failure:
        raise RefusedError(f"the engine does not build the image: {_told(failure)}") from None
    return str(image.id)


def _context(wheels: Path) -> io.BytesIO:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(FOLDER / "Dockerfile", "Dockerfile")
        archive.add(wheels, "wheels")
    packed.seek(0)
    return packed


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RefusedError(
            f"pip {arguments[0]} did not bring the wheels: {done.stderr[-_TAIL:].strip()}",
            "pip must be installed here and reach its index; inside the build nothing is fetched",
        )


def _revision(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _told(failure: Exception) -> str:
    return str(getattr(failure, "explanation", None) or failure)[-_TAIL:].strip()
