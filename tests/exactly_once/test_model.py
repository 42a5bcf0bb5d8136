"""The model of the ledger's protocol holds, and every mutation of it that forgets a rule is caught."""

import os
import re
import shutil
import subprocess

import pytest

from nl_cutover.resources import resource

MODEL = resource("checks", "model", "exactly_once.pml")
CLAIMS = {
    "safe": ["-a", "-N", "safe"],
    "asserts and deadlocks": ["-noclaim"],
    "ends": ["-a", "-N", "ends"],
}

INTENT = "atomic { flush(); ledger[row] = intended; unheard[row] = true };"
SENT = "travelling[row]++; network!row, listening\n               };"
MUTATIONS = {
    "what was in flight at a crash is sent again": [
        ("ledger[row] == intended -> ledger[row] = unknown", "ledger[row] == intended -> ledger[row] = pending")
    ],
    "a deadline passes for a proof that nothing was executed": [
        (":: may_fail(heard = unknown)", ":: may_fail(heard = pending)")
    ],
    "a lost answer passes for a refusal": [(":: lost -> heard = unknown", ":: lost -> heard = refused")],
    "a later run sends unknown rows again": [
        (":: ledger[row] == refused -> ledger", ":: ledger[row] == refused || ledger[row] == unknown -> ledger")
    ],
    "the intent is recorded after the request has left": [
        (INTENT, "flush();"),
        (SENT, SENT + f"\n               may_crash;\n               {INTENT}"),
    ],
    "evidence is read while the request may still be executed": [("travelling[row] == 0; /*", "skip; /*")],
    "a row that is found is sent again": [
        (
            ":: commits[row] > 0 -> ledger[row] = delivered; unheard[row] = false",
            ":: commits[row] > 0 -> ledger[row] = pending; unheard[row] = false",
        )
    ],
    "a row that is not found is taken for delivered": [
        (
            ":: commits[row] == 0 -> ledger[row] = pending; unheard[row] = false",
            ":: commits[row] == 0 -> ledger[row] = delivered; unheard[row] = false",
        )
    ],
    "a row is confirmed without reading it back": [
        (
            ":: heard == saved -> atomic { flush(); ledger[row] = delivered; unheard[row] = false }",
            ":: heard != refused -> atomic { flush(); ledger[row] = confirmed; unheard[row] = false }",
        ),
        (":: heard != saved -> carried[row] = heard", ":: heard == refused -> carried[row] = heard"),
    ],
    "an outcome is kept in memory past the next intent": [(INTENT, INTENT.replace("flush(); ", ""))],
    "an unknown row is left out of the list": [
        (
            "unheard[other] = carried[other] == unknown",
            "unheard[other] = carried[other] == unknown; carried[other] == unknown -> ledger[other] = refused",
        )
    ],
}


@pytest.fixture(scope="module", autouse=True)
def _tools():
    missing = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
    if missing:
        (pytest.fail if os.environ.get("NL_CUTOVER_CI") else pytest.skip)(f"not installed: {', '.join(missing)}")


class Verifier:
    """A model, built by spin for one setting. A model that cannot be built is a failure of the test."""

    def __init__(self, text, folder, **defines):
        self._folder = folder
        (folder / "model.pml").write_text(text)
        self._run("spin", "-a", *(f"-D{name}={value}" for name, value in defines.items()), "model.pml")
        self._run("gcc", "-O0", "-w", "-o", "pan", "pan.c")

    def check(self, claim):
        """What spin says of one claim, and whether the claim holds."""
        said = self._run("./pan", "-m200000", "-w22", *CLAIMS[claim])
        found = re.search(r"errors: (\d+)", said)
        assert found, said
        assert "search depth too small" not in said
        return said, found[1] == "0"

    def _run(self, *command):
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.mark.parametrize("evidence", [1, 0], ids=["with evidence", "without evidence"])
def test_the_model_holds(evidence, tmp_path):
    model = Verifier(MODEL.read_text(), tmp_path, EVIDENCE=evidence)
    for claim in CLAIMS:
        said, holds = model.check(claim)
        assert holds, said
        if claim == "safe" and evidence:  # a claim about states that never come would hold for nothing
            assert "(0 of " in said.partition("unreached in proctype Client")[2].partition("unreached")[0], said


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_forgotten_rule_is_caught(name, tmp_path):
    text = MODEL.read_text()
    for old, new in MUTATIONS[name]:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    assert not all(holds(text, tmp_path, evidence) for evidence in (1, 0)), "no claim notices it"


def holds(text, folder, evidence):
    model = Verifier(text, folder, EVIDENCE=evidence, FAULTS=3)
    return all(model.check(claim)[1] for claim in CLAIMS)
