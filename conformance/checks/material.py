"""Material: what a model was asked to say again, and said plain, comes streamed as well (U).

A piece counts only if the request names it and every plain answer holds it; where a model did not
manage any, nothing was tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from conformance.checks import Findings, Trial
from conformance.checks.calls import calls
from conformance.checks.cutruns import Said, said
from conformance.checks.live import ASKING, asks_for, expected
from conformance.checks.place import at_chunk
from conformance.checks.stop import chunk_at
from conformance.checks.text import leakable
from conformance.checks.textdiff import corruption
from conformance.cuts.fates import common
from conformance.findings import Abstain, Finding
from conformance.material import PIECES, forms
from conformance.reading import Form, Reading


def utf8_characters(trial: Trial) -> Findings:
    """U03: characters without a token of their own, or of several code points, survive."""
    return _pieces(trial, "utf8.characters", "U03")


def text_normal_form(trial: Trial) -> Findings:
    """U10: "e" and a combining acute stay two code points."""
    return _pieces(trial, "text.normal-form", "U10")


def text_separators(trial: Trial) -> Findings:
    """U08: what some languages take for the end of a line, or for nothing, survives."""
    return _pieces(trial, "text.separators", "U08")


def text_escapes(trial: Trial) -> Findings:
    """U09: what HTML and JSON escape is there again after one decoding."""
    return _pieces(trial, "text.escapes", "U09")


def text_sse_lookalike(trial: Trial) -> Findings:
    """U07: text that looks like the fields of an event stream neither ends nor splits it."""
    return _pieces(trial, "text.sse-lookalike", "U07")


def text_whitespace(trial: Trial) -> Findings:
    """U06: indentation, tabs, blank lines and runs of spaces survive."""
    return _pieces(trial, "text.whitespace", "U06")


def _pieces(trial: Trial, check: str, rule: str) -> Findings:
    streams = trial.readings.get("stream", ())
    plain = [whole.text for r in trial.readings.get("plain", ()) if (whole := _whole(r))]
    asked = {
        name: piece
        for name, piece in PIECES[check].items()
        if streams and asks_for(streams[0], piece, *ASKING, "tools")
    }
    if not asked:
        yield Abstain("mat", "nothing of the kind was asked for")
        return
    there = {n: p for n, p in asked.items() if plain and all(_holds(t, p) for t in plain)}
    if not there:
        yield _nothing(trial)
        return
    for take, reading in enumerate(streams):
        yield from _compared(reading, take, rule, plain, there)


def _nothing(trial: Trial) -> Abstain:
    readings = [*trial.readings.get("plain", ()), *trial.readings.get("stream", ())]
    thinks = any(c.carries for r in readings for life in expected(r) for _, c in life.pieces)
    if thinks and not any(r.text for r in readings):
        return Abstain("reason", "the limit was reached before the answer began")
    return Abstain("mat", "no plain answer holds what was asked for")


def _compared(
    reading: Reading, take: int, rule: str, plain: list[str], there: dict[str, str]
) -> Iterator[Finding | Abstain]:
    whole = _whole(reading)
    if whole is None:
        yield Abstain("not-seen", "the stream is not complete")
        return
    text = whole.text
    lost = [name for name, piece in there.items() if _is_lost(text, piece, plain)]
    if not lost:
        return
    leaks = leakable(reading)
    named = next((c for t in plain if (c := corruption(text, t, whole.pieces, leaks))), None)
    if named is None and not (reading.control and reading.control.stable):
        yield Abstain("det", "equal requests gave different texts")
        return
    cause = f" ({named})" if named else ""
    message = f"not as in the plain answer: {', '.join(lost)}{cause}"
    yield _finding(reading, take, rule, message, common(text, plain[0]))


def _finding(reading: Reading, take: int, rule: str, message: str, at: int) -> Finding:
    """Where the texts part; without an event, because all of the text is meant."""
    life = next((life for life in expected(reading) if life.index == 0 and life.text), None)
    if life is None:
        return Finding(rule, message, take=take)
    chunk = reading.chunks[chunk_at(life, min(at, len(life.text) - 1))]
    return replace(at_chunk(reading, chunk, rule, message), event=None, take=take)


def _is_lost(text: str, piece: str, plain: list[str]) -> bool:
    """Form by form: what was escaped twice must not pass for the inside of a JSON string."""
    least = {form: min(t.count(form) for t in plain) for form in forms(piece)}
    return any(text.count(form) < count for form, count in least.items())


def _holds(text: str, piece: str) -> bool:
    return any(form in text for form in forms(piece))


def _whole(reading: Reading) -> Said | None:
    """The answer with the arguments of its tool calls behind its text."""
    whole = said(reading)
    if whole is None:
        return None
    written = _arguments(reading)
    return replace(whole, text=whole.text + written, pieces=(*whole.pieces, written))


def _arguments(reading: Reading) -> str:
    if reading.form is Form.PLAIN:
        tools = (tool for c in reading.plain_choices if c.index == 0 for tool in c.tools)
        return "".join(t.arguments for t in tools if isinstance(t.arguments, str))
    mine = (life for life in expected(reading) if life.index == 0)
    return "".join(call.arguments for life in mine for call in calls(life))
