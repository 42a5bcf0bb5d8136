"""Actions that stand in two stores with equal content: the plan, the run and the advice name the same number."""

import pytest

from nl_cutover.testing import plant_store

STORE = ".neo-ai-data/sqlite/memory-core-graph.sqlite"


@pytest.mark.parametrize("way", ["admit", "discard"])
def test_equal_actions_of_two_stores_count_once_everywhere(tmp_path, operator, way):
    paths = [tmp_path / "one", tmp_path / "two"]
    for path in paths:
        plant_store(path / STORE, actions=5, seed=len(str(tmp_path)))
    left = operator("migrate", *paths)
    assert (left.code, left.json["telemetry"]["left"]) == (3, 5)
    assert any("discard=5" in step for step in left.json["next_steps"])
    telemetry = operator.telemetry(5) if way == "admit" else "discard=5"
    plan = operator("plan", *paths, "--telemetry", telemetry)
    assert plan.code == 0
    assert plan.json["actions"] == 5
    assert any(note.startswith("5 more actions stand on the host") for note in plan.json["notes"])
    assert all(loss["count"] == 5 for loss in plan.json["losses"])
    done = operator("migrate", *paths, "--telemetry", telemetry)
    assert (done.code, done.json["telemetry"]["rows"]) == (0, 5)
    assert operator("measure", *paths).json["totals"]["unaccounted"] == 0
