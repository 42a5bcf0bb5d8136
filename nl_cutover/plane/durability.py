"""Take the container away and bring it back: restarted, or made anew from its own configuration."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import msgspec

from ..errors import RefusedError, UnreachableError
from .engine import Engine
from .locate import Pin, aside, inspected, pin_of, raw
from .mounts import health_of

STOP_S = 60  # the engine's own 10 s turn a slow end into a kill
_KILLED = 137


class Returned(msgspec.Struct, frozen=True):
    """how: restarted | recreated. `exit_code`: of the end before; 137 is a kill, with the log unflushed (moby#6446)."""

    how: str
    exit_code: int
    before: Pin
    after: Pin
    health: str

    @property
    def note(self) -> str | None:
        if self.exit_code != _KILLED:
            return None
        return f"{self.before.words} had to be killed after {STOP_S} s: it does not end on SIGTERM"


def restart(
    engine: Engine, pin: Pin, *, stopped: Callable[[], None], deadline_s: float, progress: Callable[[str], None]
) -> Returned:
    """Stop and start it; `stopped` is called in between.

    Raises RefusedError where stopping would remove it, UnreachableError when it is not well in time.
    """
    facts = raw(engine, pin.id)
    _may_stop(pin, facts)
    progress(f"stopping {pin.words}")
    try:
        code = _stop(engine, pin)
        stopped()
    finally:
        with engine.asking(f"the start of {pin.words}") as api:
            api.start(pin.id)
    health = wait_until_well(engine, pin.id, deadline_s=deadline_s)
    return Returned("restarted", code, pin, inspected(engine, pin.id), health)


def recreate(
    engine: Engine, pin: Pin, *, stopped: Callable[[], None], deadline_s: float, progress: Callable[[str], None]
) -> Returned:
    """Remove it and make it anew: same name, image, environment, labels, volumes, networks and ports.

    The old one is removed only when the new one is well, and is brought back when it is not. Its volumes are never
    removed. Raises RefusedError where the graph would be gone with it, UnreachableError when the new one is not well.
    """
    facts = raw(engine, pin.id)
    _may_stop(pin, facts)
    if pin.home.refusal is not None:
        raise RefusedError(f"{pin.words} is not recreated: {pin.home.refusal}", "put the graph on a named volume first")
    progress(f"stopping {pin.words}")
    try:
        code = _stop(engine, pin)
        stopped()
        progress(f"making {pin.name} anew")
        with engine.asking(f"the making of {pin.name}") as api:
            api.rename(pin.id, aside(pin, _policy(facts)))
            if _policy(facts):  # not even the engine's own start may bring up both
                api.update_container(pin.id, restart_policy={"Name": "no"})
            config, further = configuration(facts)
            if api.inspect_image(pin.image)["Id"] == pin.image_id:
                config["Image"] = pin.image  # the tag has not moved on
            made = str(api.create_container_from_config(config, pin.name)["Id"])
            for network, endpoint in further.items():
                ipam = endpoint["IPAMConfig"] or {}
                api.connect_container_to_network(
                    made,
                    network,
                    aliases=endpoint["Aliases"],
                    links=endpoint["Links"],
                    ipv4_address=ipam.get("IPv4Address"),
                    ipv6_address=ipam.get("IPv6Address"),
                    link_local_ips=ipam.get("LinkLocalIPs"),
                    driver_opt=endpoint["DriverOpts"],
                )
            api.start(made)
        health = wait_until_well(engine, made, deadline_s=deadline_s)
    except BaseException:
        _bring_back(engine, pin, facts)
        raise
    with engine.asking(f"the removal of the old {pin.words}") as api:
        api.remove_container(pin.id, v=False)
    return Returned("recreated", code, pin, inspected(engine, made), health)


def configuration(facts: dict[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What makes the container again, and the further networks to join. Pure.

    Volumes that the engine named itself are bound by that name, and ports that it chose are kept.
    """
    config = {key: value for key, value in facts["Config"].items() if value is not None}
    short = facts["Id"][:12]
    if config.get("Hostname") == short:
        del config["Hostname"]
    config["Image"] = facts["Image"]
    host = dict(facts["HostConfig"])
    named = {bind.split(":")[0] for bind in host.get("Binds") or []}
    named |= {mount.get("Source") for mount in host.get("Mounts") or []}
    loose = [
        {
            "Type": "volume",
            "Source": mount["Name"],
            "Target": mount["Destination"],
            "ReadOnly": not mount.get("RW", True),
        }
        for mount in facts.get("Mounts") or []
        if mount["Type"] == "volume" and mount["Name"] not in named
    ]
    kept = [m for m in host.get("Mounts") or [] if m.get("Source") or m.get("Type") != "volume"]
    host["Mounts"] = kept + loose
    taken = facts["NetworkSettings"].get("Ports") or {}
    host["PortBindings"] = (host.get("PortBindings") or {}) | {port: bound for port, bound in taken.items() if bound}
    config["HostConfig"] = host
    networks: dict[str, dict[str, Any]] = {
        name: {
            "IPAMConfig": joined.get("IPAMConfig"),
            "Links": joined.get("Links"),
            "Aliases": [alias for alias in joined.get("Aliases") or [] if alias != short] or None,
            "DriverOpts": joined.get("DriverOpts"),
        }
        for name, joined in (facts["NetworkSettings"].get("Networks") or {}).items()
    }
    # Engines before API 1.44 take one network at the making.
    mode = host.get("NetworkMode")
    first = mode if mode in networks else next(iter(networks), None)
    if first is not None:
        config["NetworkingConfig"] = {"EndpointsConfig": {first: networks.pop(first)}}
    return config, networks


def wait_until_well(engine: Engine, container: str, *, deadline_s: float) -> str:
    """Poll until healthy, or running where there is no healthcheck. Returns the health's kind.

    Raises UnreachableError with the healthcheck's last words.
    """
    until = time.monotonic() + deadline_s
    while True:
        facts = raw(engine, container)
        health, name = health_of(facts), pin_of(facts).words
        if health.kind in ("healthy", "none") and not health.looping:
            return health.kind
        if health.kind == "stopped" and not health.looping:
            raise UnreachableError(
                f"{name} ended by itself ({facts['State'].get('ExitCode')})", f"docker logs {container[:12]}"
            )
        if time.monotonic() > until:
            said = f": {health.said}" if health.said else ""
            state = "restarts over and over" if health.looping else f"is {health.kind}"
            raise UnreachableError(f"{name} {state} after {deadline_s:g} s{said}", f"docker logs {container[:12]}")
        time.sleep(0.2)


def _may_stop(pin: Pin, facts: dict[str, Any]) -> None:
    pin.running()
    if facts["HostConfig"].get("AutoRemove"):
        raise RefusedError(
            f"{pin.words} was started with --rm: stopping removes it", "start it without --rm, on a named volume"
        )


def _stop(engine: Engine, pin: Pin) -> int:
    with engine.asking(f"the stop of {pin.words}") as api:
        api.stop(pin.id, timeout=STOP_S)
    return int(raw(engine, pin.id)["State"].get("ExitCode") or 0)


def _policy(facts: dict[str, Any]) -> str:
    """By which a container restarts, as `docker update --restart` takes it; empty where it does not."""
    policy = facts["HostConfig"].get("RestartPolicy") or {}
    name, most = policy.get("Name") or "no", policy.get("MaximumRetryCount")
    return "" if name == "no" else f"{name}:{most}" if most else name


def _bring_back(engine: Engine, pin: Pin, facts: dict[str, Any]) -> None:
    with engine.asking(f"the return of {pin.words}") as api:
        if raw(engine, pin.id)["Name"] != f"/{pin.name}":
            # By its name: the engine may have made it although its answer never came.
            for one in api.containers(all=True, filters={"name": f"^/{re.escape(pin.name)}$"}):
                api.remove_container(one["Id"], v=False, force=True)
            api.rename(pin.id, pin.name)
        api.start(pin.id)
        if _policy(facts):
            api.update_container(pin.id, restart_policy=facts["HostConfig"]["RestartPolicy"])
