"""Log-probabilities: chat entries and completions arrays."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.capture import Capture
from conformance.dossier import COMPLETIONS
from conformance.findings import Verdict
from tests.conformance.bodies import (
    CHUNKS,
    MUST,
    SHOULD,
    USAGE,
    Record,
    Row,
    broken,
    choice,
    completion,
    envelope,
    finish,
    named,
    plain,
    plain_chat,
    result,
    role,
    streamed,
)

ASKED: dict[str, Any] = {"logprobs": True, "top_logprobs": 2}


def entry(token: str, logprob: Any = -0.5, *, raw: Any = ..., top: Any = ()) -> Any:
    octets = list(token.encode()) if raw is ... else raw
    return {"token": token, "logprob": logprob, "bytes": octets, "top_logprobs": list(top)}


def alternative(token: str, logprob: Any) -> Any:
    return {"token": token, "logprob": logprob, "bytes": None}


def piece(text: str, *entries: Any) -> Record:
    found: Any = {"content": list(entries)} if entries else None
    return envelope([choice({"content": text}, logprobs=found)])


def chat(*pieces: Record, **request: Any) -> Capture:
    return streamed([role(), *pieces, finish()], **{**ASKED, **request})


A = piece("a", entry("a"))
SPLIT = (piece("", entry("", raw=[0xE2, 0x82])), piece("€", entry("", raw=[0xAC])))

LOGPROBS = {"content": [entry("Hi"), entry(" there")], "refusal": None}


def two(*logprobs: Any) -> Record:
    """A plain answer of two choices with these log-probabilities."""
    (one,) = plain_chat()["choices"]
    choices = [{**one, "index": at, "logprobs": each} for at, each in enumerate(logprobs)]
    return plain_chat(choices=choices)


BROKEN: list[Row] = [
    ("asked for, never sent", streamed(CHUNKS, **ASKED), {"logprobs.missing": MUST}),
    ("never in a plain answer", plain(plain_chat(), **ASKED), {"logprobs.missing": MUST}),
    ("in one of two plain choices", plain(two(LOGPROBS, None), n=2, **ASKED),
     {"logprobs.missing": MUST}),
    ("in both plain choices", plain(two(LOGPROBS, LOGPROBS), n=2, **ASKED), {}),
    ("nobody asked for a plain answer's", plain(plain_chat()), {}),
    ("only on the last chunk", chat(piece("a"), piece("b"), piece("c", entry("c"))),
     {"logprobs.missing": MUST}),
    ("nobody asked", streamed([role(), A, finish()]), {"logprobs.unasked": MUST}),
    ("an empty object that nobody asked for",
     streamed([role(), envelope([choice({"content": "a"}, logprobs={})]), finish()]),
     {"logprobs.unasked": MUST}),
    ("no bytes member", chat(piece("a", {"token": "a", "logprob": -1, "top_logprobs": []})),
     {"logprobs.shape": MUST}),
    ("bytes beyond 255", chat(piece("a", entry("a", raw=[256]))), {"logprobs.shape": MUST}),
    ("a null logprob", chat(piece("a", entry("a", None))), {"logprobs.shape": MUST}),
    ("no alternatives member", chat(piece("a", {"token": "a", "logprob": -1, "bytes": [97]})),
     {"logprobs.shape": MUST}),
    ("above 0", chat(piece("a", entry("a", 0.5))), {"logprobs.value": MUST}),
    ("an alternative above 0", chat(piece("a", entry("a", top=[alternative("b", 2)]))),
     {"logprobs.value": MUST}),
    ("one token too early", chat(piece("Red", entry("Red"), entry(" fox")),
                                 piece(" fox.", entry("."))), {"logprobs.mismatch": SHOULD}),
    ("more at the end than the text", chat(piece("a", entry("a"), entry("<|end|>"))),
     {"logprobs.mismatch": SHOULD}),
    ("tokens of another text", chat(piece("a", entry("b", raw=None))),
     {"logprobs.mismatch": SHOULD}),
    ("bytes of a replacement", chat(piece("", entry("\ufffd")), piece("€", entry("\ufffd"))),
     {"logprobs.bytes": MUST}),
    ("three of two alternatives", chat(piece("a", entry("a", top=[
        alternative("a", -1), alternative("b", -2), alternative("c", -3)]))),
     {"logprobs.top": MUST}),
    ("unsorted alternatives", chat(piece("a", entry("a", top=[
        alternative("b", -2), alternative("a", -1)]))), {"logprobs.top": SHOULD}),
    ("one alternative twice", chat(piece("a", entry("a", top=[
        alternative("a", -1), alternative("a", -1)]))), {"logprobs.top": SHOULD}),
]  # fmt: skip


@pytest.mark.parametrize("row", BROKEN, ids=named)
def test_log_probabilities_break_just_these_sentences(row: Row) -> None:
    assert broken(row[1]) == row[2]


LEGAL: list[Row] = [
    ("an entry per token", chat(A, piece("b", entry("b"))), {}),
    ("several tokens in a chunk", chat(piece("ab", entry("a"), entry("b"))), {}),
    ("a character over two tokens", chat(*SPLIT), {}),
    ("a very unlikely token", chat(piece("a", entry("a", -9999.0))), {}),
    ("certainty", chat(piece("a", entry("a", 0))), {}),
    ("null bytes", chat(piece("a", entry("a", raw=None))), {}),
    ("sorted alternatives", chat(piece("a", entry("a", top=[
        alternative("a", -1), alternative("b", -1)]))), {}),
    ("text held back for a stop string, its entries before it",
     chat(piece("", entry("a")), piece("ab", entry("b")), stop=["zz"]), {}),
]  # fmt: skip


@pytest.mark.parametrize("row", LEGAL, ids=named)
def test_log_probabilities_are_legal(row: Row) -> None:
    found = broken(row[1])
    found.pop("delta.empty-flood", None)
    assert found == row[2]


def test_a_number_that_is_not_finite_is_told_once() -> None:
    capture = chat(piece("a", entry("a", top=[alternative("b", float("-inf"))])))
    assert broken(capture) == {"json.nonfinite": MUST}
    assert result("logprobs.value", capture).verdict is Verdict.BLOCKED


def arrays(*tokens: str, start: int = 0, **change: Any) -> Any:
    offsets = [start + len("".join(tokens[:i])) for i in range(len(tokens))]
    count = len(tokens)
    return {
        "tokens": list(tokens),
        "token_logprobs": [-0.5] * count,
        "top_logprobs": [{}] * count,
        "text_offset": offsets,
    } | change


def completions(*pieces: Any) -> Capture:
    records = [completion(text, logprobs=found) for text, found in pieces]
    return streamed([*records, completion("", "stop")], api=COMPLETIONS, logprobs=2)


ARRAYS: list[Row] = [
    ("four equal arrays", completions(("ab", arrays("a", "b")), ("c", arrays("c", start=2))), {}),
    ("no alternatives", completions(("a", arrays("a", top_logprobs=None))), {}),
    ("chat's form", completions(("a", {"content": [entry("a")]})), {"logprobs.arrays": MUST}),
    ("one array shorter", completions(("ab", arrays("a", "b", token_logprobs=[-1]))),
     {"logprobs.arrays": MUST}),
    ("offsets from 0 in each chunk", completions(("ab", arrays("a", "b")), ("c", arrays("c"))),
     {"logprobs.arrays": MUST}),
    ("none", completions(("a", None)), {"logprobs.missing": MUST}),
    ("above 0", completions(("a", arrays("a", token_logprobs=[1.5]))), {"logprobs.value": MUST}),
    ("other tokens", completions(("a", arrays("b"))), {"logprobs.mismatch": SHOULD}),
]  # fmt: skip


@pytest.mark.parametrize("row", ARRAYS, ids=named)
def test_completions_have_arrays(row: Row) -> None:
    assert broken(row[1]) == row[2]


@pytest.mark.parametrize(
    "check",
    [
        "logprobs.missing",
        "logprobs.shape",
        "logprobs.value",
        "logprobs.mismatch",
        "logprobs.bytes",
        "logprobs.top",
    ],
)
def test_a_stream_without_them_decides_nothing(check: str) -> None:
    assert result(check, streamed(CHUNKS)).verdict is Verdict.INCONCLUSIVE


def plain_completion(*found: Any) -> Capture:
    choices = [
        {"index": i, "text": "ab", "logprobs": each, "finish_reason": "stop"}
        for i, each in enumerate(found)
    ]
    record = envelope(choices, usage=USAGE) | {"object": "text_completion"}
    return plain(record, api=COMPLETIONS, logprobs=2, n=len(found))


def test_a_plain_completion_has_the_four_arrays_too() -> None:
    assert broken(plain_completion(arrays("a", "b"))) == {}
    assert broken(plain_completion(None)) == {"logprobs.missing": MUST}
    chats = {"content": [entry("a"), entry("b")]}
    assert broken(plain_completion(arrays("a", "b"), chats)) == {"logprobs.arrays": MUST}
    assert len(result("logprobs.arrays", plain_completion(chats, chats)).findings) == 4
