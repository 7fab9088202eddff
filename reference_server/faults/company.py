"""Faults that only company brings out: what one request leaves behind changes another's answer.

Each remembers in `place.shared` what the neighbours said; an exchange counts as there from its
first event to its last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from reference_server.engine.interface import Delta, Done, Event, Failure, FinishReason, Work
from reference_server.faults.fault import Fault, Place
from reference_server.seams import Answer, Document

CROWDED = 8  # streams at once
REMEMBERED = 24  # characters of each neighbour
EVERY = 3  # an intermittent fault strikes at every third occasion
SILENT = 6  # times round the neighbours without a word: that one hung up
ECHO = 64  # events for which a finished request's stop strings go on
Change = Callable[[Place, Event], Iterable[Event]]


def _present(change: Change) -> Change:
    """Keeps the books: `there` maps each running exchange to the end of its text."""

    def event(place: Place, event: Event) -> Iterable[Event]:
        there = place.shared.setdefault("there", {})
        heard = place.shared.setdefault("heard", {})
        place.shared["clock"] = place.shared.get("clock", 0) + 1
        if isinstance(event, Delta):
            there[place.serial] = (there.get(place.serial, "") + event.text)[-REMEMBERED:]
            heard[place.serial] = place.shared["clock"]
        out = list(change(place, event))
        if isinstance(event, Done | Failure):
            there.pop(place.serial, None)
            heard.pop(place.serial, None)
        return out

    return event


def _other(place: Place) -> str | None:
    """What one of the neighbours said last, another one each time."""
    there: dict[int, str] = place.shared["there"]
    texts = [text for serial, text in there.items() if serial != place.serial and text.strip()]
    return texts[place.shared["clock"] % len(texts)] if texts else None


def _crossed(place: Place, event: Event) -> Iterable[Event]:
    """In a crowd, now and then, a delta is made from a neighbour's text."""
    crowded = len(place.shared["there"]) >= CROWDED
    if not isinstance(event, Delta) or not event.text or not crowded or place.body.get("stop"):
        return (event,)
    turn = place.shared["turn"] = place.shared.get("turn", 0) + 1
    text = _other(place)
    if turn % EVERY or text is None:
        return (event,)
    return (replace(event, text=text),)


def _swapped(place: Place, event: Event) -> Iterable[Event]:
    """The third delta and all that follow are a neighbour's."""
    alone = len(place.shared["there"]) < 2
    if not isinstance(event, Delta) or not event.text or alone or place.body.get("stop"):
        return (event,)
    text = _other(place)
    return (replace(event, text=text) if text and place.n >= 3 else event,)


def _gone(place: Place) -> int | None:
    """An exchange that has been silent for long while the others spoke: its client left."""
    heard: dict[int, int] = place.shared["heard"]
    patience = SILENT * max(len(heard), 2)
    silent = (serial for serial, at in heard.items() if place.shared["clock"] - at > patience)
    return next(silent, None)


def _inherited(place: Place, event: Event) -> Iterable[Event]:
    """The row of whoever left goes to a neighbour, text and all."""
    gone = _gone(place)
    if gone is None or gone == place.serial or not isinstance(event, Delta) or not event.text:
        return (event,)
    place.shared["heard"].pop(gone)
    return (replace(event, text=place.shared["there"].pop(gone)),)


def _taken_along(place: Place, event: Event) -> Iterable[Event]:
    """Whoever leaves takes a neighbour along."""
    gone = _gone(place)
    if gone is None or gone == place.serial or not isinstance(event, Delta) or event.finish:
        return (event,)
    place.shared["heard"].pop(gone)
    place.shared["there"].pop(gone, None)
    return (Failure(event.work, "the batch is gone"),)


def _crowd_limit(place: Place, work: Work) -> Work:
    """The largest limit of the latest requests holds for the next one."""
    recent = place.shared.setdefault("recent", [])
    recent.append(work.sampling.max_tokens or 0)
    return replace(work, sampling=replace(work.sampling, max_tokens=max(recent[-CROWDED:])))


def _one_more(place: Place, event: Event) -> Iterable[Event]:
    """In a crowd the limit is counted per step of the batch: a short answer gets a token more."""
    crowded = len(place.shared["there"]) >= CROWDED
    if isinstance(event, Done) and crowded:
        return (replace(event, completion_tokens=event.completion_tokens + 1),)
    return (event,)


