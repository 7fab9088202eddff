"""Faults of stop strings: one text path, with one of the bugs of `gates` in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reference_server.engine.interface import Delta, Done, Event, FinishReason, Work
from reference_server.faults import gates
from reference_server.faults.fault import Fault, Place
from reference_server.faults.gates import Gate
from reference_server.seams import Document, Part
from reference_server.wire.errors import invalid

_MOST = 4  # strings in a list
Make = Callable[[Sequence[str]], Gate]
When = Callable[[Place], bool]


@dataclass(slots=True)
class _Path:
    """The gates of one answer's choices; the engine itself knows no stop string any more."""

    stops: tuple[str, ...]
    gates: dict[tuple[str, int], Gate] = field(default_factory=dict)
    generated: int = 0
    unreported: int = 0


def _gated(
    make: Make,
    *,
    when: When | None = None,
    finish: FinishReason = FinishReason.STOP,
    later: bool = False,
) -> dict[str, Any]:
    """A fault that puts this gate into the text path, where `when` allows.

    `later`: into that of every choice but the first, which is right.
    """

    def work(place: Place, asked: Work) -> Work:
        if not asked.sampling.stop or (when is not None and not when(place)):
            return asked
        place.memory["path"] = _Path(asked.sampling.stop)
        return replace(asked, sampling=replace(asked.sampling, stop=()))

    def event(place: Place, event: Event) -> Iterable[Event]:
        path: _Path | None = place.memory.get("path")
        if path is None:
            return (event,)
        if isinstance(event, Done):
            return (replace(event, completion_tokens=path.generated),)
        if not isinstance(event, Delta):
            return (event,)
        if later and event.choice == 0:
            return _through(path, Gate, FinishReason.STOP, event)
        return _through(path, make, finish, event)

    return {"work": work, "event": event}


def _through(path: _Path, make: Make, finish: FinishReason, delta: Delta) -> Iterable[Event]:
    key = (delta.work, delta.choice)
    gate = path.gates.get(key)
    if gate is None:
        gate = path.gates[key] = make(path.stops)
    over, text, ended = gate.stopped, gate.feed(delta.text), delta.finish
    if over:
        return ()
    path.generated += delta.tokens
    if gate.stopped:
        ended = finish
    elif ended is not None:
        text += gate.close(ended is FinishReason.LENGTH)
    tokens, path.unreported = path.unreported + delta.tokens, 0
    if not text and ended is None:
        path.unreported = tokens
        return ()
    return (replace(delta, text=text, finish=ended, tokens=tokens),)


def _plain(place: Place) -> bool:
    return not place.asks_stream


def _is_long(stop: Any) -> bool:
    return isinstance(stop, list) and len(stop) > 1


def _listed(place: Place) -> bool:
    return _is_long(place.body.get("stop"))


def _refused(wrong: Callable[[Any], bool]) -> Callable[[Place, Work], Work]:
    """A form of `stop` that this server does not take."""

    def work(place: Place, asked: Work) -> Work:
        if wrong(place.body.get("stop")):
            raise invalid("`stop` has a wrong type", "stop")
        return asked

    return work


def _four_taken(place: Place, body: bytes) -> bytes:
    """Of a longer list the first four."""
    stop = place.body.get("stop")
    if not isinstance(stop, list) or len(stop) <= _MOST:
        return body
    return json.dumps(place.body | {"stop": stop[:_MOST]}).encode()


def _null_refused(place: Place, asked: Work) -> Work:
    if "stop" in place.body and place.body["stop"] is None:
        raise invalid("`stop` has a wrong type", "stop")
    return asked


def _emptied(place: Place, asked: Work) -> Work:
    """Nothing is found in every text, at its beginning."""
    return replace(asked, answer="") if place.body.get("stop") == [] else asked


def _prompt_searched(place: Place, asked: Work) -> Work:
    """A stop string in the prompt ends the answer before it begins."""
    stopped = any(stop in asked.prompt for stop in asked.sampling.stop)
    return replace(asked, answer="") if stopped else asked


def _at_once(place: Place) -> bool:
    """Did no text come in this answer so far?"""
    return not place.memory.get("texts")


def _length_if_empty(place: Place, event: Event) -> Iterable[Event]:
    """An answer that a stop string ends before its first text has another finish reason."""
    if isinstance(event, Delta):
        at_once = _at_once(place) and not event.text
        place.memory["texts"] = place.memory.get("texts", "") + event.text
        if at_once and event.finish is FinishReason.STOP and place.body.get("stop"):
            return (replace(event, finish=FinishReason.LENGTH),)
    return (event,)


