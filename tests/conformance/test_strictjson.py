"""Strict JSON: a value if any, and every flaw by kind."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.strictjson import parse

GOOD = ["{}", " [1, 2.5e3] ", '"\\ud83d\\ude00"', "null", "-0", '{"a":{"b":[]}}', '"\u2028"']

FLAWED = [
    ("a trailing comma", "[1,]", "invalid"),
    ("half a text", '{"id":"c', "invalid"),
    ("nothing", "", "invalid"),
    ("blanks", "  ", "invalid"),
    ("a word", "ping", "invalid"),
    ("a second value", "{} {}", "several"),
    ("a sentinel behind", '{"a":1}\n[DONE]', "several"),
    ("a word behind", "{} x", "invalid"),
    ("a byte-order mark", "\ufeff{}", "invalid"),
    ("a leading zero", "01", "invalid"),
    ("single quotes", "{'a':1}", "invalid"),
    ("minus infinity", '{"p":-Infinity}', "nonfinite"),
    ("not a number", "[NaN]", "nonfinite"),
    ("a key twice", '{"a":1,"a":2}', "duplicate-key"),
    ("a raw tab in a string", '"a\tb"', "control-character"),
    ("a raw newline in a key", '{"a\nb":1}', "control-character"),
    ("a high surrogate alone", '"\\ud83d"', "lone-surrogate"),
    ("a low surrogate alone", '{"a":["\\uDE00"]}', "lone-surrogate"),
    ("a surrogate in a key", '{"\\ud83d":1}', "lone-surrogate"),
    ("too deep", "[" * 100_000, "invalid"),
    ("too long an integer", "9" * 5000, "invalid"),
]


@pytest.mark.parametrize("text", GOOD)
def test_a_good_text_has_no_flaw_and_pythons_value(text: str) -> None:
    parsed = parse(text)
    assert (parsed.ok, parsed.flaws) == (True, ())
    assert parsed.value == json.loads(text)


@pytest.mark.parametrize(("name", "text", "kind"), FLAWED, ids=[row[0] for row in FLAWED])
def test_a_flaw_has_its_kind(name: str, text: str, kind: str) -> None:
    parsed = parse(text)
    assert [flaw.kind for flaw in parsed.flaws] == [kind], name
    assert parsed.ok is (kind != "invalid")


def test_a_flaw_that_loses_nothing_keeps_the_value() -> None:
    assert parse('"a\tb"').value == "a\tb"
    assert parse('{"a":1,"a":2}').value == {"a": 2}
    assert parse("[-Infinity]").value == [-math.inf]


def test_null_and_nothing_differ_in_ok() -> None:
    assert (parse("null").ok, parse("null").value) == (True, None)
    assert (parse("").ok, parse("").value) == (False, None)


def test_several_flaws_are_all_told() -> None:
    kinds = {flaw.kind for flaw in parse('{"a":NaN,"a":"\\ud800"} {}').flaws}
    assert kinds == {"nonfinite", "duplicate-key", "lone-surrogate", "several"}


@given(st.text())
def test_any_text_is_read_without_raising(text: str) -> None:
    parsed = parse(text)
    assert parsed.ok or parsed.flaws


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_what_python_writes_strictly_is_read_back(value: object) -> None:
    if "Infinity" in json.dumps(value):
        return
    assert parse(json.dumps(value)).value == value
