"""Whatever a host hands over: nothing raises, the sum is right, and data comes back as data."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nl_cutover.contract import javascript as js
from nl_cutover.contract.telemetry import ADMITTED, targets
from nl_cutover.recorder import Telemetry
from nl_cutover.recorder.guard import NotDataError, require_data
from tests.recorder.host import ENTRY, Admitting, adds_up, over

TEXT = st.text(st.characters(), max_size=5)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
DATA = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12
)
NO_DATA = st.binary(max_size=3) | st.builds(object) | st.just(print)
ODD = SCALARS | st.floats() | st.integers() | NO_DATA
NAMES = st.sampled_from(["className", "componentId", "component_id", "componentIds", "id", "config", "properties", "x"])
ARGUMENTS = st.dictionaries(NAMES, DATA | st.dictionaries(NAMES, DATA, max_size=3), max_size=5)


@given(DATA)
def test_data_passes_the_guard_and_comes_back_as_it_was(value):
    require_data(value, "ops")
    assert js.canonical(js.parse(js.encode(value))) == js.canonical(value)


@given(DATA, st.lists(st.integers(0, 3), max_size=4), NO_DATA)
def test_what_is_not_data_is_found_wherever_it_stands(value, way, odd):
    nested = [value, odd]
    for step in way:
        nested = [value] * step + [nested] if step else {"a": value, "z": nested}
    with pytest.raises(NotDataError, match=r"^ops"):
        require_data(nested, "ops")


@settings(max_examples=30)
@given(st.lists(st.dictionaries(st.sampled_from(sorted(ENTRY)), ODD | DATA | ARGUMENTS, max_size=8) | ODD, max_size=12))
def test_no_entry_raises_and_every_entry_is_counted(entries):
    server = Admitting()
    telemetry = Telemetry(over(server), enabled=True)
    for entry in entries:
        telemetry.record(entry)
        assert adds_up(telemetry.stats())
    assert telemetry.flush(10)
    stats = telemetry.close()
    assert (stats.recorded, stats.pending, stats.dropped, stats.failed) == (len(entries), 0, 0, 0)
    assert stats.admitted == len(server.actions)
    assert all(set(action) == set(ADMITTED) for action in server.actions)


@settings(max_examples=30)
@given(st.sampled_from(["get_component_tree", "set_instance_properties", "click"]), ARGUMENTS)
def test_arguments_as_an_object_and_as_text_name_the_same_targets(tool, arguments):
    server = Admitting()
    telemetry = Telemetry(over(server), enabled=True)
    text = js.encode(arguments)
    for args in (arguments, text):
        telemetry.record({"tool": tool, "args": args})
    assert telemetry.flush(10)
    telemetry.close()
    one, other = (action["targets"] for action in server.actions)
    assert one == other
    classes, components = targets(tool, text)
    assert one == json.loads(js.encode({"classNames": classes, "componentIds": components}))
