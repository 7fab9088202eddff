"""The short ways through a stream, by patterns and by outlines, and the obvious one agree."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance import http1
from conformance.capture import Capture, End, How, Json, Read, Segment
from conformance.inputs import Hints, items
from conformance.outline import outline
from conformance.reading import read
from reference_server.faults.table import FAULTS
from tests.conformance.bodies import (
    Record,
    choice,
    chunk,
    envelope,
    finish,
    role,
    say,
    texts,
    usage_chunk,
)
from tests.conformance.both_ways import differences
from tests.fault_matrix import KEY, run

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
SAMPLES = Path(__file__).parents[1] / "data" / "wire-samples.jsonl"
STORED = sorted((Path(__file__).parents[1] / "interop" / "captures").rglob("*.jsonl"))

Template = Callable[[str], Record]

TEMPLATES: tuple[Template, ...] = (
    say,
    say,
    lambda text: say(text, index=1),
    lambda text: say(text, usage=None, system_fingerprint=None),
    lambda text: say(text, id="c2", created=1.5, object="x", model=""),
    lambda text: chunk({"role": "assistant", "content": text}),
    lambda text: chunk({"role": "user", "content": text, "refusal": 1}, index=7),
    lambda text: chunk({"content": None, "reasoning_content": text}),
    lambda text: chunk({"reasoning": text}),
    lambda text: chunk({"content": text, "reasoning_content": ""}),
    lambda text: chunk({"content": text, "reasoning_content": text}),
    lambda text: chunk({"content": text}, "stop"),
    lambda text: chunk({"content": text}, "stop", index=1),
    lambda text: chunk({"content": text}, ""),
    lambda text: chunk({"content": text, "tool_calls": []}),
    lambda text: chunk({"tool_calls": [{"index": 0, "id": "t", "function": {"arguments": text}}]}),
    lambda text: envelope([choice({"content": text}), choice({"content": text}, None, 1)]),
    lambda text: envelope(
        [choice({"content": text}, logprobs={"content": [{"token": "a", "bytes": [97]}]})]
    ),
    lambda text: envelope([{"index": 0, "text": text, "finish_reason": None}]),
    lambda text: envelope([{"index": 0, "text": text, "finish_reason": "length"}]),
    lambda text: {"content": text, **say(text), "note": {"content": text}},
    lambda text: {"content": text, **say("a")},
    lambda text: chunk({"content": text, "tool_calls": [{"index": 0, "id": "t", "type": "x"}]}),
    lambda text: say(text, usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}),
    lambda text: say(text, error={"message": text}),
)
# Plain, escaped in every way, half a character, and what looks like JSON or like the template.
ODD: tuple[str, ...] = (
    "Grüße 世界",
    '"',
    "\\",
    "\n",
    "\0",
    "\ud83d",
    "\udf00",
    "😀",
    "\u2028",
    "\x7f",
    "",
    "content",
)
ODD += ('"content": "a"', '{"error": {}}', "[DONE]", "\ufffd", "x" * 70_000)
TEXTS = st.one_of(st.sampled_from("abc"), st.sampled_from("abc"), st.sampled_from(ODD))
OTHERS = (
    b"data: [DONE]\n\n",
    b": hi\n\n",
    b"id: 1\n",
    b"data: \xff\n\n",
    b"data: 1\n\n",
    b"data: " + json.dumps(finish()).encode() + b"\n\n",
    b"data: " + json.dumps(finish("tool_calls", 1)).encode() + b"\n\n",
    b"data: " + json.dumps(usage_chunk()).encode() + b"\n\n",
    b"\r\n",
    b"event: x\n",
    b"data:{}\n\n",
    b"error: {}\n\n",
)


def spelled(record: Record, ascii: bool, split: bool) -> bytes:
    """An event; `split`: its data in two lines."""
    text = json.dumps(record, ensure_ascii=ascii).encode("utf-8", "surrogatepass")
    return b"data: " + (text.replace(b", ", b",\ndata: ", 1) if split else text) + b"\n\n"


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A stream of a few templates, over and over, now and then something else."""
    count = draw(st.integers(1, 3))
    chosen = [draw(st.sampled_from(TEMPLATES)) for _ in range(count)]
    ascii, split = draw(st.booleans()), draw(st.integers(0, 5)) == 0
    parts = [spelled(role(), ascii, False)] * draw(st.integers(0, 1))
    for _ in range(draw(st.integers(0, 14))):
        at = draw(st.integers(0, 3 * count))
        if at == 3 * count:
            parts.append(draw(st.sampled_from(OTHERS)))
        else:
            parts.append(spelled(chosen[at % count](draw(TEXTS)), ascii, split))
    used = draw(st.integers(0, 12))
    counted = {"prompt_tokens": 1, "completion_tokens": used, "total_tokens": used + 1}
    ends = [finish(), usage_chunk(counted)][: draw(st.integers(0, 2))]
    parts += [spelled(end, ascii, False) for end in ends]
    parts.append(b"data: [DONE]\n\n" * draw(st.integers(0, 1)))
    return b"".join(parts)


