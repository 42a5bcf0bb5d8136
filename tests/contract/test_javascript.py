"""JSON under JavaScript's rules, as properties."""

import json
import math
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nl_cutover.contract import javascript as js

text = st.text(st.characters(codec=None), max_size=12)
doubles = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | doubles | st.integers(-(2**53), 2**53) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_canonical_form_is_a_fixed_point(value):
    once = js.canonical(value)
    assert js.canonical(js.parse(once)) == once
    once.encode("utf-8")


@given(values)
def test_printing_differently_changes_no_digest(value):
    printed = json.dumps(value, indent=3, ensure_ascii=True)
    assert js.digest(js.parse(printed)) == js.digest(value)
    assert js.first_difference(js.parse(printed), value) is None


@given(values, values)
def test_digests_tell_values_apart(left, right):
    same = js.canonical(left) == js.canonical(right)
    assert (js.digest(left) == js.digest(right)) is same
    assert (js.first_difference(left, right) is None) is same


@given(doubles)
def test_a_double_keeps_its_value(value):
    assert float(js.encode_number(value)) == value


@pytest.mark.parametrize(
    ("lexeme", "why"),
    [
        ("9007199254740993", "more digits"),
        ("[1e400]", "range"),
        ('{"a":1,"a":2}', "twice"),
        ("NaN", "not JSON"),
        ("-Infinity", "not JSON"),
        ("0.1000000000000000055511151231257827", "more digits"),
        ("[1,]", "not JSON"),
        ("\ufeff{}", "not JSON"),
        ("", "not JSON"),
        ("[" * 100_000, "too deep"),
    ],
)
def test_what_javascript_would_change_is_not_faithful(lexeme, why):
    with pytest.raises(js.NotFaithful, match=why):
        js.parse_exact(lexeme)


@pytest.mark.parametrize("lexeme", ["1.0", "1e2", "-0", "9007199254740992", "1e+21", "5e-324", "123456789012345680000"])
def test_other_spellings_of_a_double_are_faithful(lexeme):
    assert math.isfinite(js.parse_exact(lexeme))


def test_trim_is_javascripts_and_not_pythons():
    assert js.trim("\ufeff a\u2028") == "a"
    assert js.trim("\x1ca\x85") == "\x1ca\x85"


NODE = shutil.which("node")


@pytest.mark.node
@pytest.mark.skipif(NODE is None, reason="Node is not installed")
@settings(max_examples=1)
@given(st.lists(values, min_size=200, max_size=200))
def test_node_computes_the_same_canonical_form(batch):
    program = """
    const sort = v => { if (Array.isArray(v)) return v.map(sort); if (!v || typeof v !== 'object') return v;
      return '{' === '' ? v : new Map(Object.keys(v).sort().map(k => [k, sort(v[k])])) };
    const print = v => v instanceof Map ? '{' + [...v].map(([k, x]) => JSON.stringify(k) + ':' + print(x)).join(',') + '}'
      : Array.isArray(v) ? '[' + v.map(print).join(',') + ']' : JSON.stringify(v);
    let s = ''; process.stdin.on('data', d => s += d).on('end', () =>
      console.log(JSON.stringify(JSON.parse(s).map(t => print(sort(JSON.parse(t)))))));
    """
    texts = [json.dumps(v) for v in batch]
    done = subprocess.run([NODE, "-e", program], input=json.dumps(texts), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [js.canonical(v) for v in batch]


@given(values, values)
def test_printing_with_sorted_keys_never_takes_two_values_for_one(left, right):
    """The fast comparison of a read-back: equal texts of parsed values are equal canonical forms."""
    a, b = js.parse(js.canonical(left)), js.parse(js.canonical(right))
    if json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True):
        assert js.canonical(a) == js.canonical(b)


def test_true_is_not_one_and_minus_zero_is_zero():
    one, true, zero, minus = js.parse("1"), js.parse("true"), js.parse("0"), js.parse("-0")
    assert json.dumps(one) != json.dumps(true)
    assert js.canonical(zero) == js.canonical(minus)
