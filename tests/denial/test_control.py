"""The control of every run: it knows each loader, each sink and each rule, so that losing one is seen."""

import msgspec
import pytest

from nl_cutover.denial.static import check_static, control_failure
from nl_cutover.resources import resource

from .conftest import RULES, check

LOADERS = RULES.loaders
FIXTURES = resource("checks", "fixtures")


def without(table: str, key: str):
    """The rules without one entry of a table of the loaders."""
    value = getattr(LOADERS, table)
    less = {k: v for k, v in value.items() if k != key} if isinstance(value, dict) else [v for v in value if v != key]
    if table == "calls":  # a value without a call leads nowhere, and leaves sight unseen
        return msgspec.structs.replace(
            RULES,
            loaders=msgspec.structs.replace(LOADERS, calls=less, escapes=[v for v in LOADERS.escapes if v != key]),
        )
    return msgspec.structs.replace(RULES, loaders=msgspec.structs.replace(LOADERS, **{table: less}))


TABLES = [(name, key) for name in LOADERS.__struct_fields__ for key in getattr(LOADERS, name)]
ENTRIES = [
    (number, name, entry)
    for number, rule in enumerate(RULES.rules)
    for name in ("packages", "builtins", "natives", "modules", "paths")
    for entry in getattr(rule, name)
]


def test_the_control_is_found():
    assert control_failure(RULES) == ""


@pytest.mark.parametrize(("table", "key"), TABLES, ids=[f"{t}-{k}" for t, k in TABLES])
def test_a_loader_that_is_lost_fails_the_control(table, key):
    assert control_failure(without(table, key)) != ""


@pytest.mark.parametrize(("number", "name", "entry"), ENTRIES, ids=[e for _, _, e in ENTRIES])
def test_a_rule_that_is_lost_fails_the_control(number, name, entry):
    rules = list(RULES.rules)
    rules[number] = msgspec.structs.replace(
        rules[number], **{name: [e for e in getattr(rules[number], name) if e != entry]}
    )
    assert control_failure(msgspec.structs.replace(RULES, rules=tuple(rules))) != ""


def test_a_failed_control_fails_the_check(tmp_path):
    (tmp_path / "a.mjs").write_text("1")
    result = check_static(tmp_path, without("members", "require.resolve"))
    assert (result.report.verdict, result.report.exit_code) == ("unmeasurable", 4)
    assert "the control failed" in result.notes[0]


def test_a_rule_too_wide_fails_the_control():
    driver = msgspec.structs.replace(RULES.rules[0], packages=[*RULES.rules[0].packages, "better-sqlite3-helper"])
    assert "too many" in control_failure(msgspec.structs.replace(RULES, rules=(driver, *RULES.rules[1:])))


def test_forty_forms_and_six_look_alikes():
    """At least 38 of 40 reported, none of the look-alikes: here all of them, in the file that begins to load."""
    code, report = check("static", "--tree", FIXTURES / "forms", cwd=FIXTURES)
    forms = {p.name for p in (FIXTURES / "forms").iterdir() if p.name[:2].isdigit()}
    assert len(forms) == 40
    assert {f["path"] for f in report["findings"]} >= forms
    assert code == 3
    assert len([*(FIXTURES / "clean").iterdir()]) == 6
    code, report = check("static", "--tree", FIXTURES / "clean", cwd=FIXTURES)
    assert (code, report["verdict"], report["findings"], report["population"]["parsed"]) == (0, "clear", [], 6)
