"""`stringify(parse(text))` is what JavaScript prints; its digests agree with the contract's canonical form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nl_cutover.contract import javascript
from nl_cutover.memory_core.jsontext import parse, stringify

TEXT = st.text(st.characters(), max_size=8)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(TEXT | st.from_regex(r"\A[0-9]{1,11}\Z"), inner, max_size=4)
    ),
)


@given(JSON)
def test_the_written_text_has_the_same_canonical_form(value: Any) -> None:
    text = json.dumps(value)
    for pretty in (False, True):
        written = stringify(parse(text), pretty=pretty)
        written.encode("utf-8")  # no lone surrogate stands raw
        assert javascript.canonical(javascript.parse(written)) == javascript.canonical(javascript.parse(text))


@given(JSON)
def test_writing_is_stable(value: Any) -> None:
    once = stringify(parse(json.dumps(value)))
    assert stringify(parse(once)) == once


@given(JSON)
def test_the_pretty_form_is_laid_out_as_json_dumps_does(value: Any) -> None:
    plain = json.loads(json.dumps(value), parse_int=lambda _: 1, parse_float=lambda _: 1)
    expected = json.dumps(parse(json.dumps(plain)), indent=2)
    assert json.dumps(json.loads(stringify(parse(json.dumps(plain)), pretty=True)), indent=2) == expected
    assert stringify(parse(json.dumps(plain)), pretty=True).count("\n") == expected.count("\n")


@pytest.mark.parametrize("text", ["", "NaN", "-Infinity", "01", "{'a':1}", '"\n"', "[1,]", "\ufeff{}"])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)
