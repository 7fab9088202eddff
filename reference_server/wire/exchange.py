"""One generation, from a valid request to the last byte of its answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import trio

from reference_server.bridge import Bridge, Ticket
from reference_server.bridge.ticket import UNAVAILABLE
from reference_server.engine.interface import Delta, Done, Event, Failure, Work
from reference_server.seams import Act, Answer, Document, Part, Seams, Slow
from reference_server.wire import sse_writer
from reference_server.wire.chat_shape import ChatShape
from reference_server.wire.completion_shape import CompletionShape
from reference_server.wire.connection import Connection
from reference_server.wire.errors import ApiError, envelope, invalid
from reference_server.wire.request import Ask
from reference_server.wire.shape import Label, Piece, Shape

_STREAM_FIELDS = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
INVALID = "invalid_request_error"  # that of a request which no server of this model could do
_BLOCKED = 0.5  # seconds of one write
SHAPES: dict[str, type[Shape]] = {"chat": ChatShape, "completions": CompletionShape}
_PREFIX = {"chat": "chatcmpl", "completions": "cmpl"}


@dataclass
class Exchange:
    """`id` is unique in this process, `created` in Unix seconds, `heartbeat` in seconds."""

    ask: Ask
    connection: Connection
    bridge: Bridge
    seams: Seams
    id: str
    created: int
    heartbeat: float | None = None
    start_within: float | None = None  # seconds
    done: list[Done] = field(default_factory=list)

    def __post_init__(self) -> None:
        name = f"{_PREFIX[self.ask.api]}-{self.id}"
        self._fields = ((b"x-request-id", name.encode()),)
        label = Label(name, self.created, self.ask.model)
        self._began = self._late = False
        if self.seams.slow:
            self.connection.narrow()
        self._shape: Shape = SHAPES[self.ask.api](self.ask, label)
        if self.ask.return_token_ids:
            self._shape.prompt_ids = [each or () for each in self.ask.prompt_ids]

    async def run(self) -> None:
        """Generate and answer. Raises ApiError when the work fails before the first byte."""
        works = list(self._works())
        ticket = self.bridge.open(works, streamed=self.ask.stream)
        if self.start_within is not None:
            ticket.must_start(self.start_within)
        try:
            async with self.connection.watched():
                answer = self._stream if self.ask.stream else self._plain
                refused = await answer(ticket)
        finally:
            left = self.connection.left
            ticket.abandon(self.seams.hung_up(left, self._began)) if left else ticket.close()
        if refused is not None:
            raise refused

    def _works(self) -> Iterator[Work]:
        ask = self.ask
        answer = "".join(call.written for call in ask.calls) if ask.calls else ask.answer
        for number, (prompt, ids) in enumerate(zip(ask.prompts, ask.prompt_ids, strict=True)):
            work = Work(f"{self.id}/{number}", prompt, ask.sampling, ask.n, ask.echo, answer, ids)
            # A fault may change what is asked of the engine, never whose work it is.
            yield replace(self.seams.work(work), id=work.id)

    # -- plain -------------------------------------------------------------------------------

    async def _plain(self, ticket: Ticket) -> ApiError | None:
        pieces: list[Piece] = []
        while events := await self._receive(ticket, None):
            for event in events:
                if isinstance(event, Failure):
                    return _refusal(event)
                if isinstance(event, Delta):
                    pieces.append(self._piece(event))
        document = self.seams.plain(self._shape.document(pieces, self.done))
        body = sse_writer.dumps(document).encode()
        whole = self.seams.whole(Answer(200, body, fields=self._fields))
        await self.connection.send(whole)
        return None

    def _piece(self, delta: Delta) -> Piece:
        return self._shape.piece(int(delta.work.rpartition("/")[2]), delta)

    async def _receive(self, ticket: Ticket, heartbeat: float | None) -> list[Event | None]:
        """The engine's next word; `[None]` after `heartbeat` silent seconds; `[]` at the end."""
        while True:
            event, silent = await _next(ticket, heartbeat)
            if event is None:
                return [None] if silent else []
            if seen := list(self.seams.event(event)):
                self.done += [one for one in seen if isinstance(one, Done)]
                return [*seen]

    # -- streamed ----------------------------------------------------------------------------

    async def _stream(self, ticket: Ticket) -> ApiError | None:
        """The status is chosen after the engine's first word, or when a heartbeat is due."""
        started = False
        heartbeat = self.seams.heartbeat(self.heartbeat)
        while events := await self._receive(ticket, heartbeat):
            if not started:
                if isinstance(events[0], Failure):
                    return _refusal(events[0])
                started = True
                await self._start()
            for event in events:
                if isinstance(event, Failure):
                    return await self._fail(event)
                await self._write(event)
        if self.ask.include_usage:
            await self._chunk(Part.USAGE, self._shape.usage_chunk(self.done))
        await self._block(Part.DONE, sse_writer.done())
        await self.connection.finish()
        return None

    async def _start(self) -> None:
        self._began = True
        fields = (*_STREAM_FIELDS, *self._fields)
        await self.connection.start(200, sse_writer.CONTENT_TYPE, fields)
        for part, chunk in self._shape.opening():
            await self._chunk(part, chunk)

    async def _write(self, event: Event | None) -> None:
        if event is None:
            await self._block(Part.COMMENT, sse_writer.comment("keep-alive"))
        elif isinstance(event, Delta):
            for part, chunk in self._shape.delta(self._piece(event)):
                await self._chunk(part, chunk)

    async def _fail(self, failure: Failure) -> ApiError | None:
        """In-band: one error object, then the end. No sentinel: this is no clean end."""
        error = envelope(failure.message, failure.kind)
        await self._block(Part.ERROR, sse_writer.event(error))
        await self.connection.finish()
        return None

    async def _chunk(self, part: Part, chunk: Document) -> None:
        for sent in self.seams.chunk(part, chunk):
            await self._block(part, sse_writer.event(sent))

    async def _block(self, part: Part, block: bytes) -> None:
        for piece in self.seams.block(part, block):
            if isinstance(piece, Act):
                await self.connection.act(piece)
            elif piece and self.seams.slow:
                await self._slowly(part, piece, self.seams.slow)
            elif piece:
                await self.connection.body(piece)

    async def _slowly(self, part: Part, piece: bytes, policy: Slow) -> None:
        """What faulty servers do once a write had to wait."""
        if policy is Slow.WAIT:
            with self.bridge.held():
                await self.connection.body(piece)
            return
        if self._late and part is Part.CONTENT:
            self._late = False
            return
        start = trio.current_time()
        await self.connection.body(piece)
        if trio.current_time() - start > _BLOCKED:
            self._late = policy is Slow.DROP
            if policy is Slow.FINISH:
                await self.connection.act(Act.FINISH)


async def _next(ticket: Ticket, heartbeat: float | None) -> tuple[Event | None, bool]:
    """The next event, or None at the end; or None and True after so many silent seconds."""
    if heartbeat is None:
        return await ticket.receive(), False
    event: Event | None = None
    with trio.move_on_after(heartbeat) as patience:
        event = await ticket.receive()
    return event, patience.cancelled_caught


def _refusal(failure: Failure) -> ApiError:
    """A failure before the first byte."""
    if failure.kind == INVALID:
        return invalid(failure.message)
    if failure.kind == UNAVAILABLE:
        return ApiError(503, failure.message, fields=((b"retry-after", b"1"),))
    return ApiError(500, failure.message)
