"""Isolation: for each check a record of a crowd that passes it and records that fail it."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.canaries import words
from conformance.capture import Capture, End, Given, How, Layer
from conformance.dossier import CHAT, PATHS, Dossier
from conformance.findings import Finding, Result, Verdict
from tests.conformance.bodies import (
    chunk,
    envelope,
    finish,
    judged,
    role,
    say,
    streamed,
    texts,
    usage_chunk,
)

CROWD = (
    "isolation.canary",
    "isolation.aborts",
    "isolation.limits",
    "isolation.stop",
    "isolation.ids",
)
INVALID = ("isolation.invalid-neighbour", "isolation.keep-alive")
WORDS = words(16, 7)
COUNT = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16"
STOPS = (", 6, ", ", 12,")
ids = iter(range(100_000))


def named(records: list[Any]) -> list[Any]:
    """The records under an id of their own."""
    name = f"c{next(ids)}"
    return [each if isinstance(each, str) else {**each, "id": name} for each in records]


def asked(word: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"Repeat this word 8 times: {word}"}]}


def repeating(word: str, *parts: str, **how: Any) -> Capture:
    """A stream that was given `word` and says `parts`, or the word twice."""
    said = parts or (word[:4], word[4:], "\n", word)
    return streamed(named(texts(*said)), **asked(word), **how)


def left(word: str, *parts: str, how: How = How.LEFT) -> Capture:
    return repeating(word, *(parts or (word[:4],)), how=how, done=False)


def limited(limit: int, used: int | None = None, reason: str = "length") -> Capture:
    used = limit if used is None else used
    counts = {"prompt_tokens": 5, "completion_tokens": used, "total_tokens": 5 + used}
    records = named([*texts(*["1, "] * used, reason=reason), usage_chunk(counts)])
    return streamed(records, max_tokens=limit, stream_options={"include_usage": True})


def stopped(text: str, stop: str, reason: str = "stop") -> Capture:
    return streamed(named(texts(text, reason=reason)), stop=[stop])


def refused(status: int, word: str = "x") -> Capture:
    given = Given(status, "application/json", "/v1" + PATHS[CHAT], {"stream": True, **asked(word)})
    return Capture(b'{"error": {"message": "no"}}', Layer.BODY, end=End(How.FRAMED), given=given)


def cut(stop: str) -> str:
    return COUNT[: COUNT.find(stop)]


def crowd(**roles: tuple[Capture, ...]) -> Dossier:
    """A crowd in order; a role given here replaces its own."""
    whole: dict[str, tuple[Capture, ...]] = {
        "control": (streamed(named(texts(COUNT, reason="length")), max_tokens=64),),
        "canary": tuple(repeating(word) for word in WORDS[:4]),
        "left": tuple(left(word) for word in WORDS[4:6]),
        "limit": (limited(1), limited(3)),
        "stop": tuple(stopped(cut(stop), stop) for stop in STOPS),
    }
    picked: dict[str, Any] = {"words": list(WORDS), "stops": list(STOPS)}
    return Dossier("crowd", {**whole, **roles}, api=CHAT, picked=picked, name="d")


def invalid(reused: bool = True, **roles: tuple[Capture, ...]) -> Dossier:
    whole: dict[str, tuple[Capture, ...]] = {
        "recovery": (repeating(WORDS[0]),),
        "neighbour": (repeating(WORDS[1]), repeating(WORDS[2])),
    }
    picked: dict[str, Any] = {"words": list(WORDS[:3]), "reused": reused, "mistakes": []}
    return Dossier("invalid", {**whole, **roles}, api=CHAT, picked=picked, name="d")


def broken(dossier: Dossier) -> set[str]:
    found = judged(dossier)
    return {check for check in (*CROWD, *INVALID) if found[check].findings}


def result(check: str, dossier: Dossier) -> Result:
    return judged(dossier)[check]


def only(check: str, dossier: Dossier) -> Finding:
    (finding,) = result(check, dossier).findings
    return finding


def three(last: Capture) -> tuple[Capture, ...]:
    return (*(repeating(word) for word in WORDS[:3]), last)


MINE, THEIRS, GONE = WORDS[3], WORDS[0], WORDS[4]
HALF = THEIRS[2:8]  # six letters
TOOL = [{"index": 0, "id": "t", "type": "function", "function": {"name": "f", "arguments": HALF}}]
LOGPROBS = {"content": [{"token": HALF, "logprob": 0, "bytes": None, "top_logprobs": []}]}
ENTRY = {"index": 0, "delta": {"content": "a"}, "finish_reason": None, "logprobs": LOGPROBS}


def with_record(record: Any) -> Capture:
    return streamed(named([role(), say(MINE), record, finish()]), **asked(MINE))


ROWS: list[tuple[str, Dossier, set[str]]] = [
    ("a crowd in order", crowd(), set()),
    ("bad requests in order", invalid(), set()),
    ("a neighbour's word", crowd(canary=three(repeating(MINE, MINE, THEIRS))),
     {"isolation.canary"}),
    ("six letters of it, over two deltas",
     crowd(canary=three(repeating(MINE, MINE, HALF[:3], HALF[3:]))), {"isolation.canary"}),
    ("five letters of it may be chance",
     crowd(canary=three(repeating(MINE, MINE, " ", HALF[:5]))), set()),
    ("in capitals", crowd(canary=three(repeating(MINE, MINE, THEIRS.upper()))),
     {"isolation.canary"}),
    ("in reasoning", crowd(canary=three(with_record(chunk({"reasoning_content": HALF})))),
     {"isolation.canary"}),
    ("in tool arguments", crowd(canary=three(with_record(chunk({"tool_calls": TOOL})))),
     {"isolation.canary"}),
    ("in log-probabilities", crowd(canary=three(with_record(envelope([ENTRY])))),
     {"isolation.canary"}),
    ("in a counting answer", crowd(limit=(streamed(named(texts(THEIRS)), max_tokens=9),)),
     {"isolation.canary"}),
    ("in an answer that was left", crowd(left=(left(GONE, THEIRS),)), {"isolation.canary"}),
    ("the word of one that was left", crowd(canary=three(repeating(MINE, MINE, GONE))),
     {"isolation.aborts"}),
    ("a neighbour fails",
     crowd(canary=three(streamed(named([role(), say(MINE), '{"error": {"message": "x"}}']),
                                 done=False, **asked(MINE)))), {"isolation.aborts"}),
    ("a neighbour ends as `abort`",
     crowd(canary=three(streamed(named(texts(MINE, reason="abort")), **asked(MINE)))),
     {"isolation.aborts"}),
    ("a limit too many", crowd(limit=(limited(1, 3), limited(3))), {"isolation.limits"}),
    ("a limit too few", crowd(limit=(limited(7, 3), limited(3))), {"isolation.limits"}),
    ("a neighbour's stop string",
     crowd(stop=(stopped(cut(STOPS[0]), STOPS[0]), stopped(cut(STOPS[0]), STOPS[1]))),
     {"isolation.stop"}),
    ("two equal ids",
     crowd(canary=(streamed(texts(MINE), **asked(MINE)), streamed(texts(THEIRS), **asked(THEIRS)),
                   repeating(WORDS[1]))), {"isolation.ids"}),
    ("a neighbour of a bad request fails", invalid(neighbour=(repeating(WORDS[1]), refused(500))),
     {"isolation.invalid-neighbour"}),
    ("a neighbour of a bad request is another's",
     invalid(neighbour=(repeating(WORDS[1]), repeating(WORDS[2], WORDS[2], WORDS[1]))),
     {"isolation.invalid-neighbour"}),
    ("the next answer is another's", invalid(recovery=(repeating(WORDS[0], WORDS[2]),)),
     {"isolation.keep-alive"}),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_what_crosses_from_one_request_to_another_is_told(
    row: tuple[str, Dossier, set[str]],
) -> None:
    assert broken(row[1]) == row[2]


@pytest.mark.parametrize("check", [*CROWD, *INVALID])
def test_a_server_in_order_passes_every_check(check: str) -> None:
    record = crowd() if check in CROWD else invalid()
    assert result(check, record).verdict is Verdict.PASS


def test_a_leak_is_a_failure_though_nobody_repeated_a_word() -> None:
    record = crowd(canary=(repeating(MINE, "no"), repeating(THEIRS, MINE)))
    assert result("isolation.canary", record).verdict is Verdict.FAIL


def test_a_leak_is_told_at_the_event_that_brings_it() -> None:
    found = only("isolation.canary", crowd(canary=three(repeating(MINE, MINE, " ", THEIRS))))
    assert (found.role, found.take, found.event) == ("canary", 3, 3)
    assert THEIRS in found.message
    assert found.excerpt.startswith(b'{"id": "c')


@pytest.mark.parametrize("none", [None, []])
def test_a_stream_whose_own_stop_is_on_trial_did_not_fail_for_a_neighbour(none: Any) -> None:
    failed = named([role(), '{"error": {"message": "x"}}'])
    own = crowd(limit=(limited(1), streamed(failed, done=False, max_tokens=9, stop=none)))
    assert broken(own) == set()
    assert broken(crowd(limit=(limited(1), streamed(failed, done=False, max_tokens=9)))) == {
        "isolation.aborts"
    }


OPEN: list[tuple[str, str, Dossier, str]] = [
    ("nobody repeats", "isolation.canary",
     crowd(canary=tuple(repeating(word, "no") for word in WORDS[:4])), "mat"),
    ("one is refused", "isolation.canary", crowd(canary=three(refused(429))), "rate"),
    ("all are refused", "isolation.canary", crowd(canary=(refused(503),) * 4), "rate"),
    ("none was left in time", "isolation.aborts",
     crowd(left=(left(GONE, how=How.FRAMED),)), "fast"),
    ("all that were to be left are refused", "isolation.aborts", crowd(left=(refused(429),)),
     "rate"),
    ("who stayed is refused", "isolation.aborts", crowd(canary=(refused(429),) * 4), "rate"),
    ("an end before the limit", "isolation.limits", crowd(limit=(limited(7, 3, "stop"),)), "mat"),
    ("a limited one is refused", "isolation.limits", crowd(limit=(limited(3), refused(429))),
     "rate"),
    ("no stop was found", "isolation.stop", crowd(stop=()), "mat"),
    ("it left its control", "isolation.stop", crowd(stop=(stopped("1; 2", STOPS[0]),)), "det"),
    ("it left its control at the stop string", "isolation.stop",
     crowd(stop=(stopped(cut(STOPS[0]) + "; 9", STOPS[0]),)), "det"),
    ("an early end of its own", "isolation.stop", crowd(stop=(stopped("1, 2", STOPS[1]),)), "det"),
    ("a stopped one is refused", "isolation.stop", crowd(stop=(refused(429),)), "mat"),
    ("bad requests alone", "isolation.invalid-neighbour", invalid(neighbour=()), "not-seen"),
    ("a neighbour is refused", "isolation.invalid-neighbour",
     invalid(neighbour=(repeating(WORDS[1]), refused(429))), "rate"),
    ("the connection was closed", "isolation.keep-alive", invalid(reused=False), "not-seen"),
    ("the word is not repeated", "isolation.keep-alive",
     invalid(recovery=(repeating(WORDS[0], "no"),)), "mat"),
]  # fmt: skip


@pytest.mark.parametrize("row", OPEN, ids=lambda row: row[0])
def test_what_proves_nothing_is_neither_right_nor_wrong(
    row: tuple[str, str, Dossier, str],
) -> None:
    _, check, record, reason = row
    found = result(check, record)
    assert (found.verdict, (found.reason or "").split(":")[0]) == (Verdict.INCONCLUSIVE, reason)


def test_a_stream_that_is_cut_is_told_once() -> None:
    cut_off = repeating(MINE, MINE, done=False, how=How.RESET)
    record = crowd(canary=three(Capture(cut_off.received[:300], cut_off.layer, end=cut_off.end,
                                        given=cut_off.given)))  # fmt: skip
    found = judged(record)
    assert found["stream.truncated"].verdict is Verdict.FAIL
    assert found["isolation.aborts"].verdict is Verdict.BLOCKED


def test_a_stop_string_that_is_passed_over_is_told_once() -> None:
    lost = stopped(COUNT[:-3], STOPS[1], "length")
    found = judged(crowd(stop=(stopped(cut(STOPS[0]), STOPS[0]), lost)))
    assert found["stop.ignored"].verdict is Verdict.FAIL
    assert found["isolation.stop"].verdict is Verdict.BLOCKED
