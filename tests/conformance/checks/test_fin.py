"""Finish reasons: passive checks on one stream, and the dossier checks on limits."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.capture import Capture, How
from conformance.dossier import COMPLETIONS
from conformance.findings import Verdict
from tests.conformance.bodies import (
    ASKS_USAGE,
    CHUNKS,
    COMPLETIONS_CHUNKS,
    MUST,
    SHOULD,
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
    result,
    role,
    say,
    streamed,
    texts,
    usage_chunk,
    without,
)

CALL = chunk(
    {
        "tool_calls": [
            {
                "index": 0,
                "id": "t1",
                "type": "function",
                "function": {"name": "f", "arguments": "{}"},
            }
        ]
    }
)
TOOLS: dict[str, Any] = {"tools": [{"type": "function", "function": {"name": "f"}}]}
NO_KEY = envelope([without(choice({"content": "a"}), "finish_reason")])
ERROR: dict[str, Any] = {
    "error": {"message": "lost", "type": "server_error", "param": None, "code": None}
}

BROKEN: list[Row] = [
    (
        "the key left out until the end of a completion, and no logprobs",
        streamed(
            [
                envelope([{"index": 0, "text": "a"}])
                | {"id": "cmpl-1", "object": "text_completion"},
                COMPLETIONS_CHUNKS[-1],
            ],
            api=COMPLETIONS,
        ),
        {"fin.key-missing": SHOULD, "chunk.choice-shape": SHOULD},
    ),
    (
        "the key left out until the end",
        streamed([role(), NO_KEY, finish()]),
        {"fin.key-missing": MUST},
    ),
    (
        "the key left out in completions",
        streamed(
            [envelope([{"index": 0, "text": "a", "logprobs": None}]) | {"object": "text_completion",
             "id": "cmpl-1"}, completion("", "stop")],
            api=COMPLETIONS,
        ),
        {"fin.key-missing": SHOULD},
    ),
    ("no key at all", streamed([role(), NO_KEY]), {"fin.missing": MUST}),
    ("null to the end", streamed(CHUNKS[:-1]), {"fin.missing": MUST}),
    (
        "the second choice without a reason",
        streamed([role(0), role(1), finish("stop", 0)], n=2),
        {"fin.missing": MUST},
    ),
    ("two reasons", streamed([*CHUNKS, finish("length")]), {"fin.duplicate": MUST}),
    ("text after the reason", streamed([*CHUNKS, say("more")]), {"fin.early": MUST}),
    (
        "a tool call after the reason",
        streamed([role(), finish("tool_calls"), CALL], **TOOLS),
        {"fin.early": MUST},
    ),
    (
        "reasoning marked as finished",
        streamed([role(), chunk({"reasoning_content": "hm"}, "stop"), say("a"), finish()]),
        {"fin.early": MUST, "fin.duplicate": MUST},
    ),
    (
        "an empty string until the end",
        streamed([role(), chunk({"content": "a"}, ""), finish()]),
        {"fin.empty-string": MUST},
    ),
    (
        "an empty string in completions",
        streamed([completion("a", ""), completion("", "stop")], api=COMPLETIONS),
        {"fin.empty-string": MUST},
    ),
    ("an undocumented word", streamed(texts("a", reason="eos_token")), {"fin.unknown-value": MUST}),
    ("a number", streamed([role(), chunk({"content": "a"}, 0), finish()]),
     {"fin.unknown-value": MUST}),
    ("stop after a call", streamed([role(), CALL, finish()], **TOOLS), {"fin.tool-calls": MUST}),
    (
        "tool_calls without a call",
        streamed(texts("a", reason="tool_calls"), **TOOLS),
        {"fin.tool-calls": MUST},
    ),
    (
        "stop at the limit",
        streamed([*[c | {"usage": None} for c in CHUNKS], usage_chunk()], max_tokens=2,
                 **ASKS_USAGE),
        {"fin.length-suspect": SHOULD},
    ),
    (
        "a stop string at the limit",
        streamed([*[c | {"usage": None} for c in CHUNKS], usage_chunk()], max_tokens=2,
                 stop=["x"], **ASKS_USAGE),
        {},
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", BROKEN, ids=named)
def test_the_finish_breaks_just_these_sentences(row: Row) -> None:
    assert broken(row[1]) == row[2]


LEGAL: list[Row] = [
    ("length", streamed(texts("a", reason="length"), max_tokens=9), {}),
    ("a filtered end", streamed(texts("a", reason="content_filter")), {}),
    ("a call cut by the limit", streamed([role(), CALL, finish("length")], **TOOLS), {}),
    ("calls", streamed([role(), CALL, finish("tool_calls")], **TOOLS), {}),
    (
        "stop after a demanded call",
        streamed([role(), CALL, finish()], tool_choice={"type": "function",
                 "function": {"name": "f"}}, **TOOLS),
        {},
    ),
    (
        "an old function call",
        streamed([role(), chunk({"function_call": {"name": "f", "arguments": "{}"}}),
                  finish("function_call")]),
        {},
    ),
    ("an error after text", streamed([*CHUNKS[:2], ERROR]), {}),
    (
        "choices that end in another order",
        streamed([role(0), role(1), finish("stop", 1), say("b", 0), finish("length", 0)], n=2),
        {},
    ),
    ("completions", streamed(COMPLETIONS_CHUNKS, api=COMPLETIONS), {}),
]  # fmt: skip


@pytest.mark.parametrize("row", LEGAL, ids=named)
def test_the_finish_is_legal(row: Row) -> None:
    assert broken(row[1]) == row[2]


@pytest.mark.parametrize("how", [How.LEFT, How.BOUND, How.CLOCK])
def test_a_stream_that_we_did_not_see_end_is_missing_no_reason(how: How) -> None:
    capture = streamed(CHUNKS[:2], done=False, how=how)
    assert result("fin.missing", capture).verdict is Verdict.INCONCLUSIVE


def test_a_cut_stream_is_told_once() -> None:
    capture = streamed(CHUNKS[:2], done=False)
    assert broken(capture) == {"stream.truncated": MUST}
    assert result("fin.missing", capture).verdict is Verdict.BLOCKED


def test_a_misspelt_key_is_named() -> None:
    twin = chunk({"content": "a"})
    twin["choices"] = [{"index": 0, "delta": {}, "finish_reason": None, "finishReason": "stop"}]
    found = result("fin.missing", streamed([role(), twin])).findings
    assert "finishReason" in found[0].message


def limited(limit: int, used: int | None, reason: str, *, name: str = "max_tokens") -> Capture:
    given: dict[str, Any] = {name: limit}
    records = [c | {"usage": None} for c in texts(*"abc", reason=reason)]
    if used is None:
        return streamed(records, **given)
    counts: Any = {"prompt_tokens": 1, "completion_tokens": used, "total_tokens": used + 1}
    return streamed([*records, usage_chunk(counts)], **given, **ASKS_USAGE)


LIMITS = [
    ("cut where it should be", [limited(3, 3, "length"), limited(7, 7, "length")], Verdict.PASS),
    ("one token too many", [limited(3, 3, "length"), limited(7, 8, "length")], Verdict.FAIL),
    ("one token too few", [limited(7, 6, "length")], Verdict.FAIL),
    ("stop at the limit", [limited(3, 3, "stop")], Verdict.FAIL),
    ("ended before the limit", [limited(7, 3, "stop")], Verdict.INCONCLUSIVE),
    ("length, usage unknown", [limited(3, None, "length")], Verdict.PASS),
    ("stop, usage unknown, as many pieces", [limited(3, None, "stop")], Verdict.FAIL),
    ("stop, usage unknown, few pieces", [limited(9, None, "stop")], Verdict.INCONCLUSIVE),
]


@pytest.mark.parametrize(("name", "captures", "verdict"), LIMITS, ids=[r[0] for r in LIMITS])
def test_limits(name: str, captures: list[Capture], verdict: Verdict) -> None:
    found = judged(dossier(*captures, scenario="discovery"))
    assert found["fin.limit"].verdict is verdict, name


def test_a_limit_by_its_newer_name() -> None:
    captures = [limited(3, 5, "length", name="max_completion_tokens")]
    given = {"name": "max_completion_tokens"}
    found = judged(dossier(*captures, scenario="discovery", parameters=given))
    assert found["fin.max-completion-tokens"].verdict is Verdict.NON_STRICT
    captures = [limited(5, 5, "length", name="max_completion_tokens")]
    found = judged(dossier(*captures, scenario="discovery", parameters=given))
    assert found["fin.max-completion-tokens"].verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("capture", "verdict"),
    [
        (limited(64, 3, "stop"), Verdict.PASS),
        (limited(64, 3, "length"), Verdict.FAIL),
        (limited(64, 64, "length"), Verdict.INCONCLUSIVE),
        (limited(64, None, "length"), Verdict.INCONCLUSIVE),
    ],
)
def test_a_natural_end(capture: Capture, verdict: Verdict) -> None:
    found = judged(dossier(capture, scenario="discovery"))
    assert found["fin.natural-stop"].verdict is verdict
