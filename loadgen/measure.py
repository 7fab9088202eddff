"""One played request → one row of instants and counts. Pure; None is unknown, never 0.

Every instant is when the read returned that brought the last byte of the event; events that one
read brought share it. Tokens are what the server's usage says, never a count of events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from conformance import http1
from conformance.capture import Capture, Json
from conformance.chunks import Choice, Chunk, Kind, member
from conformance.reading import Reading, read
from loadgen.crosstalk import hash_of, text_of
from loadgen.exactness import Moment, moments
from loadgen.outcome import SUCCESSES, UNSENT, Fate, fate_of
from loadgen.played import Played
from loadgen.workload import Ask

EXCERPT = 200  # bytes of what a failed request was told
COUNTED_AT_MOST = 10**15  # tokens; what is more is no count, and may be too large for any sum


@dataclass(frozen=True, slots=True)
class Row:
    """One scheduled request, measured. Instants are seconds on the recorder's clock.

    `client`: the name of one that leaves or reads slowly; None: an ordinary one.
    `sent`: when `send` returned, or the first bytes of the answer came before it had.
    `lateness`: from `intended` until the last byte was sent, the time to connect left out: what the
    client itself added. `connecting`: None on a connection that was used before. `token_times`: of
    every chunk with text (content, reasoning, refusal, a tool call). `first_answer`: of the first
    that is not reasoning. `first_choice`, `last_choice`: of the first and the last chunk with any
    choice. `first_chunk_tokens`: how many tokens the first chunk with text brought.
    `bounds`: how many of `token_times` are only bounds: the chunk came then or before. `earliest`:
    of each of them, when it came at the earliest; () where all are values or nobody knows.
    `told`: the beginning of what a failed request was answered.
    `streams` False: asked for in one piece; its `last_event` is then the answer's last byte.
    `part`: of a mix; `turn`: of a session, from 0 on; `group`: whose prefix it shares. `attempt`:
    0, of retries 1, 2, …; `wanted`: when the first attempt should have begun.
    """

    index: int
    intended: float
    fate: Fate
    prompt_hash: str
    input_asked: int | None = None
    output_asked: int | None = None
    client: str | None = None
    started: float | None = None
    sent: float | None = None
    lateness: float | None = None
    connecting: float | None = None
    reused: bool | None = None
    status: int | None = None
    finish: str | None = None
    detail: str | None = None
    told: bytes = b""
    answer_hash: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    first_chunk_tokens: int | None = None
    first_byte: float | None = None
    first_event: float | None = None
    first_answer: float | None = None
    first_choice: float | None = None
    last_choice: float | None = None
    last_event: float | None = None
    token_times: tuple[float, ...] = ()
    bounds: int | None = None
    earliest: tuple[float, ...] = ()
    ended: float | None = None
    streams: bool = True
    part: str | None = None
    turn: int | None = None
    group: int | None = None
    attempt: int = 0
    wanted: float | None = None

    @property
    def success(self) -> bool:
        return self.fate in SUCCESSES

    @property
    def was_sent(self) -> bool:
        return self.fate not in UNSENT

    @property
    def first_wanted(self) -> float:
        """When it, or the attempt that it repeats, should have begun."""
        return self.intended if self.wanted is None else self.wanted

    @property
    def first_token(self) -> float | None:
        return self.token_times[0] if self.token_times else None

    @property
    def gaps(self) -> tuple[float, ...]:
        """Times between neighbouring chunks with text; 0 where one read brought both."""
        return tuple(b - a for a, b in pairwise(self.token_times))

    @property
    def stall(self) -> float | None:
        """The longest gap."""
        return max(self.gaps, default=None)

    @property
    def tpot(self) -> float | None:
        """Seconds a token over the tokens after the first chunk with text."""
        after = self.tokens_after
        if after is None or len(self.token_times) < 2:
            return None
        return (self.token_times[-1] - self.token_times[0]) / after if after > 0 else None

    @property
    def tokens_after(self) -> int | None:
        """Tokens after the first chunk with text."""
        if self.completion_tokens is None:
            return None
        return self.completion_tokens - (self.first_chunk_tokens or 1)


def row_from(played: Played, ask: Ask, api: str, reading: Reading | None = None) -> Row:
    """`reading`: of the capture, where the caller has read it already."""
    row = Row(
        played.index,
        played.intended,
        played.unsent or Fate.LEFT,
        ask.prompt_hash,
        ask.input_tokens,
        ask.output_tokens,
        ask.client.name,
        played.started,
        streams=ask.streams,
        part=ask.part,
        turn=ask.turn,
        group=ask.group,
        attempt=ask.attempt,
        wanted=played.wanted,
    )
    if played.capture is None:
        return row
    return _measured(row, played, played.capture, reading or read(played.capture, api=api))


def _measured(row: Row, played: Played, capture: Capture, reading: Reading) -> Row:
    fate = fate_of(reading)
    timed = [
        (chunk, moment)
        for chunk, moment in zip(reading.chunks, moments(reading), strict=True)
        if moment is not None
    ]
    texts = [(chunk, moment) for chunk, moment in timed if _has_text(chunk)]
    choices = [moment.at for chunk, moment in timed if chunk.choices]
    connecting = _connecting(played, capture)
    usage = _usage(reading)
    return replace(
        row,
        fate=fate,
        sent=_left(capture),
        lateness=_lateness(played, capture, connecting),
        connecting=connecting,
        reused=None if capture.ordinal is None else capture.ordinal > 0,
        status=reading.status,
        finish=_finish(reading),
        detail=capture.end.detail or capture.end.how.value,
        told=b"" if fate in SUCCESSES else _told(reading),
        answer_hash=hash_of(text_of(reading)),
        prompt_tokens=_count(usage, "prompt_tokens"),
        completion_tokens=_count(usage, "completion_tokens"),
        first_chunk_tokens=_first_tokens(texts[0][0]) if texts else None,
        first_byte=capture.reads[0].at if capture.reads else None,
        first_event=timed[0][1].at if timed else None,
        first_answer=next((moment.at for chunk, moment in texts if _answers(chunk)), None),
        first_choice=choices[0] if choices else None,
        last_choice=choices[-1] if choices else None,
        last_event=timed[-1][1].at if timed else _last_byte(row, fate, capture),
        token_times=tuple(moment.at for _, moment in texts),
        bounds=sum(not moment.is_value for _, moment in texts) if texts else None,
        earliest=_earliest([moment for _, moment in texts]),
        ended=capture.end.at,
    )


def _has_text(chunk: Chunk) -> bool:
    """A chunk with a pattern has one: that is what patterns are of."""
    return chunk.pattern is not None or any(choice.carries for choice in chunk.choices)


def _earliest(texts: Sequence[Moment]) -> tuple[float, ...]:
    known = tuple(moment.earliest for moment in texts if moment.earliest is not None)
    bounded = any(not moment.is_value for moment in texts)
    return known if bounded and len(known) == len(texts) else ()


def chunk_times(reading: Reading) -> Iterator[float | None]:
    """For every event, in order: when the read returned that brought its last byte."""
    return (None if moment is None else moment.at for moment in moments(reading))


def _connecting(played: Played, capture: Capture) -> float | None:
    """Only the first exchange of a connection dialled it."""
    if capture.ordinal != 0 or capture.connected_at is None or played.started is None:
        return None
    return max(0.0, capture.connected_at - played.started)


def _lateness(played: Played, capture: Capture, connecting: float | None) -> float | None:
    if capture.sent_at is not None:
        return capture.sent_at - played.intended - (connecting or 0.0)
    return None if played.started is None else played.started - played.intended


def _last_byte(row: Row, fate: Fate, capture: Capture) -> float | None:
    """Of a plain answer that came whole."""
    whole = fate in SUCCESSES and not row.streams
    return capture.reads[-1].at if whole and capture.reads else None


def _left(capture: Capture) -> float | None:
    """When the request had left: `send` returned, or an answer came before it had."""
    came = capture.reads[0].at if capture.reads else None
    if capture.sent_at is None or came is None:
        return capture.sent_at
    return min(capture.sent_at, came)


def _usage(reading: Reading) -> Json:
    """The last usage that is an object: servers that count on the way repeat it, growing."""
    if reading.document is not None:
        usage = member(reading.document.value, "usage")
        return usage if isinstance(usage, dict) else None
    found = (chunk.usage for chunk in reversed(reading.chunks) if chunk.kind is Kind.CHUNK)
    return next((usage for usage in found if isinstance(usage, dict)), None)


def _count(usage: Json, key: str) -> int | None:
    value = member(usage, key)
    return value if type(value) is int and 0 <= value <= COUNTED_AT_MOST else None


def _first_tokens(chunk: Chunk) -> int | None:
    """How many tokens a chunk brought, from its own usage or log-probabilities; None: not said."""
    if (counted := _count(_plain(chunk), "completion_tokens")) is not None:
        return counted or None
    listed = [_logprobs(choice) for choice in chunk.choices]
    return sum(n or 0 for n in listed) or None


def _plain(chunk: Chunk) -> Json:
    return chunk.usage if isinstance(chunk.usage, dict) else None


def _logprobs(choice: Choice) -> int | None:
    for key in ("content", "tokens"):
        listed = member(choice.logprobs, key)
        if isinstance(listed, list):
            return len(listed)
    return None


def _answers(chunk: Chunk) -> bool:
    """Does it bring content, a refusal or a tool call?"""
    return any(
        choice.tools
        or any(isinstance(said, str) and said for said in (choice.content, choice.refusal))
        for choice in chunk.choices
    )


def _finish(reading: Reading) -> str | None:
    choices = reading.life.choices if reading.life else ()
    streamed = [reason for choice in choices for _, reason in choice.finishes]
    reasons = [*streamed, *(choice.finish_reason for choice in reading.plain_choices)]
    return next((reason for reason in reasons if isinstance(reason, str)), None)


def _told(reading: Reading) -> bytes:
    """What a failed request was answered: the error, else the body, else the first bytes."""
    for chunk in reading.chunks:
        if chunk.kind is Kind.ERROR:
            return chunk.event.data.encode("utf-8", "replace")[:EXCERPT]
    return (reading.body or _unread(reading.head, reading.capture))[:EXCERPT]


def _unread(head: http1.Head | None, capture: Capture) -> bytes:
    return capture.received if head is None else b""
