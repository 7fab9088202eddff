"""Characters that were asked for: what the plain answer holds must come streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.capture import Capture
from conformance.dossier import Dossier
from conformance.findings import Result, Verdict
from conformance.material import CODE, LINE, PIECES, forms
from tests.conformance.bodies import chunk, finish, judged, plain, plain_chat, role, streamed, texts

ASK: dict[str, Any] = {"messages": [{"role": "user", "content": f"Repeat exactly: {LINE}\n{CODE}"}]}
BOTH = f"{LINE}\n{CODE}"
Change = tuple[str, str, str]


def pair(
    text: str, said: str, *, second: str | None = None, again: str | None = None, code: bool = False
) -> dict[str, Result]:
    """Plain `said`, streamed `text`, each twice; `second`, `again`: what came the second time."""
    parts = [text[at : at + 5] for at in range(0, len(text), 5)]
    streams = (streamed(texts(*parts), **ASK), streamed(texts(second or text), **ASK))
    plains = (plain(plain_chat(said), **ASK), plain(plain_chat(again or said), **ASK))
    return results(streams, plains, code=code)


def results(
    streams: tuple[Capture, ...], plains: tuple[Capture, ...], *, code: bool = False
) -> dict[str, Result]:
    given: dict[str, Any] = {"answer": "characters"}
    if code:
        given = {"answer": "code", "repeats": 1}
    roles = {"stream": streams, "plain": plains}
    found = judged(Dossier("pair", roles, api="chat", parameters=given))
    return {name: found[name] for name in PIECES}


def failed(found: dict[str, Result]) -> set[str]:
    return {name for name, r in found.items() if r.verdict is Verdict.FAIL}


def test_what_comes_as_it_was_asked_for_passes_everything() -> None:
    found = pair(BOTH, BOTH)
    assert {n: r.verdict for n, r in found.items() if r.verdict is not Verdict.PASS} == {
        "text.whitespace": Verdict.INCONCLUSIVE  # provoked by code alone
    }
    assert pair(CODE, CODE, code=True)["text.whitespace"].verdict is Verdict.PASS


CHANGES: list[Change] = [
    ("🫠", "?", "utf8.characters"),
    ("\u200d", "", "utf8.characters"),
    ("한국어", "한국", "utf8.characters"),
    ("مرحبا", "ابحرم", "utf8.characters"),
    ("e\u0301", "\u00e9", "text.normal-form"),
    ("\u2028", "\n", "text.separators"),
    ("\ufeff", "", "text.separators"),
    ("\u00a0", " ", "text.separators"),
    ("<b>", "&lt;b&gt;", "text.escapes"),
    ("C:\\new", "C:\\\\new", "text.escapes"),
    ("\\", "\\\\", "text.escapes"),  # then it looks like the inside of a JSON string
    ("a/b", "a\\/b", "text.escapes"),
    ("event: x", "", "text.sse-lookalike"),
    ("data: ", "", "text.sse-lookalike"),
]


@pytest.mark.parametrize(("old", "new", "check"), CHANGES)
def test_a_lost_piece_is_told_by_the_check_it_belongs_to(old: str, new: str, check: str) -> None:
    assert failed(pair(LINE.replace(old, new), LINE)) == {check}


@pytest.mark.parametrize(
    ("old", "new"),
    [("\t", "    "), ("    ", " "), ("\n\nc", "\nc"), ("  =  ", " = ")],
)
def test_lost_whitespace_is_told_after_one_answer_of_each_form(old: str, new: str) -> None:
    stream, said = streamed(texts(CODE.replace(old, new)), **ASK), plain(plain_chat(CODE), **ASK)
    found = results((stream,), (said,), code=True)
    assert failed(found) == {"text.whitespace"}


def test_a_sentinel_in_the_text_must_not_end_it() -> None:
    ended = CODE[: CODE.index("[DONE]") + 6]
    stream, said = streamed(texts(ended), **ASK), plain(plain_chat(CODE), **ASK)
    assert failed(results((stream,), (said,), code=True)) == {"text.sse-lookalike"}


def test_pieces_count_inside_of_a_json_answer_as_well() -> None:
    answer = json.dumps({"text": LINE}, ensure_ascii=False)
    found = pair(answer, answer)
    assert found["text.escapes"].verdict is Verdict.PASS
    assert failed(pair(answer.replace("\\\\", "\\\\\\\\"), answer)) == {"text.escapes"}
    assert forms('"a"') == ('"a"', '\\"a\\"')


def test_pieces_count_in_the_arguments_of_a_tool_call() -> None:
    arguments = json.dumps({"it": LINE}, ensure_ascii=False)
    found = results((_called(arguments),) * 2, (_called_plain(arguments),) * 2)
    assert found["utf8.characters"].verdict is Verdict.PASS
    assert failed(results((_called(arguments.replace("🫠", "")),) * 2,
                          (_called_plain(arguments),) * 2)) == {"utf8.characters"}  # fmt: skip


def _called(arguments: str) -> Capture:
    function = {"name": "say", "arguments": arguments}
    call = {"index": 0, "id": "c", "type": "function", "function": function}
    return streamed([role(), chunk({"tool_calls": [call]}), finish("tool_calls")], **ASK)


def _called_plain(arguments: str) -> Capture:
    call = {"id": "c", "type": "function", "function": {"name": "say", "arguments": arguments}}
    message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [call]}
    record = plain_chat()
    record["choices"] = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    return plain(record, **ASK)


Reluctant = tuple[dict[str, Result], str]
RELUCTANT: dict[str, Reluctant] = {
    "the model did not manage it": (pair("I cannot.", "I cannot."), "mat"),
    "never the same text": (
        pair("a text", LINE, second="another", again=LINE.replace("🫠", "🫠 ")),
        "det",
    ),
    "plain once right, once wrong": (pair("no", LINE, again="no"), "mat"),
    "no text at all": (pair("", ""), "mat"),
}


@pytest.mark.parametrize("name", RELUCTANT)
def test_what_was_not_exercised_neither_passes_nor_fails(name: str) -> None:
    found, reason = RELUCTANT[name]
    for each in found.values():
        assert each.verdict is Verdict.INCONCLUSIVE
        if each.id != "text.whitespace":
            assert (each.reason or "").startswith(reason), each.reason


def test_what_the_request_does_not_name_was_not_asked_for() -> None:
    stream, said = streamed(texts("hi")), plain(plain_chat("hi"))
    found = results((stream,) * 2, (said,) * 2)
    assert {each.verdict for each in found.values()} == {Verdict.INCONCLUSIVE}


def test_thoughts_alone_are_their_own_reason() -> None:
    thought = streamed([role(), chunk({"reasoning_content": "so"}), finish("length")], **ASK)
    found = results((thought,) * 2, (plain(plain_chat(None), **ASK),) * 2)
    assert (found["utf8.characters"].reason or "").startswith("reason")


def test_a_stream_that_was_cut_off_says_nothing_about_characters() -> None:
    cut = streamed(texts(LINE[:20])[:-1], done=False, **ASK)
    found = results((cut,) * 2, (plain(plain_chat(LINE), **ASK),) * 2)
    assert found["utf8.characters"].verdict is Verdict.INCONCLUSIVE


def test_no_piece_holds_a_digit_and_all_are_asked_for() -> None:
    for pieces in PIECES.values():
        for piece in pieces.values():
            assert piece in LINE or piece in CODE
            assert not any(char.isdigit() for char in piece)