def _no_usage_if_empty(place: Place, chunk: Document) -> Iterable[Document]:
    """The usage chunk of an answer without text never comes."""
    if place.part is Part.CONTENT:
        place.memory["texts"] = "some"
    dropped = place.part is Part.USAGE and _at_once(place) and place.body.get("stop")
    return () if dropped else (chunk,)


def _fault(id: str, title: str, variant: str, make: Make, **how: Any) -> Fault:
    return Fault(id, title, variant, **_gated(make, **how))


FAULTS = (
    Fault("stop.accepted", "a string is refused", work=_refused(lambda s: isinstance(s, str))),
    Fault("stop.accepted", "a list of several is refused", "list", work=_refused(_is_long)),
    _fault("stop.exact-prefix", "two characters too many are cut", "", gates.TooMuchCut),
    _fault("stop.exact-prefix", "taken out, the text goes on", "taken-out", gates.TakenOut),
    _fault("stop.exact-prefix", "a string is a list", "characters", gates.CharactersOfString),
    _fault("stop.tail-leak", "nothing is held back", "", gates.NothingHeld),
    _fault("stop.tail-leak", "one piece is held back", "piece", gates.OnePieceHeld),
    _fault("stop.tail-leak", "one character is held back", "character", gates.OneCharacterHeld),
    _fault("stop.tail-leak", "a list is not held back", "list", gates.LongestAwaited),
    _fault("stop.finish", "a stopped text says length", "", Gate, finish=FinishReason.LENGTH),
    _fault(
        "stop.finish", "with a list it says length", "list", Gate,
        finish=FinishReason.LENGTH, when=_listed,
    ),
    _fault("stop.mid-token", "it counts where a piece begins", "", gates.AtStartOfPiece),
    _fault("stop.mid-token", "it counts where a piece ends", "end", gates.AtEndOfPiece),
    _fault("stop.mid-token", "a failed match does not fall back", "fallback", gates.NoFallback),
    _fault("stop.mid-token", "the piece goes with it", "piece", gates.PieceDropped),
    _fault("stop.ignored", "pieces are searched one by one", "piece", gates.WithinOnePiece),
    _fault("stop.ignored", "later choices are not searched", "later", gates.Blind, later=True),
    _fault("stop.multi-byte", "only ASCII is searched", "", gates.OnlyAscii),
    _fault("stop.multi-byte", "the place is counted in bytes", "bytes", gates.ByteOffsets),
    _fault("stop.near-miss", "held text is lost at the end", "", gates.LostAtEnd),
    _fault("stop.near-miss", "held text is lost at the limit", "limit", gates.LostAtLimit),
    _fault("stop.near-miss", "held text is lost in the middle", "middle", gates.LostOnMiss),
    _fault("stop.near-miss", "held text comes twice", "twice", gates.TwiceOnMiss),
    _fault("stop.near-miss", "held text comes too late", "late", gates.LateOnMiss),
    _fault("stop.several", "the first of a list counts", "", gates.OnlyFirst),
    _fault("stop.several", "of a list none counts", "none", gates.OnlyOne),
    _fault("stop.per-choice", "later choices hold nothing back", "", gates.NothingHeld, later=True),
    _fault(
        "stop.per-choice", "later choices say length", "finish", Gate,
        finish=FinishReason.LENGTH, later=True,
    ),
    _fault("stop.first-text", "the first text is not searched", "", gates.NotAtStart),
    _fault("stop.literal", "stop strings are regular expressions", "", gates.Pattern),
    _fault("stop.literal", "letters count in either case", "case", gates.AnyCase),
    Fault("stop.prompt", "the prompt is searched as well", work=_prompt_searched),
    _fault("stop.whitespace", "white space is trimmed", "", gates.Trimmed),
    Fault("stop.five", "a fifth is dropped", request=_four_taken),
    Fault("stop.none", "null is refused", work=_null_refused),
    Fault("stop.none", "an empty array stops at once", "empty", work=_emptied),
    Fault("stop.first-text", "no text, so it says length", "finish", event=_length_if_empty),
    Fault("stop.first-text", "no text, so no usage", "usage", chunk=_no_usage_if_empty),
    _fault("stop.parity", "plain answers leak", "", gates.NothingHeld, when=_plain),
    _fault("stop.parity", "plain answers are cut more", "cut", gates.TooMuchCut, when=_plain),
    _fault(
        "stop.parity", "plain answers say length", "finish", Gate,
        finish=FinishReason.LENGTH, when=_plain,
    ),
)  # fmt: skip
