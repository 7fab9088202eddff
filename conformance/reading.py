"""Reading: what a capture's bytes mean, layer by layer. Pure; two readings of one capture agree.

bytes ─ http1 ─▶ head + body ─ sse ─▶ events ─ chunks ─▶ typed chunks ─ lifecycle ─▶ outcomes
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import wraps
from operator import attrgetter
from typing import Any, TypeVar

from conformance import http1, sse, strictjson
from conformance.capture import Capture, How, Json, Layer
from conformance.chunks import Choice, Chunk, choices_from
from conformance.dialects import DIALECTS, OVERLAYS, Dialect, Overlay, api_of
from conformance.lifecycle import Life, Machine, Outcome, close_from_capture
from conformance.patterns import chunks_from, chunks_one_by_one

_BODY = attrgetter("body")


class Form(Enum):
    """What kind of answer a capture holds; decides which checks look at it."""

    STREAM = "stream"  # asked for as a stream (or, request unknown, labelled as one), status < 400
    PLAIN = "plain"  # a non-streamed answer, status < 400
    REFUSAL = "refusal"  # status of 400 or more
    NOTHING = "nothing"  # no readable head at all
    OTHER = "other"  # an exchange on another route


@dataclass(frozen=True, slots=True)
class Control:
    """What the same request says without streaming.

    `texts`: the plain answers, one or more. `stable`: each form agreed with itself in all trials.
    """

    texts: tuple[str, ...]
    stable: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """One capture, read. Offsets of events and SSE anomalies count body bytes: see `place`."""

    capture: Capture
    form: Form
    outcome: Outcome | None  # None: a plain answer, which has no life
    dialect: Dialect | None  # None: neither chat nor completions
    overlay: Overlay | None
    request: Mapping[str, Json] | None  # the request's JSON body; None: unknown or no JSON object
    status: int | None
    content_type: str | None
    head: http1.Head | None
    interim: tuple[http1.Head, ...]
    framing: http1.Framing | None  # None: not recorded
    complete: bool | None  # by its framing; None: not recorded
    http_anomalies: tuple[http1.Anomaly, ...]
    excess: int  # bytes fed to this exchange after its end
    spans: tuple[http1.Span, ...]
    body: bytes
    events: tuple[sse.Event, ...] = ()
    sse_anomalies: tuple[sse.Anomaly, ...] = ()
    sse_counts: Mapping[str, int] | None = None
    comments: int = 0  # lines of the body that are comments
    pending: str | None = None  # data of an event that the body's end cut off
    chunks: tuple[Chunk, ...] = ()
    life: Life | None = None
    document: strictjson.Parsed | None = None  # of PLAIN and REFUSAL
    control: Control | None = None
    memo: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def place(self, body_offset: int) -> int:
        """The offset in `capture.received` at which that body byte stands."""
        at = bisect_right(self.spans, body_offset, key=_BODY)
        if at == 0:
            return body_offset
        span = self.spans[at - 1]
        return span.wire + body_offset - span.body

    def asked(self, key: str) -> Json:
        """The request's member, None when absent or unknown."""
        return None if self.request is None else self.request.get(key)

    @property
    def wants_usage(self) -> bool:
        """Did the request ask for usage in the stream?"""
        options = self.asked("stream_options")
        return isinstance(options, dict) and options.get("include_usage") is True

    @property
    def n(self) -> int | None:
        """How many choices the request expects (prompts times n); None: unknown."""
        if self.request is None:
            return None
        n, prompt = self.asked("n"), self.asked("prompt")
        prompts = len(prompt) if isinstance(prompt, list) and _of_prompts(prompt) else 1
        return prompts * (n if type(n) is int and n > 0 else 1)

    @property
    def plain_choices(self) -> tuple[Choice, ...]:
        """The choices of a plain answer."""
        if self.document is None or self.dialect is None:
            return ()
        return tuple(choices_from(self.document.value, self.dialect, "message"))

    @property
    def text(self) -> str:
        """The whole content of choice 0, streamed or plain."""
        if self.life is not None:
            return next((c.text for c in self.life.choices if c.index == 0), "")
        return next((c.text for c in self.plain_choices if c.index == 0), "")


