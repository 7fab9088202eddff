"""Text: whole characters, nothing of the template, the same as plain (rules U, K04, K06)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from conformance.checks import Findings
from conformance.checks.calls import calls
from conformance.checks.live import (
    ASKING,
    ENDED,
    asks_for,
    events,
    expected,
    finish_of,
    is_legible,
    last_finish,
)
from conformance.checks.place import at_body, at_chunk
from conformance.checks.stop import chunk_at, own_start, prompt_of, stop_strings
from conformance.checks.textdiff import corruption, resemblance
from conformance.checks.tool import MARKUP
from conformance.chunks import Kind
from conformance.findings import Abstain, Finding, Level
from conformance.lifecycle import ChoiceLife
from conformance.reading import Form, Reading

BAD = "\ufffd"

# Tokens by which chat templates mark turns. `<s>` and `</s>` are HTML as well and count at the edge
# of a text only.
SPECIAL = re.compile(
    r"<\|(?:im_(?:start|end|sep)|endof(?:text|prompt)|eot_id|eom_id|end(?:_of_text|_of_turn)?|eos|eot"
    r"|begin_of_text|(?:start|end)_header_id|start|return|channel|message|call|assistant|user|system"
    r"|python_tag|pad|EOT|(?:START|END)_OF_TURN_TOKEN|CHATBOT_TOKEN|USER_TOKEN)\|>"
    r"|<(?:start|end)_of_turn>|<(?:eos|bos|pad|unk|EOT)>|<｜(?:begin|end)▁of▁sentence｜>"
    r"|<｜(?:User|Assistant)｜>|\[/?INST\]|</s>\s*\Z|\A<s>"
)
_CUT_SPECIAL = re.compile(r"<\|[a-z_]{3,}\Z|\A[a-z_]{2,}\|>")
_THINK = re.compile(r"</?(?:think|thinking|reasoning)>")


def utf8_replacement_char(reading: Reading) -> Findings:
    """U01: U+FFFD stands where a character was cut into bytes and each part decoded alone."""
    control = reading.control
    allowed = max((t.count(BAD) for t in control.texts), default=0) if control else None
    for life in expected(reading):
        asked = allowed if life.index == 0 else None
        pieces = [(at, choice.text) for at, choice in life.pieces]
        cut = finish_of(life) == "length" and life.text.endswith(BAD)  # U18
        yield from _broken(reading, pieces, "content", 0 if cut and asked is None else asked)
        thoughts = [(at, choice.reasoning) for at, choice in life.pieces]
        yield from _broken(reading, thoughts, "reasoning", None)
        for call in calls(life):
            arguments = [(at, tool.arguments) for at, tool in call.fragments]
            yield from _broken(reading, arguments, "tool arguments", None)


def _broken(
    reading: Reading, pieces: Sequence[tuple[int, object]], where: str, allowed: int | None
) -> Iterator[Finding | Abstain]:
    """`allowed`: how many the plain answer has; None: not known, then only halves tell."""
    strings = [(at, text) for at, text in pieces if isinstance(text, str) and text]
    joined = "".join(text for _, text in strings)
    count = joined.count(BAD)
    if count == 0 or (allowed is not None and count <= allowed):
        return
    if allowed is None and asks_for(reading, BAD, *ASKING):
        yield Abstain("not-recorded", "the request itself holds U+FFFD")
    elif allowed is None and BAD * 2 not in joined:
        yield Abstain("not-recorded", "one U+FFFD, and no plain answer to compare with")
    else:
        at = next(at for at, text in strings if BAD in text)
        versus = "" if allowed is None else f", {allowed} in the plain answer"
        said = f"U+FFFD stands {count} times in the {where}{versus}"
        yield at_chunk(reading, reading.chunks[at], "U01", said)


def text_special_token(reading: Reading) -> Findings:
    """U12, U15: the template's tokens stay out of the text, unless the plain answer has them."""
    for life in expected(reading):
        own = life.text[own_start(reading, life) :]
        found = SPECIAL.search(own) or _CUT_SPECIAL.search(own) or _thought(life, own)
        if found is None:
            continue
        token = found[0].strip()
        texts = reading.control.texts if reading.control and life.index == 0 else ()
        if any(token in text for text in texts) or asks_for(reading, token, *ASKING):
            continue
        at = chunk_at(life, len(life.text) - len(own) + found.start())
        said = f"the text contains {token!r}"
        if texts:
            yield at_chunk(reading, reading.chunks[at], "U12", f"{said}, the plain answer does not")
        else:
            yield at_chunk(reading, reading.chunks[at], "U12", said, Level.SHOULD)
        return


