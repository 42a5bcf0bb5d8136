"""The container is killed in the middle of a migration; started again, the same command ends with every row once.

The number of runs comes from NL_CUTOVER_SEEDS: 3 by default, 50 with `full` (./dev soak).
"""

import os
import random
import time

import pytest

from .scene import Scene

FULL = 50
RUNS = {"": 3, "full": FULL}.get(seeds := os.environ.get("NL_CUTOVER_SEEDS", "")) or int(seeds)
ARCHIVES, ACTIONS = 80, 300


def carried_to(scene: Scene, running, wanted: int) -> None:
    """Until the ledger knows that many archives to be stored, or the run has ended."""
    end = time.monotonic() + 60
    while running.poll() is None and scene.settled() < wanted:
        assert time.monotonic() < end
        time.sleep(0.005)


def resumed(scene: Scene) -> None:
    """Start the container again, give the same command, count."""
    scene.core.container.start()
    scene.core.wait()
    done = scene("migrate", *scene.checkouts)
    assert done.code == 0, done.out + done.err
    assert scene.held() == scene.source(), "0 lost, 0 doubled"


@pytest.mark.slow
@pytest.mark.timeout(120 + 60 * RUNS)
def test_killed_in_the_middle_it_resumes_with_evidence_from_inside(container, tmp_path):
    core = container()
    interrupted = settled = 0
    for number in range(RUNS):
        rng = random.Random(f"killed-{number}")
        scene = Scene(tmp_path / str(number), core, archives=ARCHIVES, actions=ACTIONS, seed=number, mark=f"{number}-")
        running = scene.start("migrate", *scene.checkouts)
        carried_to(scene, running, rng.randrange(1, ARCHIVES))
        core.container.kill(signal="KILL")
        out, err = running.communicate(timeout=120)
        assert running.returncode in (0, 7), out + err
        interrupted += running.returncode == 7
        resumed(scene)
        receipt = scene.receipt("migrate")
        settled += len(receipt["settled"])
        assert receipt["container"]["backup"]["counts"].get("nl-transaction-archive", 0) == number * ARCHIVES
    print(f"\n{RUNS} kills, {interrupted} in the middle, {settled} outcomes settled from inside")
    assert interrupted >= RUNS / 2
