"""Text: corruptions by name, differences without one, and what the plain answer excuses."""

from __future__ import annotations

import re
from typing import Any

import pytest

from conformance.capture import Capture
from conformance.checks.textdiff import corruption, resemblance
from conformance.dossier import COMPLETIONS, Dossier
from conformance.findings import Verdict
from tests.conformance.bodies import (
    MUST,
    SHOULD,
    broken,
    chunk,
    completion,
    dossier,
    finish,
    judged,
    named,
    only,
    plain,
    plain_chat,
    result,
    role,
    streamed,
    texts,
)

Case = tuple[str, Capture, str | None, dict[str, Any]]
STOP = "<|assistant|>"

CASES: list[Case] = [
    ("equal", streamed(texts("Hi", " there")), "Hi there", {}),
    ("nothing, as in the plain answer", streamed(texts()), "", {}),
    ("U+FFFD that was asked for", streamed(texts("it is ", "\ufffd")), "it is \ufffd", {}),
    ("tokens that were asked for", streamed(texts("Use <|im_end|>")), "Use <|im_end|>", {}),
    ("one U+FFFD, plain answer unknown", streamed(texts("it is ", "\ufffd")), None, {}),
    (
        "a syllable cut in two",
        streamed(texts("an \ufffd", "\ufffdda")),
        "an 니da",
        {"utf8.replacement-char": MUST, "parity.text": MUST},
    ),
    (
        "a space and half a character",
        streamed(texts("Hi \ufffd", "!")),
        "Hi 😀!",
        {"utf8.replacement-char": MUST, "parity.text": MUST},
    ),
    (
        "halves, plain answer unknown",
        streamed(texts("an \ufffd", "\ufffdda")),
        None,
        {"utf8.replacement-char": MUST},
    ),
    (
        "half a character at the limit",
        streamed(texts("ok ", "\ufffd", reason="length"), max_tokens=2),
        None,
        {"utf8.replacement-char": MUST},
    ),
    (
        "halves in the reasoning",
        streamed([role(), chunk({"reasoning_content": "\ufffd\ufffd"}), finish()]),
        None,
        {"utf8.replacement-char": MUST},
    ),
    ("spaces lost", streamed(texts("The", "cat")), "The cat", {"parity.text": MUST}),
    ("a leading space lost", streamed(texts("cat")), " cat", {"parity.text": MUST}),
    ("a piece twice", streamed(texts("a", "bc", "bc", "d")), "abcd", {"parity.text": MUST}),
    ("each piece twice", streamed(texts("a", "a", "b", "b")), "ab", {"parity.text": MUST}),
    ("the whole text again at the end", streamed(texts("ab", "cd", "abcd")), "abcd",
     {"parity.text": MUST}),
    ("the tail missing", streamed(texts("ple")), "pleas", {"parity.text": MUST}),
    ("no text", streamed(texts()), "Hello", {"parity.text": MUST}),
    ("the beginning missing", streamed(texts("lo there")), "Hello there", {"parity.text": MUST}),
    (
        "an end-of-turn token as last text",
        streamed(texts("4", "<|im_end|>")),
        "4",
        {"text.special-token": MUST, "parity.text": MUST},
    ),
    ("the same, plain answer unknown", streamed(texts("4", "<end_of_turn>")), None,
     {"text.special-token": SHOULD}),
    ("part of a token", streamed(texts("4", "<|im_en")), None, {"text.special-token": SHOULD}),
    ("HTML with a strike tag", streamed(texts("a <s>b</s> c")), None, {}),
    ("an end-of-text token at the end", streamed(texts("a b", "</s>")), None,
     {"text.special-token": SHOULD}),
    (
        "a reasoning tag beside a reasoning field",
        streamed([role(), chunk({"reasoning_content": "hm"}), *texts("ok</think>a")[1:]]),
        None,
        {"text.special-token": SHOULD},
    ),
    ("a reasoning tag without such a field", streamed(texts("<think>hm</think>a")), None, {}),
    (
        "a token that the request holds",
        streamed(texts("<|eot_id|>"), messages=[{"role": "user", "content": "say <|eot_id|>"}]),
        None,
        {},
    ),
    (
        "the beginning of a stop string",
        streamed(texts("pleas", "<|ass"), stop=[STOP]),
        "pleas",
        {"stop.included": MUST, "parity.text": MUST},
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=named)
def test_the_text_breaks_just_these_sentences(case: Case) -> None:
    _, capture, control, expected = case
    assert broken(capture, control=control) == expected


def both(streams: list[str], answers: list[str]) -> Dossier:
    return Dossier(
        "pair",
        {
            "stream": tuple(streamed(texts(text)) for text in streams),
            "plain": tuple(plain(plain_chat(text)) for text in answers),
        },
    )


PAIRS = [
    ("all equal", ["abc", "abc"], ["abc", "abc"], Verdict.PASS),
    ("each form agrees with itself, not with the other", ["abc"] * 2, ["xyz"] * 2, Verdict.FAIL),
    ("the plain form disagrees with itself", ["abc", "abc"], ["xyz", "qrs"], Verdict.INCONCLUSIVE),
    ("the streams disagree", ["abc", "abd"], ["xyz", "xyz"], Verdict.INCONCLUSIVE),
    ("the stream equals one of two plain answers", ["abc"], ["abc", "xyz"], Verdict.PASS),
    ("a corruption with a name needs no repeat", ["abc"], ["a b c", "xyz"], Verdict.FAIL),
    ("a word more may be another sample", ["I do too"], ["I too", "xyz"], Verdict.INCONCLUSIVE),
    ("a word less may be another sample", ["I too"], ["I do too", "xyz"], Verdict.INCONCLUSIVE),
]


@pytest.mark.parametrize(("name", "streams", "answers", "verdict"), PAIRS, ids=named)
def test_the_forms_are_compared_only_if_they_repeat(
    name: str, streams: list[str], answers: list[str], verdict: Verdict
) -> None:
    assert judged(both(streams, answers))["parity.text"].verdict is verdict, name


NAMES = [
    ("a\ufffdc", "a니c", "replacement"),
    ("ab", "a b", "whitespace"),
    ("abbc", "abc", "twice"),
    ("ab", "abc", "missing"),
    ("ab<|im_end|>", "ab", "leaked"),
    ("ab&lt;", "ab<", "entities"),
    ('a\\"b', 'a"b', "escaped twice"),
    ("e\u0301", "é", "normalised"),
    ("the cat sat", "the dog sat", None),
    ("one three", "one two three", "middle"),
    ("ab", "xyz", None),
]


@pytest.mark.parametrize(("text", "plain", "name"), NAMES)
def test_a_corruption_has_a_name_only_if_the_rest_agrees(
    text: str, plain: str, name: str | None
) -> None:
    leakable = ((), (re.compile(r"<\|im_end\|>"),))
    found = corruption(text, plain, [text], leakable) or resemblance(text, plain)
    assert (found is None) == (name is None)
    assert (name or "") in (found or "")


def test_a_difference_is_placed_at_its_chunk() -> None:
    finding = only("parity.text", streamed(texts("ab", "xx", "cd")), control="abxxyycd")
    assert finding.event == 3
    assert "character 4" in finding.message


def test_a_cut_stream_is_not_compared() -> None:
    capture = streamed(texts("ab")[:-1], done=False)
    assert result("parity.text", capture, control="abcd").findings == ()


def test_reasoning_up_to_the_limit_is_no_missing_text() -> None:
    records = [role(), chunk({"reasoning_content": "hm"}), finish("length")]
    found = judged(dossier(streamed(records), control="abc"))["parity.text"]
    assert (found.verdict, (found.reason or "")[:6]) == (Verdict.INCONCLUSIVE, "reason")


def echoed(*pieces: str, prompt: Any = "São Paulo", **request: Any) -> Capture:
    records = [completion(piece) for piece in pieces]
    return streamed([*records, completion("", "length")], api=COMPLETIONS, echo=True,
                    prompt=prompt, **request)  # fmt: skip


ECHOES = [
    ("the prompt and more", echoed("São", " Paulo is"), Verdict.PASS),
    ("the prompt alone", echoed("São Paulo", max_tokens=0), Verdict.PASS),
    ("no prompt", echoed(" is a city"), Verdict.FAIL),
    ("a normalised prompt", echoed("Sa\u0303o Paulo is"), Verdict.FAIL),
    ("a prompt in tokens", echoed("x", prompt=[1, 2]), Verdict.INCONCLUSIVE),
    ("no echo", streamed([completion("a", "stop")], api=COMPLETIONS), Verdict.INCONCLUSIVE),
    (
        "a plain answer without it",
        plain(completion("a", "stop"), api=COMPLETIONS, echo=True, prompt="p"),
        Verdict.FAIL,
    ),
]


@pytest.mark.parametrize(("name", "capture", "verdict"), ECHOES, ids=named)
def test_echo(name: str, capture: Capture, verdict: Verdict) -> None:
    assert result("echo.prompt", capture).verdict is verdict, name


def test_each_of_several_prompts_is_echoed_in_its_place() -> None:
    good = [completion("x1", "stop", 0), completion("y2", "stop", 1)]
    asked: dict[str, Any] = {"echo": True, "prompt": ["x", "y"]}
    assert result("echo.prompt", streamed(good, api=COMPLETIONS, **asked)).verdict is Verdict.PASS
    swapped = [completion("y1", "stop", 0), completion("x2", "stop", 1)]
    assert result("echo.prompt", streamed(swapped, api=COMPLETIONS, **asked)).level is MUST
    assert result("echo.prompt", streamed(swapped, api=COMPLETIONS, **asked)).findings


def test_text_that_cannot_be_read_is_told_by_its_own_check() -> None:
    capture = streamed([*texts("ab")[:2], "{oops", *texts("cd")[1:]])
    assert broken(capture, control="abxxcd") == {"json.invalid": MUST}


def test_text_in_the_wrong_member_is_told_once() -> None:
    whole = streamed([plain_chat("abc") | {"object": "chat.completion.chunk", "usage": None}])
    assert broken(whole, control="abc") == {"chunk.message-in-stream": MUST}