def _thought(life: ChoiceLife, own: str) -> re.Match[str] | None:
    """A reasoning tag in the content of a server that has a field for reasoning."""
    apart = any(isinstance(c.reasoning, str) and c.reasoning for _, c in life.pieces)
    return _THINK.search(own) if apart else None


def parity_text(reading: Reading) -> Findings:
    """U05, K04: streamed or plain, the same text; a corruption that has a name needs no repeat."""
    control = reading.control
    if control is None:
        yield Abstain("not-recorded", "the plain answer is not known")
        return
    if reading.outcome not in ENDED or last_finish(reading) is None or not is_legible(reading):
        yield Abstain("not-seen", "the stream is not complete")
        return
    life = next((life for life in expected(reading) if life.index == 0), None)
    text = life.text if life else ""
    if text in control.texts:
        return
    if any(chunk.kind is Kind.UNREADABLE for chunk in events(reading)):
        yield Abstain("not-seen", "part of the stream cannot be read")
        return
    if life and not text and finish_of(life) == "length" and any(c.carries for _, c in life.pieces):
        yield Abstain("reason", "the limit was reached before the answer began")
        return
    pieces = [choice.text for _, choice in life.pieces] if life else []
    plain = control.texts[0]
    names = [corruption(text, other, pieces, leakable(reading)) for other in control.texts]
    name = next((name for name in names if name), None)
    if name is None and not control.stable:
        yield Abstain("det", "equal requests gave different texts")
        return
    at = chunk_at(life, _split(text, plain)) if life and text else None
    said = f"streamed and plain text differ at character {_split(text, plain)}: "
    said += name or resemblance(text, plain) or "no known corruption"
    if at is not None:
        yield at_chunk(reading, reading.chunks[at], "U05", said)
    else:
        yield Finding("U05", said)


def leakable(reading: Reading) -> tuple[tuple[str, ...], tuple[re.Pattern[str], ...]]:
    """What may stand in a text by mistake: stop strings, and patterns of tokens and markup."""
    return stop_strings(reading), (SPECIAL, MARKUP, _THINK)


def _split(text: str, plain: str) -> int:
    """Length of the common beginning."""
    both = zip(text, plain, strict=False)
    return next((i for i, (a, b) in enumerate(both) if a != b), min(len(text), len(plain)))


def echo_prompt(reading: Reading) -> Findings:
    """K06: "Echo back the prompt in addition to the completion", code point for code point."""
    if reading.asked("echo") is not True:
        yield Abstain("not-seen", "echo was not asked for")
        return
    texts = _echoed(reading)
    if not texts:
        yield Abstain("not-seen", "no whole answer")
    for index, text, at in texts:
        prompt = prompt_of(reading, index)
        if prompt is None:
            yield Abstain("not-recorded", "the prompt is not known as text")
        elif not text.startswith(prompt):
            same = _split(text, prompt)
            said = f"choice {index} does not begin with the prompt: they differ at character {same}"
            if at is None:
                yield at_body(reading, 0, "K06", said)
            else:
                yield at_chunk(reading, reading.chunks[at], "K06", said)
            return


def _echoed(reading: Reading) -> list[tuple[int, str, int | None]]:
    """(choice, text, index of its first chunk) of every whole text, streamed or plain."""
    if reading.form is Form.PLAIN:
        plain = ((c.index, c.text) for c in reading.plain_choices)
        return [(index, text, None) for index, text in plain if type(index) is int]
    if reading.outcome not in ENDED or not is_legible(reading):
        return []
    lives = [life for life in expected(reading) if finish_of(life) is not None]
    return [(life.index, life.text, life.pieces[0][0]) for life in lives]