def _stop_for_all(place: Place, event: Event) -> Iterable[Event]:
    """The stop strings of the running requests, and of those just ended, end all of them."""
    clock = place.shared["clock"] = place.shared.get("clock", 0) + 1
    stops: dict[int, tuple[list[str], float]] = place.shared.setdefault("stops", {})
    asked = place.body.get("stop")
    if place.n == 0 and isinstance(asked, list):
        stops[place.serial] = ([stop for stop in asked if stop], math.inf)
    if not isinstance(event, Delta):
        if place.serial in stops:
            stops[place.serial] = (stops[place.serial][0], clock + ECHO)
        return (event,)
    if "over" in place.memory:
        return ()
    before: str = place.memory.get("text", "")
    whole = place.memory["text"] = before + event.text
    foreign = [
        stop
        for serial, (each, until) in stops.items()
        if serial != place.serial and clock <= until
        for stop in each
    ]
    ends = [whole.find(stop) for stop in foreign if stop in whole]
    if not ends:
        return (event,)
    place.memory["over"] = True
    kept = whole[len(before) : max(min(ends), len(before))]
    return (replace(event, text=kept, finish=FinishReason.STOP),)


def _refusing(place: Place, answer: Answer) -> Answer:
    place.shared["refused"] = place.shared.get("refused", 0) + 1
    place.connection["refused"] = True
    return answer


def _batch_dies(place: Place, event: Event) -> Iterable[Event]:
    """A refusal ends everything that runs at that moment."""
    refused = place.shared.get("refused", 0)
    begun = place.memory.setdefault("refused", refused)
    if refused > begun and isinstance(event, Delta):
        return (Failure(event.work, "the batch was invalid"),)
    return (event,)


def _batch_shared(place: Place, event: Event) -> Iterable[Event]:
    """After a refusal the rows of the batch are off by one."""
    refused = place.shared.get("refused", 0)
    begun = place.memory.setdefault("refused", refused)
    text = _other(place)
    if refused > begun and text and isinstance(event, Delta) and event.text:
        return (replace(event, text=text),)
    return (event,)


def _left_over(place: Place, event: Event) -> Iterable[Event]:
    """After a refusal the connection gets what stood in the buffer: another's text."""
    texts: list[str] = place.shared.setdefault("texts", [])
    if isinstance(event, Delta):
        place.memory["text"] = place.memory.get("text", "") + event.text
    if isinstance(event, Done):
        texts.append(place.memory.get("text", "")[:REMEMBERED])
    stale = place.connection.get("refused") and texts
    if stale and isinstance(event, Delta) and event.text:
        return (replace(event, text=texts[-1]),)
    return (event,)


def _same_id(name: Callable[[Place], str]) -> Callable[[Place, Document], Iterable[Document]]:
    return lambda place, chunk: ({**chunk, "id": name(place)},)


FAULTS = (
    Fault(
        "isolation.canary",
        "in a crowd a delta is now and then a neighbour's",
        event=_present(_crossed),
    ),
    Fault(
        "isolation.canary",
        "two streams are swapped after three deltas",
        "swapped",
        event=_present(_swapped),
    ),
    Fault(
        "isolation.aborts",
        "a neighbour goes on with the text of a stream that was left",
        event=_present(_inherited),
    ),
    Fault(
        "isolation.aborts",
        "who hangs up takes a neighbour along",
        "taken",
        event=_present(_taken_along),
    ),
    Fault(
        "isolation.limits",
        "the largest limit of the latest requests holds for the next",
        work=_crowd_limit,
    ),
    Fault(
        "isolation.limits",
        "in a crowd a token is generated beyond the limit",
        "more",
        event=_present(_one_more),
    ),
    Fault("isolation.stop", "a stop string ends whatever runs", event=_stop_for_all),
    Fault("isolation.ids", "all answers have one id", chunk=_same_id(lambda place: "chatcmpl-1")),
    Fault(
        "isolation.ids",
        "ids are reused after a few answers",
        "reused",
        chunk=_same_id(lambda place: f"chatcmpl-{place.serial % 7}"),
    ),
    Fault(
        "isolation.invalid-neighbour",
        "a refusal fails everything that runs",
        event=_batch_dies,
        refusal=_refusing,
    ),
    Fault(
        "isolation.invalid-neighbour",
        "after a refusal the neighbours' texts are swapped",
        "swapped",
        event=_present(_batch_shared),
        refusal=_refusing,
    ),
    Fault(
        "isolation.keep-alive",
        "a refused request's connection gets another's text next",
        event=_left_over,
        refusal=_refusing,
    ),
)
