"""Envelope and choices: records that break one sentence, and legal oddities that break none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conformance.capture import Given, How
from conformance.dossier import COMPLETIONS
from conformance.findings import Verdict
from tests.conformance.bodies import (
    ASKS_USAGE,
    CHUNKS,
    COMPLETIONS_CHUNKS,
    MUST,
    SHOULD,
    WITH_USAGE,
    Row,
    broken,
    choice,
    chunk,
    completion,
    dossier,
    envelope,
    finish,
    judged,
    named,
    only,
    plain,
    plain_chat,
    result,
    role,
    say,
    streamed,
    texts,
    usage_chunk,
    without,
)

FILTER = envelope([], prompt_filter_results=[]) | {"id": "", "object": "", "model": ""}

FILTER_AS_CHUNK = {
    "chunk.empty-choices": MUST,
    "chunk.object": MUST,
    "chunk.id-changes": MUST,
    "chunk.id-empty": SHOULD,
    "chunk.model": SHOULD,
}


def each(**change: object) -> list[dict[str, Any]]:
    return [record | change for record in CHUNKS]


PLAIN_CHOICE = plain_chat()["choices"][0]
UNKNOWN_API = replace(plain(plain_chat()), given=Given(200, "application/json", None, {"n": 1}))
BROKEN: list[Row] = [
    ("no id", streamed([without(c, "id") for c in CHUNKS]), {"chunk.missing-key": MUST}),
    (
        "no created, model in the usage chunk",
        streamed([*WITH_USAGE[:-1], without(usage_chunk(), "created", "model")], **ASKS_USAGE),
        {"chunk.missing-key": MUST},
    ),
    ("a null id", streamed(each(id=None)), {"chunk.missing-key": MUST}),
    ("a heartbeat object", streamed([role(), {}, *CHUNKS[1:]]), {"chunk.no-choices": MUST}),
    (
        "choices null in the usage chunk",
        streamed([*WITH_USAGE[:-1], usage_chunk() | {"choices": None}], **ASKS_USAGE),
        {"chunk.no-choices": MUST},
    ),
    (
        "choices an object",
        streamed([role(), envelope({}), *CHUNKS[1:]]),
        {"chunk.no-choices": MUST},
    ),
    ("usage that nobody asked for", streamed(WITH_USAGE), {"chunk.empty-choices": MUST}),
    ("a vendor's record first", streamed([FILTER, *CHUNKS]), FILTER_AS_CHUNK),
    (
        "an empty chunk with include_usage",
        streamed([role(), envelope([], usage=None), *WITH_USAGE[1:]], **ASKS_USAGE),
        {"chunk.empty-choices": MUST, "usage.null-before": SHOULD},
    ),
    ("another object", streamed(each(object="chat.completion")), {"chunk.object": MUST}),
    (
        "chat's object in completions",
        streamed(
            [c | {"object": "chat.completion.chunk"} for c in COMPLETIONS_CHUNKS], api=COMPLETIONS
        ),
        {"chunk.object": MUST},
    ),
    (
        "an id per choice",
        streamed(
            [role(0), role(1) | {"id": "c2"}, finish("stop", 0), finish("stop", 1) | {"id": "c2"}],
            n=2,
        ),
        {"chunk.id-changes": MUST},
    ),
    ("an empty id", streamed(each(id="")), {"chunk.id-empty": SHOULD}),
    ("a creation time in words", streamed(each(created="now")), {"chunk.created": MUST}),
    ("a creation time with a fraction", streamed(each(created=1.7e9)), {"chunk.created": MUST}),
    ("milliseconds", streamed(each(created=1700000000123)), {"chunk.created-unit": SHOULD}),
    (
        "a creation time per chunk",
        streamed([*CHUNKS[:2], *(c | {"created": 1700000001} for c in CHUNKS[2:])]),
        {"chunk.created-changes": SHOULD},
    ),
    ("no model name", streamed(each(model=None)), {"chunk.model": SHOULD}),
    (
        "another model in the middle",
        streamed([CHUNKS[0], *(c | {"model": "other"} for c in CHUNKS[1:])]),
        {"chunk.model": SHOULD},
    ),
    (
        "no delta in the finish chunk",
        streamed([*CHUNKS[:-1], envelope([{"index": 0, "finish_reason": "stop"}])]),
        {"chunk.choice-shape": MUST},
    ),
    (
        "a null delta",
        streamed([*CHUNKS[:-1], envelope([choice(None, "stop")])]),
        {"chunk.choice-shape": MUST},
    ),
    (
        "no index",
        streamed([role(), envelope([without(choice({"content": "a"}), "index")]), finish()]),
        {"chunk.choice-shape": MUST},
    ),
    (
        "an index in words",
        streamed([role(), envelope([choice({"content": "a"}, index="0")]), finish()]),
        {"chunk.choice-shape": MUST},
    ),
    (
        "completions' form in chat",
        streamed([*CHUNKS[:-1], envelope([{"index": 0, "text": "", "finish_reason": "stop"}])]),
        {"chunk.choice-shape": MUST},
    ),
    (
        "no text in a completion",
        streamed(
            [
                COMPLETIONS_CHUNKS[0],
                envelope([{"index": 0, "logprobs": None, "finish_reason": "stop"}])
                | {"id": "cmpl-1", "object": "text_completion"},
            ],
            api=COMPLETIONS,
        ),
        {"chunk.choice-shape": MUST},
    ),
    (
        "a message beside the delta",
        streamed(
            [role(), envelope([choice({"content": "a"}, message={"content": "a"})]), finish()]
        ),
        {"chunk.message-in-stream": MUST},
    ),
    (
        "a message in the delta's place",
        streamed([*CHUNKS[:-1], envelope([{"index": 0, "message": {}, "finish_reason": "stop"}])]),
        {"chunk.message-in-stream": MUST},
    ),
    (
        "a member that changes its type",
        streamed([role(), say("a", timings=[]), finish("stop", timings={"n": 1})]),
        {"chunk.key-type": MUST},
    ),
    (
        "a fingerprint that is a number",
        streamed(each(system_fingerprint=7)),
        {"chunk.fingerprint": MUST},
    ),
    ("an index beyond n", streamed([*CHUNKS, say("x", index=1)]), {"choice.index-range": MUST}),
    (
        "an index below 0",
        streamed([*CHUNKS[:2], say("x", index=-1), *CHUNKS[2:]], n=2),
        {"choice.index-range": MUST},
    ),
    ("one choice of two", streamed(CHUNKS, n=2), {"choice.missing": MUST}),
    (
        "one choice of two, and no sentinel",
        streamed(CHUNKS, n=2, done=False),
        {"choice.missing": MUST, "done.missing": MUST},
    ),
    (
        "one choice of two, the other begun",
        streamed([*CHUNKS, role(1)], n=2, done=False),
        {"stream.truncated": MUST},
    ),
    (
        "one choice of two, the connection reset",
        streamed(CHUNKS, n=2, done=False, how=How.RESET),
        {"stream.truncated": MUST},
    ),
    ("one choice of two in a plain answer", plain(plain_chat(), n=2), {"choice.missing": MUST}),
    (
        "two choices of two in a plain answer",
        plain(plain_chat() | {"choices": [{**PLAIN_CHOICE, "index": i} for i in (0, 1)]}, n=2),
        {},
    ),
    ("one choice of one, of an API that is not known", UNKNOWN_API, {}),
    ("no choice at all in a plain answer", plain(plain_chat(choices=[])), {"plain.shape": MUST}),
    (
        "the second choice first",
        streamed([role(1), role(0), finish("stop", 0), finish("stop", 1)], n=2),
        {"choice.order": MUST},
    ),
]


@pytest.mark.parametrize("row", BROKEN, ids=named)
def test_the_envelope_breaks_just_these_sentences(row: Row) -> None:
    assert broken(row[1]) == row[2]


LEGAL: list[Row] = [
    ("a clean stream", streamed(CHUNKS), {}),
    ("a clean completion", streamed(COMPLETIONS_CHUNKS, api=COMPLETIONS), {}),
    ("null before the usage chunk", streamed(WITH_USAGE, **ASKS_USAGE), {}),
    (
        "extras of the vendor's own",
        streamed([c | {"x": 1, "service_tier": None} for c in CHUNKS]),
        {},
    ),
    ("a null that becomes a number", streamed([role() | {"t": None}, *each(t=1)[1:]]), {}),
    (
        "a stop reason that is a number or a word",
        streamed(
            [
                role(0),
                role(1),
                envelope([choice({}, "stop", stop_reason=7)]),
                envelope([choice({}, "stop", 1, stop_reason="x")]),
            ],
            n=2,
        ),
        {},
    ),
    (
        "indices of two prompts with n = 2",
        streamed(
            [completion("a", "stop", i) for i in range(4)], api=COMPLETIONS, prompt=["x", "y"], n=2
        ),
        {},
    ),
    ("choices that begin in one chunk", streamed([envelope([choice({"role": "assistant"}, index=i)
      for i in (0, 1)]), finish("stop", 1), finish("length", 0)], n=2), {}),
]  # fmt: skip


@pytest.mark.parametrize("row", LEGAL, ids=named)
def test_the_envelope_is_legal(row: Row) -> None:
    assert broken(row[1]) == row[2]


def test_a_vendors_record_is_no_chunk_under_the_vendors_overlay() -> None:
    found = judged(dossier(streamed([FILTER, *CHUNKS]), dialect="azure"))
    assert not [r.id for r in found.values() if r.verdict is Verdict.FAIL]


def test_an_asynchronous_filter_record_needs_no_delta_under_the_vendors_overlay() -> None:
    late = envelope([{"index": 0, "finish_reason": None, "content_filter_results": {}}])
    found = judged(dossier(streamed([*CHUNKS[:-1], late, CHUNKS[-1]]), dialect="azure"))
    assert found["chunk.choice-shape"].verdict is Verdict.PASS


def test_repeats_of_one_flaw_are_one_finding_with_their_number() -> None:
    findings = result(
        "chunk.object", streamed([c | {"object": "x"} for c in texts(*"abcdefgh")])
    ).findings
    assert len(findings) == 1
    assert findings[0].event == 0
    assert "in 9 more events" in findings[0].message


def test_a_finding_points_at_the_bytes_of_its_event() -> None:
    capture = streamed([role(), say("a"), chunk() | {"object": "x"}, finish()])
    finding = only("chunk.object", capture)
    assert finding.event == 2
    assert finding.offset is not None
    assert capture.received[finding.offset :].startswith(finding.excerpt)
    assert len(finding.excerpt) <= 120


def test_extras_are_named_with_their_types() -> None:
    finding = only("chunk.extras", streamed([c | {"timings": {}, "n_past": 3} for c in CHUNKS]))
    assert finding.message == "extras: n_past (number), timings (object)"


@pytest.mark.parametrize("check", ["choice.missing", "choice.order"])
def test_a_single_choice_says_nothing_about_several(check: str) -> None:
    assert result("choice.order", streamed(CHUNKS)).verdict is Verdict.INCONCLUSIVE
    assert result(check, streamed(CHUNKS, done=False), streamed(CHUNKS[:2])).findings == ()


def test_what_follows_the_sentinel_is_not_judged_again() -> None:
    capture = streamed([*CHUNKS, "[DONE]", chunk() | {"object": "x"}], done=False)
    assert broken(capture) == {"done.data-after": MUST}
