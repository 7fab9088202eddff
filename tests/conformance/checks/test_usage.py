"""Token counts: on one stream, on a plain answer, and compared over a pair of forms."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.capture import How
from conformance.dossier import Dossier
from conformance.findings import Verdict
from tests.conformance.bodies import (
    ASKS_USAGE,
    CHUNKS,
    MUST,
    SHOULD,
    USAGE,
    WITH_USAGE,
    Record,
    Row,
    broken,
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
    usage_chunk,
)

NULLED = WITH_USAGE[:-1]
ZERO: Any = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
RUNNING: dict[str, Any] = {
    "stream_options": {"include_usage": True, "continuous_usage_stats": True}
}


def counts(prompt: Any, completion: Any, total: Any, **more: Any) -> Record:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total, **more}


def running(*each: int) -> list[Record]:
    said = [say("a", usage=counts(5, n, 5 + n)) for n in each]
    return [role() | {"usage": counts(5, 0, 5)}, *said]


def closed(usage: Any) -> list[Record]:
    return [*NULLED, usage_chunk(usage)]


BROKEN: list[Row] = [
    ("asked for, never sent", streamed(CHUNKS, **ASKS_USAGE), {"usage.missing": MUST}),
    ("null to the end", streamed(NULLED, **ASKS_USAGE), {"usage.missing": MUST}),
    (
        "only running counts",
        streamed([*running(1, 2), finish()], **RUNNING),
        {"usage.missing": MUST},
    ),
    (
        "on the finish chunk",
        streamed([*NULLED[:-1], finish(usage=USAGE)], **ASKS_USAGE),
        {"usage.placement": SHOULD},
    ),
    (
        "on the finish chunk, not asked for",
        streamed([*CHUNKS[:-1], finish(usage=USAGE)]),
        {},  # told, as information
    ),
    (
        "before the finish reason",
        streamed([*NULLED[:-1], usage_chunk(), finish(usage=None)], **ASKS_USAGE),
        {"usage.placement": SHOULD},
    ),
    (
        "twice, the same",
        streamed([*WITH_USAGE, usage_chunk()], **ASKS_USAGE),
        {"usage.placement": SHOULD},
    ),
    (
        "no null before",
        streamed([*CHUNKS, usage_chunk()], **ASKS_USAGE),
        {"usage.null-before": SHOULD},
    ),
    (
        "zeros on each chunk",
        streamed([c | {"usage": ZERO} for c in CHUNKS[:-1]] + [finish(usage=None), usage_chunk()],
                 **ASKS_USAGE),
        {"usage.intermediate": MUST},
    ),
    (
        "running counts that nobody asked for",
        streamed([*running(1, 2), finish(usage=None), usage_chunk()], **ASKS_USAGE),
        {"usage.intermediate": MUST},
    ),
    ("a wrong total", streamed(closed(counts(5, 2, 9)), **ASKS_USAGE), {"usage.sum": MUST}),
    ("no total", streamed(closed({"prompt_tokens": 5, "completion_tokens": 2}), **ASKS_USAGE),
     {"usage.type": MUST}),
    ("counts in words", streamed(closed(counts(5, "2", 7)), **ASKS_USAGE), {"usage.type": MUST}),
    ("counts below 0", streamed(closed(counts(-1, 3, 2)), **ASKS_USAGE), {"usage.type": MUST}),
    (
        "more than allowed",
        streamed(closed(counts(5, 9, 14)), max_tokens=8, **ASKS_USAGE),
        {"usage.over-limit": MUST},
    ),
    (
        "more than allowed under the newer name",
        streamed(closed(counts(5, 9, 14)), max_completion_tokens=8, **ASKS_USAGE),
        {"usage.over-limit": MUST},
    ),
    (
        "none, and yet text",
        streamed(closed(counts(5, 0, 5)), **ASKS_USAGE),
        {"usage.under-count": MUST},
    ),
    (
        "one less than the limit that cut it",
        streamed([c | {"usage": None} for c in texts("a", reason="length")]
                 + [usage_chunk(counts(5, 4, 9))], max_tokens=5, **ASKS_USAGE),
        {"usage.under-count": MUST},
    ),
    (
        "fewer than there are pieces",
        streamed(closed(counts(5, 1, 6)), **ASKS_USAGE),
        {"usage.under-count": SHOULD},
    ),
    (
        "two that disagree",
        streamed([*WITH_USAGE, usage_chunk(counts(5, 3, 8))], **ASKS_USAGE),
        {"usage.conflict": MUST},
    ),
    (
        "running backwards",
        streamed([*running(1, 3, 2), finish(usage=None), usage_chunk(counts(5, 3, 8))], **RUNNING),
        {"usage.conflict": MUST},
    ),
    (
        "more cached than there are",
        streamed(closed(counts(5, 2, 7, prompt_tokens_details={"cached_tokens": 6})), **ASKS_USAGE),
        {"usage.details": MUST},
    ),
    (
        "more reasoning than there is",
        streamed(closed(counts(5, 2, 7, completion_tokens_details={"reasoning_tokens": 3})),
                 **ASKS_USAGE),
        {"usage.details": MUST},
    ),
    ("a plain answer's total", plain(plain_chat(usage=counts(1, 1, 3))), {"usage.sum": MUST}),
    ("a plain answer's limit", plain(plain_chat(), max_tokens=1), {"usage.over-limit": MUST}),
    ("behind the sentinel", streamed([*NULLED, "[DONE]", usage_chunk()], done=False, **ASKS_USAGE),
     {"usage.missing": MUST, "done.data-after": MUST}),
]  # fmt: skip


@pytest.mark.parametrize("row", BROKEN, ids=named)
def test_usage_breaks_just_these_sentences(row: Row) -> None:
    assert broken(row[1]) == row[2]


def said(*choices: tuple[str, str], used: int, prompt: int = 5, **request: Any) -> Any:
    """A plain answer: text and finish reason of each choice, and the tokens that were counted."""
    listed = [
        {"index": at, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
        for at, (text, reason) in enumerate(choices)
    ]
    usage = counts(prompt, used, prompt + used)
    return plain(plain_chat(usage=usage, choices=listed), n=len(choices), **request)


def three(used: int, **request: Any) -> Any:
    """Three streamed choices of a token each, and how many were counted."""
    records = [record | {"usage": None} for at in range(3)
               for record in (role(at), say("a", at), finish("length", at))]  # fmt: skip
    usage = usage_chunk(counts(5, used, 5 + used))
    return streamed([*records, usage], n=3, max_tokens=1, **ASKS_USAGE, **request)


CUT, ENDED = ("a b", "length"), ("a b", "stop")
CHOICES: list[tuple[str, Any, Verdict]] = [
    ("all of three", three(3), Verdict.PASS),
    ("one of three", three(1), Verdict.FAIL),
    ("all of two plain ones", said(CUT, CUT, used=10, max_tokens=5), Verdict.PASS),
    ("one of two plain ones", said(CUT, CUT, used=5, max_tokens=5), Verdict.FAIL),
    ("two that ended by themselves", said(ENDED, ENDED, used=2, max_tokens=5), Verdict.PASS),
    ("one token for two texts", said(ENDED, ENDED, used=1, max_tokens=5), Verdict.FAIL),
    ("one that is cut and one that says nothing", said(CUT, ("", "stop"), used=5, max_tokens=5),
     Verdict.INCONCLUSIVE),
    ("cut by a limit that a context may precede", said(CUT, CUT, used=9, max_tokens=500),
     Verdict.PASS),
    ("cut behind a prompt that may fill the context",
     said(CUT, CUT, used=2, prompt=4095, max_tokens=5), Verdict.PASS),
    ("one choice", said(CUT, used=5, max_tokens=5), Verdict.INCONCLUSIVE),
]  # fmt: skip


@pytest.mark.parametrize(("name", "capture", "verdict"), CHOICES, ids=[r[0] for r in CHOICES])
def test_every_choice_is_paid_for(name: str, capture: Any, verdict: Verdict) -> None:
    assert result("usage.choices", capture).verdict is verdict


def test_what_disagrees_with_itself_is_left_to_the_check_of_that() -> None:
    records = [record | {"usage": None} for at in range(2)
               for record in (role(at), say("a", at), finish("length", at))]  # fmt: skip
    each = [usage_chunk(counts(5, used, 5 + used)) for used in (2, 1)]
    capture = streamed([*records, *each], n=2, max_tokens=1, **ASKS_USAGE)
    assert set(broken(capture)) == {"usage.conflict"}


def prompts(once: int, several: int, prompt: str = "Hi") -> Any:
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
    other: dict[str, Any] = {"messages": [{"role": "user", "content": prompt}]}
    roles = {
        "limited": (said(CUT, used=5, prompt=once, **asked),),
        "stream": (said(CUT, CUT, CUT, used=15, prompt=several, **other),),
    }
    return judged(Dossier("discovery", roles, api="chat"))["usage.prompt-once"].verdict


def test_a_prompt_is_paid_for_once_however_many_choices_it_has() -> None:
    assert prompts(7, 7) is Verdict.PASS
    assert prompts(7, 21) is Verdict.FAIL
    assert prompts(7, 9) is Verdict.PASS  # another matter: usage.prompt-stable
    assert prompts(7, 21, "Hi there") is Verdict.INCONCLUSIVE


LEGAL: list[Row] = [
    ("a closing chunk", streamed(WITH_USAGE, **ASKS_USAGE), {}),
    (
        "running counts that were asked for",
        streamed([*running(1, 2), finish(usage=counts(5, 2, 7)), usage_chunk()], **RUNNING),
        {},
    ),
    (
        "details within their wholes",
        streamed(closed(counts(5, 2, 7, prompt_tokens_details={"cached_tokens": 5},
                               completion_tokens_details=None)), **ASKS_USAGE),
        {},
    ),
    (
        "as many for two choices as the limit allows each",
        streamed([role(0) | {"usage": None}, role(1) | {"usage": None},
                  finish("length", 0, usage=None), finish("length", 1, usage=None),
                  usage_chunk(counts(5, 16, 21))], n=2, max_tokens=8, **ASKS_USAGE),
        {},
    ),
    (
        "a full context cuts before the limit",
        streamed([c | {"usage": None} for c in texts("a", reason="length")]
                 + [usage_chunk(counts(4095, 1, 4096))], max_tokens=16, **ASKS_USAGE),
        {},
    ),
    ("include_usage false", streamed(CHUNKS, stream_options={"include_usage": False}), {}),
    ("a plain answer", plain(plain_chat(), max_tokens=2), {}),
]  # fmt: skip


@pytest.mark.parametrize("row", LEGAL, ids=named)
def test_usage_is_legal(row: Row) -> None:
    assert broken(row[1]) == row[2]


@pytest.mark.parametrize("how", [How.LEFT, How.CLOCK])
def test_usage_is_not_missing_from_a_stream_that_did_not_end(how: How) -> None:
    capture = streamed(CHUNKS[:2], done=False, how=how, **ASKS_USAGE)
    assert result("usage.missing", capture).verdict is Verdict.INCONCLUSIVE


def pair(streams: list[Any], answers: list[Any], text: str = "Hi there") -> Dossier:
    return Dossier(
        "pair",
        {
            "stream": tuple(streamed(closed(usage), **ASKS_USAGE) for usage in streams),
            "plain": tuple(plain(plain_chat(text, usage=usage)) for usage in answers),
        },
    )


PAIRS = [
    ("equal", pair([USAGE, USAGE], [USAGE, USAGE]), Verdict.PASS, Verdict.PASS),
    ("one token more when streamed", pair([counts(5, 3, 8)], [USAGE]), Verdict.FAIL, Verdict.PASS),
    ("another prompt length", pair([counts(6, 2, 8)], [USAGE]), Verdict.PASS, Verdict.FAIL),
    (
        "another answer",
        pair([counts(5, 3, 8)], [USAGE], "Other text"),
        Verdict.INCONCLUSIVE,
        Verdict.PASS,
    ),
]


@pytest.mark.parametrize(("name", "both", "parity", "prompt"), PAIRS, ids=[r[0] for r in PAIRS])
def test_both_forms_count_alike(name: str, both: Dossier, parity: Verdict, prompt: Verdict) -> None:
    found = judged(both)
    assert (found["usage.parity"].verdict, found["usage.prompt-stable"].verdict) == (parity, prompt)
