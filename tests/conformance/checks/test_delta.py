"""Deltas and plain answers: one change in a clean answer, and legal forms of a role chunk."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.dialects import OVERLAYS
from conformance.dossier import COMPLETIONS
from conformance.findings import Verdict
from tests.conformance.bodies import (
    CASES,
    CHUNKS,
    COMPLETIONS_CHUNKS,
    MUST,
    SHOULD,
    Row,
    broken,
    chunk,
    completion,
    dossier,
    finish,
    judged,
    named,
    plain,
    plain_chat,
    result,
    role,
    say,
    streamed,
    texts,
    without,
)

REASONED = [chunk({"role": "assistant", "reasoning_content": "hm"}), say("a"), finish()]
EMPTY = chunk({"content": ""})

BROKEN: list[Row] = [
    ("no role", streamed(CHUNKS[1:]), {"role.missing": SHOULD}),
    (
        "the role in the second delta",
        streamed([say("a"), role(), *CHUNKS[1:]]),
        {"role.missing": SHOULD},
    ),
    (
        "no role for the second choice",
        streamed([role(0), say("a", 1), finish("stop", 0), finish("stop", 1)], n=2),
        {"role.missing": SHOULD},
    ),
    (
        "a role on each delta",
        streamed([role(), chunk({"role": "assistant", "content": "a"}), finish()]),
        {"role.repeated": SHOULD},
    ),
    (
        "an unknown role",
        streamed([chunk({"role": "model", "content": ""}), *CHUNKS[1:]]),
        {"role.value": MUST},
    ),
    (
        "a null role on later deltas",
        streamed([role(), chunk({"role": None, "content": "a"}), finish()]),
        {"role.value": MUST},
    ),
    (
        "the user's role",
        streamed([chunk({"role": "user", "content": ""}), *CHUNKS[1:]]),
        {"role.value": SHOULD},
    ),
    (
        "tool calls as an object",
        streamed([role(), chunk({"content": "a", "tool_calls": {}}), finish()]),
        {"delta.content-type": MUST},
    ),
    (
        "an empty role on later deltas",
        streamed([role(), chunk({"role": "", "content": "a"}), finish()]),
        {"role.value": SHOULD},
    ),
    (
        "content in parts",
        streamed([role(), say([{"type": "text", "text": "a"}]), finish()]),
        {"delta.content-type": MUST},
    ),
    ("content as a number", streamed([role(), say(4), finish()]), {"delta.content-type": MUST}),
    (
        "a null text in completions",
        streamed([*COMPLETIONS_CHUNKS[:-1], completion(None, "stop")], api=COMPLETIONS),
        {"delta.content-type": MUST},
    ),
    (
        "a refusal that is an object",
        streamed([role(), chunk({"refusal": {"why": "x"}}), finish()]),
        {"delta.content-type": MUST},
    ),
    (
        "a flood of empty deltas",
        streamed([role(), *[EMPTY] * 8, say("a"), finish()]),
        {"delta.empty-flood": SHOULD},
    ),
    (
        "empty lists of tool calls",
        streamed([role(), chunk({"content": "a", "tool_calls": []}), finish()]),
        {"delta.tool-calls-empty": SHOULD},
    ),
    (
        "empty reasoning beside the answer",
        streamed([*REASONED[:2], chunk({"content": "b", "reasoning": ""}), finish()]),
        {"reasoning.empty-field": SHOULD},
    ),
]


@pytest.mark.parametrize("row", BROKEN, ids=named)
def test_deltas_break_just_these_sentences(row: Row) -> None:
    assert broken(row[1]) == row[2]


LEGAL: list[Row] = [
    ("a role chunk with null content", streamed([chunk({"role": "assistant", "content": None}),
                                                 *CHUNKS[1:]]), {}),
    ("a role without content", streamed([chunk({"role": "assistant"}), *CHUNKS[1:]]), {}),
    ("a role with the first text", streamed([chunk({"role": "assistant", "content": "a"}),
                                             finish()]), {}),
    ("a refusal", streamed([chunk({"role": "assistant", "content": None, "refusal": ""}),
                            chunk({"refusal": "no"}), finish()]), {}),
    ("text on the finish chunk", streamed([role(), chunk({"content": "a"}, "stop")]), {}),
    ("a hold-back window of empty deltas", streamed([role(), *[EMPTY] * 7, say("a"), finish()]),
     {}),
    ("null members", streamed([role(), chunk({"content": "a", "tool_calls": None,
                                              "reasoning_content": None}), finish()]), {}),
    ("reasoning, then the answer", streamed(REASONED), {}),
    ("empty reasoning before anything", streamed([chunk({"role": "assistant", "content": "",
                                                         "reasoning_content": ""}),
                                                  *REASONED[1:]]), {}),
    ("the whole answer in one delta", streamed(texts("all at once")), {}),
    ("no text at all", streamed(texts()), {}),
]  # fmt: skip


@pytest.mark.parametrize("row", LEGAL, ids=named)
def test_deltas_are_legal(row: Row) -> None:
    assert broken(row[1]) == row[2]


def test_empty_deltas_that_bring_log_probabilities_are_no_flood() -> None:
    entry = {"token": "", "logprob": -1, "bytes": [226], "top_logprobs": []}
    bare = chunk({"content": ""})
    choices = bare["choices"]
    assert isinstance(choices, list)
    assert isinstance(choices[0], dict)
    choices[0]["logprobs"] = {"content": [entry]}
    flood = streamed([role(), *[bare] * 20, say("a"), finish()], logprobs=True)
    assert result("delta.empty-flood", flood).findings == ()


PLAIN: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("a clean answer", {}, {}),
    ("a streamed object", {"object": "chat.completion.chunk"}, {"plain.shape": MUST}),
    ("no choices", {"choices": []}, {"plain.shape": MUST}),
    ("choices null", {"choices": None}, {"plain.shape": MUST}),
    ("no usage", {"usage": None}, {"plain.shape": SHOULD}),
    (
        "a null finish reason",
        {
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": "a"},
                 "finish_reason": None}
            ]
        },
        {"plain.shape": MUST},
    ),
    (
        "a delta",
        {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]},
        {"plain.delta": MUST},
    ),
    (
        "a text instead of a message",
        {"choices": [{"index": 0, "text": "a", "finish_reason": "stop"}]},
        {"plain.shape": MUST},
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", PLAIN, ids=named)
def test_a_plain_answer_breaks_just_these_sentences(
    row: tuple[str, dict[str, Any], dict[str, Any]],
) -> None:
    _, change, expected = row
    assert broken(plain(plain_chat(**change))) == expected


def test_a_plain_answer_without_an_id_is_missing_a_member() -> None:
    found = result("plain.shape", plain(without(plain_chat(), "id", "model"))).findings
    assert "`id`, `model`" in found[0].message


def test_a_plain_completion_has_a_text() -> None:
    record = completion("a", "stop") | {"usage": {}}
    assert result("plain.shape", plain(record, api=COMPLETIONS)).verdict is Verdict.PASS
    null = completion(None, "stop") | {"usage": {}}
    assert result("plain.shape", plain(null, api=COMPLETIONS)).level is MUST


def test_a_plain_body_that_is_no_object_is_left_to_other_checks() -> None:
    found = judged(dossier(plain([])))["plain.shape"]
    assert found.verdict is Verdict.INCONCLUSIVE


def test_an_overlay_lowers_what_its_server_documents_and_nothing_else() -> None:
    repeated = streamed([role(), chunk({"role": "assistant", "content": "a"}), finish()])
    verdicts = {
        name: judged(dossier(repeated, dialect=name))["role.repeated"].verdict
        for name in (None, "vllm", "tgi")
    }
    assert verdicts == {
        None: Verdict.NON_STRICT,
        "vllm": Verdict.NON_STRICT,
        "tgi": Verdict.INFO,
    }


def test_every_lowered_check_exists() -> None:
    known = {case.id for case in CASES}
    assert {check for overlay in OVERLAYS.values() for check in overlay.lower} <= known
