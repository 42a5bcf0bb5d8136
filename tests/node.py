"""npm packages for tests, installed once into the user's cache. Nothing of them is committed."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

BETTER_SQLITE3 = "better-sqlite3@12"


def node() -> str:
    """The Node executable, or a skip with the reason (a failure in CI, where the test is marked `node`)."""
    found = shutil.which("node")
    if found is None or shutil.which("npm") is None:
        pytest.skip("Node and npm are not installed")
    return found


def node_modules(*packages: str) -> Path:
    """A folder in whose `node_modules` these packages are; kept between runs."""
    node()
    name = hashlib.sha256(json.dumps(sorted(packages)).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nl-cutover-tests"
    folder = cache / name
    folder.mkdir(parents=True, exist_ok=True)
    with open(cache / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            (folder / "package.json").write_text('{"private": true}')
            command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *packages]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode != 0:
                pytest.fail(f"npm could not install {', '.join(packages)}: {done.stderr[-2000:]}")
            (folder / "ready").touch()
    return folder