T = TypeVar("T")


def once(make: Callable[[Reading], T]) -> Callable[[Reading], T]:
    """`make`, asked once of each reading: its answer is kept there, and nobody may change it.

    A hundred checks look at one reading, and most begin with the same few questions.
    """

    @wraps(make)
    def asked(reading: Reading) -> T:
        memo = reading.memo
        if make not in memo:
            memo[make] = make(reading)
        found: T = memo[make]
        return found

    return asked


def _of_prompts(prompt: list[Json]) -> bool:
    return bool(prompt) and all(isinstance(p, str | list) for p in prompt)


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str | None
    body: dict[str, Json] | None


@dataclass(frozen=True, slots=True)
class _Answer:
    head: http1.Head | None
    interim: tuple[http1.Head, ...] = ()
    framing: http1.Framing | None = None
    complete: bool | None = None
    dead: bool = False
    anomalies: tuple[http1.Anomaly, ...] = ()
    excess: int = 0
    spans: tuple[http1.Span, ...] = ()
    body: bytes = b""


def read(
    capture: Capture,
    *,
    api: str | None = None,
    dialect: str | None = None,
    control: Control | None = None,
    shortcut: bool = True,
) -> Reading:
    """Read one capture. `api` and `dialect` (an overlay's name) override what the path says.

    `shortcut` is for the test that holds both ways equal; without it no chunk has a pattern.
    """
    request = _request(capture)
    answer = _READERS[capture.layer](capture, request.method, shortcut)
    given = capture.given
    status = answer.head.status if answer.head else (given.status if given else None)
    content_type = _content_type(answer.head) or (given.content_type if given else None)
    spoken = DIALECTS.get(api or api_of(request.path) or "")
    form = _form(capture, request, spoken, status, content_type)
    overlay = OVERLAYS.get(dialect or "")
    base = Reading(
        capture=capture,
        form=form,
        outcome=_outcome_without_body(capture, form, answer),
        dialect=spoken,
        overlay=overlay,
        request=request.body,
        status=status,
        content_type=content_type,
        head=answer.head,
        interim=answer.interim,
        framing=answer.framing,
        complete=answer.complete,
        http_anomalies=answer.anomalies,
        excess=answer.excess,
        spans=answer.spans,
        body=answer.body,
        control=control,
    )
    if form is Form.STREAM:
        return _streamed(base, dead=answer.dead, shortcut=shortcut)
    if form in (Form.PLAIN, Form.REFUSAL):
        text = answer.body.decode("utf-8", "replace")
        return _with(base, document=strictjson.parse(text))
    return base


def _with(reading: Reading, **changes: object) -> Reading:
    return replace(reading, **changes)  # type: ignore[arg-type]


def _request(capture: Capture) -> _Request:
    raw = b"".join(segment.data for segment in capture.request)
    head = http1.parse_request_head(raw) if raw else None
    if head is None:
        given = capture.given
        return _Request("POST", given.path if given else None, given.request if given else None)
    body = strictjson.parse(raw[head.end :].decode("utf-8", "replace")).value
    target = head.target.decode("ascii", "replace")
    return _Request(
        head.method.decode("ascii", "replace"), target, body if isinstance(body, dict) else None
    )


def _is_broken(capture: Capture, framing: http1.Framing | None) -> bool:
    """RFC 9112 section 8: what ends by its connection's close alone "is considered complete unless
    an error was indicated by the underlying connection (e.g., an "incomplete close" in TLS …)".
    """
    errors = (How.RESET, How.TLS_CUT)
    return framing is http1.Framing.CLOSE and capture.end.how in errors


