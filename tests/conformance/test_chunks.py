"""Event to chunk: the kind of a record, and absence as a value."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.chunks import ABSENT, Chunk, Kind, chunk_from_event
from conformance.dialects import DIALECTS, OVERLAYS
from conformance.dossier import CHAT, COMPLETIONS
from conformance.sse import Event, parse
from tests.conformance.bodies import choice, chunk, completion, envelope, usage_chunk, without


def event(data: str) -> Event:
    body = "".join(f"data: {line}\n" for line in data.split("\n")) + "\n"
    return parse(body.encode("utf-8", "replace"))[0][0]


def read(data: object, api: str = CHAT, overlay: str = "") -> Chunk:
    text = data if isinstance(data, str) else json.dumps(data)
    return chunk_from_event(event(text), DIALECTS[api], OVERLAYS.get(overlay))


KINDS: list[tuple[object, Kind]] = [
    ("[DONE]", Kind.DONE),
    ("[done]", Kind.BAD_DONE),
    (" [DONE]", Kind.BAD_DONE),
    ('"[DONE]"', Kind.BAD_DONE),
    ("DONE", Kind.BAD_DONE),
    ("", Kind.EMPTY),
    ("ping", Kind.UNREADABLE),
    ("{} {}", Kind.UNREADABLE),
    ('{"choices":[]}\n[DONE]', Kind.UNREADABLE),
    ("[]", Kind.SCALAR),
    ("null", Kind.SCALAR),
    ({"error": {"message": "x"}}, Kind.ERROR),
    ({"error": "x", "choices": []}, Kind.ERROR),
    ({**chunk(), "error": None}, Kind.CHUNK),
    ({}, Kind.FOREIGN),
    ({"text": "Internal Server Error"}, Kind.FOREIGN),
    ({"choices": None}, Kind.CHUNK),
    (without(usage_chunk(), "choices"), Kind.CHUNK),
    (chunk(), Kind.CHUNK),
]


@pytest.mark.parametrize(("data", "kind"), KINDS)
def test_a_record_has_its_kind(data: object, kind: Kind) -> None:
    assert read(data).kind is kind


def test_a_vendors_record_is_the_vendors_only_under_its_overlay_and_without_choices() -> None:
    record = envelope([], prompt_filter_results=[])
    assert read(record).kind is Kind.CHUNK
    assert read(record, overlay="azure").kind is Kind.VENDOR
    with_text = {**chunk({"content": "a"}), "prompt_filter_results": []}
    assert read(with_text, overlay="azure").kind is Kind.CHUNK


def test_what_is_not_there_is_absent_and_not_null() -> None:
    found = read(envelope([{}])).choices[0]
    assert (found.index, found.finish_reason, found.delta) == (ABSENT, ABSENT, ABSENT)
    assert (found.role, found.content, found.tools) == (ABSENT, ABSENT, ())
    null = read(envelope([choice({"role": None, "content": None})])).choices[0]
    assert (null.role, null.content, null.finish_reason) == (None, None, None)


def test_a_member_keeps_the_type_that_stood_there() -> None:
    found = read(envelope([choice({"content": 4}, index="0", finish=False)])).choices[0]
    assert (found.content, found.index, found.finish_reason) == (4, "0", False)
    assert found.text == ""


def test_a_completion_has_its_text_beside_the_index() -> None:
    found = read(completion("a", "stop"), COMPLETIONS).choices[0]
    assert (found.text, found.delta, found.role) == ("a", ABSENT, ABSENT)
    assert read(completion("a")).choices[0].content is ABSENT


def test_reasoning_is_read_under_either_name() -> None:
    assert read(chunk({"reasoning_content": "a", "reasoning": "b"})).choices[0].reasoning == "a"
    assert read(chunk({"reasoning": "b"})).choices[0].reasoning == "b"


def test_a_tool_fragment_is_read_as_it_stands() -> None:
    fragment = {"index": 0, "id": "t", "function": {"name": "f", "arguments": {"x": 1}}}
    found = read(chunk({"tool_calls": [fragment, 7]})).choices[0].tools
    assert (found[0].index, found[0].id, found[0].name) == (0, "t", "f")
    assert (found[0].arguments, found[0].type) == ({"x": 1}, ABSENT)
    assert (found[1].raw, found[1].index) == (7, ABSENT)


@pytest.mark.parametrize(
    ("delta", "carries"),
    [
        ({}, False),
        ({"role": "assistant", "content": ""}, False),
        ({"content": None}, False),
        ({"content": " "}, True),
        ({"reasoning": "a"}, True),
        ({"refusal": "a"}, True),
        ({"tool_calls": [{}]}, True),
        ({"tool_calls": []}, False),
    ],
)
def test_what_brings_text_carries(delta: dict[str, object], carries: bool) -> None:
    assert read(chunk(delta)).choices[0].carries is carries


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "index",
                    "tool_calls",
                    "function",
                    "error",
                    "usage",
                    "logprobs",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_read_without_raising(value: object) -> None:
    for api in DIALECTS:
        found = read(value, api)
        assert found.kind in Kind
        assert all(isinstance(each.carries, bool) for each in found.choices)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ('{"id":"","choices":[],"prompt_filter_results":[]}', Kind.VENDOR),
        ('{"id":"","choices":[{"index":0,"content_filter_results":{}}]}', Kind.VENDOR),
        ('{"id":"","choices":[{"index":0,"delta":{},"content_filter_results":{}}]}', Kind.CHUNK),
        ('{"id":"","choices":[]}', Kind.CHUNK),
    ],
)
def test_a_vendor_record_has_the_vendors_key_and_nothing_of_a_chunk(data: str, kind: Kind) -> None:
    (event,), _ = parse(f"data: {data}\n\n".encode())
    assert chunk_from_event(event, DIALECTS["chat"], OVERLAYS["azure"]).kind is kind
