"""Every option that takes a number with a fraction refuses what is none, before anything is looked at."""

import inspect

import pytest
import typer
from typer.testing import CliRunner

from nl_cutover.cli import app


def verbs(group: typer.Typer, words: tuple[str, ...] = ()):
    for command in group.registered_commands:
        yield (*words, command.name or command.callback.__name__), command.callback
    for further in group.registered_groups:
        yield from verbs(further.typer_instance, (*words, further.name))


def of_floats():
    for words, call in verbs(app):
        for name, hint in inspect.get_annotations(call, eval_str=True).items():
            if getattr(hint, "__origin__", None) in (float, float | None):
                yield pytest.param(words, "--" + name.replace("_", "-"), id=" ".join((*words, name)))


OPTIONS = list(of_floats())


def test_they_were_found():
    assert len(OPTIONS) > 8
    assert "plane prove deadline" in {option.id for option in OPTIONS}


@pytest.mark.parametrize("given", ["nan", "inf", "-inf", "-1", "1e300"])
@pytest.mark.parametrize(("words", "option"), OPTIONS)
def test_what_is_no_length_of_time_is_refused_by_name(words, option, given):
    done = CliRunner().invoke(app, [*words, f"{option}={given}"])
    assert done.exit_code == 2
    assert f"'{option}'" in done.output


@pytest.mark.parametrize("given", ["nan", "inf", "-1.0", "1e300"])
def test_the_settings_refuse_it_too(operator, given):
    (operator.folder / "nl-cutover.toml").write_text(f"wait = {given}\n")
    done = operator("migrate")
    assert (done.code, "wait" in done.err) == (2, True), done.err