def requests() -> st.SearchStrategy[dict[str, Json]]:
    return st.fixed_dictionaries(
        {"model": st.just("m"), "stream": st.just(True)},
        optional={
            "n": st.just(2),
            "max_tokens": st.sampled_from([2, 16]),
            "logprobs": st.sampled_from([True, False, 1]),
            "stream_options": st.just({"include_usage": True, "continuous_usage_stats": True}),
            "tools": st.just([{"type": "function", "function": {"name": "f"}}]),
        },
    )


@st.composite
def captures(draw: st.DrawFn) -> Capture:
    """A stream of such blocks, perhaps damaged, in HTTP chunks of any size."""
    body = draw(bodies())
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(body)))
        body = body[:at] + draw(st.binary(max_size=3)) + body[at + draw(st.integers(0, 3)) :]
    size = draw(st.integers(1, 400))
    framed = b"".join(
        b"%x\r\n%b\r\n" % (len(body[at : at + size]), body[at : at + size])
        for at in range(0, len(body), size)
    )
    received = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    received += b"Transfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n"
    received = received[: draw(st.one_of(st.none(), st.integers(0, len(received))))]
    asked = json.dumps(draw(requests())).encode()
    path = draw(st.sampled_from([b"chat/completions", b"completions"]))
    head = b"POST /v1/%b HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (path, len(asked))
    return Capture(
        received,
        reads=(Read(len(received), 1.0, True),),
        request=(Segment(head + asked, 0.0),),
        end=End(draw(st.sampled_from([How.FRAMED, How.CLOSED, How.LEFT, How.CLOCK])), 1.0),
    )


@given(captures())
@settings(max_examples=60, deadline=None)
def test_any_stream_is_read_and_judged_alike_both_ways(capture: Capture) -> None:
    assert differences(capture) == []


@pytest.mark.slow
@given(captures())
@settings(max_examples=1500, deadline=None)
def test_many_streams_are_read_and_judged_alike_both_ways(capture: Capture) -> None:
    assert differences(capture) == []


def test_the_samples_are_read_and_judged_alike_both_ways() -> None:
    found = {
        item.sample: differences(capture, item.dossier.api)
        for item in items(str(SAMPLES), Hints())
        for takes in item.dossier.roles.values()
        for capture in takes
    }
    assert {sample: names for sample, names in found.items() if names} == {}


def test_nearly_all_of_a_stream_is_read_by_its_pattern_and_left_out_of_its_outline() -> None:
    body = b"".join(spelled(each, True, False) for each in texts(*"abcdefghij" * 10))
    reading = read(Capture(HEAD + body + b"data: [DONE]\n\n"))
    assert sum(each.pattern is not None for each in reading.chunks) == 100
    assert len(outline(reading).chunks) == 6  # role, three texts, finish, sentinel
    assert outline(outline(reading)) is outline(reading)


def test_choices_that_take_turns_have_a_pattern_each() -> None:
    turns = [say(text, index) for text in "abcdefgh" for index in (0, 1, 2)]
    reading = read(Capture(HEAD + b"".join(spelled(each, True, False) for each in turns)))
    assert len({each.pattern for each in reading.chunks}) == 3
    assert [each.event.data for each in outline(reading).chunks] == [
        each.event.data for at, each in enumerate(reading.chunks) if at < 6 or at > 20
    ]


def test_patterns_that_nothing_fits_are_not_made_for_ever() -> None:
    body = b"".join(spelled(say("a", id=f"c{n}"), True, False) for n in range(40))
    made = [each.pattern for each in read(Capture(HEAD + body)).chunks]
    assert [each is not None for each in made] == [True] * 8 + [False] * 32


def test_an_empty_text_has_no_pattern() -> None:
    body = b"".join(spelled(say(text), True, False) for text in ("a", "", "b", ""))
    found = [each.pattern is not None for each in read(Capture(HEAD + body)).chunks]
    assert found == [True, False, True, False]


CHUNKS = st.sampled_from(
    (
        *(b"2\r\nab\r\n", b"02\r\nab\r\n", b"1;x\r\na\r\n", b"A\r\n0123456789\r\n", b"0\r\n\r\n"),
        *(b" 1\r\na\r\n", b"1\na\r\n", b"1\r\nab\r\n", b"2\r\na\r\n", b"+1\r\na\r\n", b"1_0\r\n"),
        *(b"0x1\r\na\r\n", b"\r\n", b"000000001\r\na\r\n", b"fffffffff\r\na\r\n"),
    )
)


@given(st.lists(CHUNKS, max_size=8).map(b"".join), st.integers(0, 80), st.integers(30, 80))
@settings(max_examples=200, deadline=None)
def test_any_chunks_are_framed_alike_both_ways(data: bytes, cut: int, most: int) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    found = []
    for shortcut in (True, False):
        reader = http1.Reader(max_head=most, shortcut=shortcut)
        bodies = [reader.feed(piece) for piece in (head + data[:cut], data[cut:])]
        reader.close()
        found.append((bodies, reader.spans, reader.anomalies, reader.complete, reader.end))
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FAULTS))
def test_what_a_fault_does_is_read_and_judged_alike_both_ways(name: str) -> None:
    recorded = run([FAULTS[name]], "--select", FAULTS[name].id, key=KEY)
    captures = [c for d in recorded.dossiers for takes in d.roles.values() for c in takes]
    assert [found for capture in captures if (found := differences(capture))] == []