def _wire(capture: Capture, method: str, shortcut: bool) -> _Answer:
    reader = http1.Reader(method, shortcut=shortcut)
    body = reader.feed(capture.received)
    if capture.end.how in (How.CLOSED, How.TLS_CUT, How.RESET, How.UNKNOWN):
        reader.close()
    return _Answer(
        reader.head,
        tuple(reader.interim),
        reader.framing,
        reader.complete and not _is_broken(capture, reader.framing),
        reader.dead,
        tuple(reader.anomalies),
        reader.excess,
        tuple(reader.spans),
        body,
    )


def _unframed(capture: Capture, method: str, shortcut: bool) -> _Answer:
    reader = http1.Reader(method, shortcut=shortcut)
    reader.feed(capture.received)
    if reader.head is None:
        return _Answer(None, dead=True)
    start, size = reader.head.end, len(capture.received)
    spans = (http1.Span(start, 0, size - start),)
    return _Answer(reader.head, tuple(reader.interim), spans=spans, body=capture.received[start:])


def _bare(capture: Capture, method: str, shortcut: bool) -> _Answer:
    return _Answer(None, body=capture.received)


_READERS = {
    Layer.WIRE: _wire,
    Layer.UNFRAMED: _unframed,
    Layer.BODY: _bare,
    Layer.TEXT: _bare,
}


def _content_type(head: http1.Head | None) -> str | None:
    value = head.get(b"content-type") if head else None
    return value.decode("latin-1") if value is not None else None


def essence(content_type: str | None) -> str | None:
    """The media type without parameters, lower case."""
    return content_type.split(";")[0].strip().lower() if content_type else None


def _form(
    capture: Capture,
    request: _Request,
    spoken: Dialect | None,
    status: int | None,
    content_type: str | None,
) -> Form:
    if request.method != "POST":
        return Form.OTHER
    headless = capture.layer in (Layer.WIRE, Layer.UNFRAMED) and status is None
    if headless:
        return Form.NOTHING
    if status is not None and status >= 400:
        return Form.REFUSAL
    if request.body is not None and "stream" in request.body:
        return Form.STREAM if request.body["stream"] is True else Form.PLAIN
    labelled = essence(content_type)
    if request.body is not None and capture.request and spoken is not None:
        return Form.PLAIN  # the whole request is known, and `stream` is false unless it is given
    if labelled == "text/event-stream":
        return Form.STREAM
    if request.path is not None and spoken is None:
        return Form.OTHER
    if request.body is not None or labelled == "application/json":
        return Form.PLAIN
    return Form.STREAM


def _outcome_without_body(capture: Capture, form: Form, answer: _Answer) -> Outcome | None:
    how = capture.end.how
    if how is How.NOT_CONNECTED:
        return Outcome.NOT_CONNECTED
    if how is How.TLS_FAILED:
        return Outcome.TLS_FAILED
    if form is Form.REFUSAL:
        return Outcome.REFUSED
    if form is Form.NOTHING:
        if how is How.LEFT:
            return Outcome.LEFT
        return Outcome.UNREADABLE if capture.received else Outcome.NO_ANSWER
    return None


def _streamed(base: Reading, *, dead: bool, shortcut: bool) -> Reading:
    reader = sse.Reader(shortcut=shortcut)
    events = reader.feed(base.body)
    if base.capture.end.how not in (How.LEFT, How.BOUND):
        reader.close()  # where we went away first, what is pending is no fault of the server
    dialect = base.dialect or DIALECTS["chat"]
    read_all = chunks_from if shortcut else chunks_one_by_one
    chunks = tuple(read_all(events, dialect, base.overlay))
    machine = Machine(base.n or 1)
    for chunk in chunks:
        machine.feed(chunk)
    life = machine.close(close_from_capture(base.capture, base.complete))
    return _with(
        base,
        outcome=Outcome.UNREADABLE if dead and not chunks else life.outcome,
        events=tuple(events),
        sse_anomalies=tuple(reader.anomalies),
        sse_counts=dict(reader.counts),
        comments=reader.comments,
        pending=reader.pending_data,
        chunks=chunks,
        life=life,
    )
