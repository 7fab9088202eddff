"""Faults of clients that leave or do not read, and of servers that hold back what they have."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from reference_server.engine.interface import Delta, Done, Event, Failure, Work
from reference_server.faults.fault import Fault, Place, Sent
from reference_server.seams import AT_ONCE, After, Document, Part, Slow
from reference_server.wire import sse_writer

LATE = 6.0  # seconds
BEAT = 0.004  # seconds: less than a step, so that there is some silence to fill
MANY = 6  # hang-ups
PLACES = 16  # choices that are served at once
LATE_SHARE = 0.6  # of the tokens that were asked for
ON = After(seconds=math.inf)
Rule = Callable[[Place, str, bool], After]


def _if(after: After, when: Callable[[str, bool], bool]) -> Rule:
    """That becomes of the work where `when(how, began)` holds; elsewhere it ends at once."""
    return lambda place, how, began: after if when(how, began) else AT_ONCE


def _always(how: str, began: bool) -> bool:
    return True


def _fin(how: str, began: bool) -> bool:
    return how == "fin"


def _rst(how: str, began: bool) -> bool:
    return how == "rst"


def _early(how: str, began: bool) -> bool:
    return not began


def _begun(how: str, began: bool) -> bool:
    return began


def _several(place: Place, how: str, began: bool) -> After:
    """With several choices a hang-up is not noticed."""
    return ON if place.choices > 1 else AT_ONCE


def _asked(place: Place, work: Work) -> Work:
    """Keeps the books of the choices that are under way."""
    place.shared["there"] = place.shared.get("there", 0) + work.n
    place.memory["n"] = work.n
    return work


def _ended(place: Place, event: Event) -> Iterable[Event]:
    if isinstance(event, Done | Failure):
        place.shared["there"] -= place.memory.pop("n", 0)
    return (event,)


def _queued(place: Place, how: str, began: bool) -> After:
    """Who leaves the queue is served all the same."""
    mine = place.memory.pop("n", 0)
    place.shared["there"] = place.shared.get("there", 0) - mine
    return ON if not began and place.shared["there"] >= PLACES else AT_ONCE


def _from_the(count: int, after: After) -> Rule:
    """That becomes of the work from so many hang-ups on, in this server's life."""

    def rule(place: Place, how: str, began: bool) -> After:
        place.shared["left"] = place.shared.get("left", 0) + 1
        return after if place.shared["left"] >= count else AT_ONCE

    return rule


def _after_a_storm(place: Place, event: Event) -> Iterable[Event]:
    """Once many have left, nothing is generated any more."""
    if place.shared.get("left", 0) >= MANY and isinstance(event, Delta):
        return (Failure(event.work, "the engine is dead"),) if place.n == 0 else ()
    return (event,)


def _less_after_a_storm(place: Place, chunk: Document) -> Iterable[Document]:
    """Once many have left, answers lack a piece."""
    lost = place.shared.get("left", 0) >= MANY and place.part is Part.CONTENT and place.nth == 3
    return () if lost else (chunk,)


def _in_portions(size: int) -> Callable[[Place, bytes], Iterable[Sent]]:
    """Blocks go out so many at a time, as from behind a buffer of that size."""

    def block(place: Place, raw: bytes) -> Iterable[Sent]:
        held = place.memory.setdefault("held", [])
        held.append(raw)
        if len(held) < size and place.part is not Part.DONE:
            return ()
        out = b"".join(held)
        held.clear()
        return (out,)

    return block


def _begins_late(place: Place, raw: bytes) -> Iterable[Sent]:
    """The first text waits until most are made; what follows comes as it is made."""
    held = place.memory.setdefault("held", [])
    held.append(raw)
    if place.part is Part.CONTENT and place.nth < LATE_SHARE * place.body.get("max_tokens", 0):
        return ()
    out = b"".join(held)
    held.clear()
    return (out,)


def _beats(beat: bytes) -> Callable[[Place, bytes], Iterable[Sent]]:
    """Instead of comments."""
    return lambda place, raw: (beat if place.part is Part.COMMENT else raw,)


FAULTS = (
    Fault("abort.fin", "A hang-up is not noticed: the engine goes on", hung_up=_if(ON, _always)),
    Fault("abort.fin", "Only a reset is noticed", "only-fin", hung_up=_if(ON, _fin)),
    Fault(
        "abort.fin", "A hang-up is noticed six seconds late", "late",
        hung_up=_if(After(seconds=LATE), _always),
    ),
    Fault(
        "abort.fin", "The place of an aborted request is never given back", "leak",
        hung_up=_if(After(leaks=True), _always),
    ),
    Fault("abort.rst", "A hang-up in mid-stream is not noticed", hung_up=_if(ON, _begun)),
    Fault("abort.rst", "Only a close is noticed", "only-rst", hung_up=_if(ON, _rst)),
    Fault(
        "abort.rst", "A reset is noticed six seconds late", "late",
        hung_up=_if(After(seconds=LATE), _rst),
    ),
    Fault(
        "abort.rst", "With several choices a hang-up is not noticed", "several", hung_up=_several
    ),
    Fault(
        "abort.queued", "Who leaves the queue is served all the same",
        work=_asked, event=_ended, hung_up=_queued,
    ),
    Fault(
        "abort.before-headers", "A hang-up is noticed only once the answer has begun",
        hung_up=_if(ON, _early),
    ),
    Fault(
        "abort.neighbours", "With one request that is aborted the others end as well",
        hung_up=_if(After(cuts=True), _always),
    ),
    Fault(
        "abort.storm", "From the sixth hang-up on, places are never given back",
        hung_up=_from_the(MANY, After(leaks=True)),
    ),
    Fault(
        "abort.storm", "After six hang-ups the engine is dead", "dead",
        hung_up=_from_the(MANY, AT_ONCE), event=_after_a_storm,
    ),
    Fault(
        "abort.storm", "After six hang-ups answers lack a piece", "hole",
        hung_up=_from_the(MANY, AT_ONCE), chunk=_less_after_a_storm,
    ),
    Fault("slow.others-unharmed", "All wait for the one that does not read", slow=Slow.WAIT),
    Fault("slow.intact", "What a slow reader missed is dropped", slow=Slow.DROP),
    Fault("slow.intact", "A slow reader's body is ended early", "ended", slow=Slow.FINISH),
    Fault("buffering.progressive", "The whole answer is held back", block=_in_portions(10_000)),
    Fault(
        "buffering.progressive", "A buffer holds 64 events", "portions", block=_in_portions(64)
    ),
    Fault("buffering.first-content", "The first text waits for the rest", block=_begins_late),
    Fault(
        "heartbeat.comments", "Silence is filled with empty data",
        heartbeat=BEAT, block=_beats(sse_writer.FIELD + sse_writer.END),
    ),
    Fault(
        "heartbeat.comments", "Silence is filled with empty objects", "object",
        heartbeat=BEAT, block=_beats(sse_writer.event({})),
    ),
)  # fmt: skip
