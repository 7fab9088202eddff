"""The server: routes, admission, and one task for each connection over any trio stream.

`Server.seams` decides for each request what is broken on purpose; by default nothing is.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from reference_server.bridge import Bridge
from reference_server.clock import Clock
from reference_server.seams import CLEAN, Answer, Seams
from reference_server.wire import chat_request, fields, gauges, request, sse_writer
from reference_server.wire.connection import Connection, Limits, Request
from reference_server.wire.errors import ApiError
from reference_server.wire.exchange import UNAVAILABLE, Exchange
from reference_server.wire.request import Ask

_GENERATE = {"/v1/chat/completions": chat_request.chat, "/v1/completions": request.completions}
_GET = ("/v1/models", "/health", "/stats", "/metrics")


@dataclass(frozen=True, slots=True)
class Settings:
    """`context` in tokens, `heartbeat` in seconds; `max_waiting` in requests."""

    model: str = "scripted"
    context: int = 4096
    max_waiting: int | None = None
    heartbeat: float | None = None
    api_key: str | None = None
    limits: Limits = field(default_factory=Limits)


SeamsFor = Callable[[Request, dict[str, Any]], Seams]


def clean(request: Request, memory: dict[str, Any]) -> Seams:
    """No faults, whatever the request says. `memory` is the connection's."""
    return CLEAN


class Server:
    """Serves connections until drained. `seams` decides for each request what is broken."""

    def __init__(
        self,
        bridge: Bridge,
        settings: Settings | None = None,
        clock: Clock | None = None,
        seams: SeamsFor = clean,
        ids: Callable[[], str] = lambda: secrets.token_hex(12),
    ) -> None:
        self.bridge = bridge
        self.settings = settings or Settings()
        self._clock = clock or Clock()
        self._seams = seams
        self._ids = ids
        self._connections: set[Connection] = set()
        self._counts = gauges.Counts(started=self._clock.unix())
        self.draining = False

    # -- connections -------------------------------------------------------------------------

    async def serve_connection(self, stream: trio.abc.Stream) -> None:
        """Exchange after exchange, until the peer leaves or the server drains."""
        connection = Connection(stream, self.settings.limits, self._clock)
        self._connections.add(connection)
        self._counts.connections += 1
        try:
            async with connection.opened():
                while await self._exchange(connection):
                    if self.draining:
                        connection.stop_when_idle()
        finally:
            self._connections.discard(connection)

    async def _exchange(self, connection: Connection) -> bool:
        """One request and its answer. False: no further one on this connection."""
        try:
            asked = await connection.read_request()
            if asked is None:
                return False
            connection.seams = self._seams(asked, connection.memory)
            await self._answer(asked, connection)
        except ApiError as error:
            self._counts.refused += 1
            await connection.send(connection.seams.refusal(error.answer()))
        return await connection.next_exchange()

    async def drain(self, grace: float) -> None:
        """Take nothing new; let streams run for `grace` seconds, then fail them in-band."""
        self.draining = True
        for connection in tuple(self._connections):
            connection.stop_when_idle()
        with trio.move_on_after(grace):
            while self.bridge.busy:
                await self._clock.sleep(0.05)
        self.bridge.fail_all("the server is shutting down", UNAVAILABLE)
        with trio.move_on_after(1):
            while self._connections:
                await self._clock.sleep(0.01)

    # -- routes ------------------------------------------------------------------------------

    async def _answer(self, asked: Request, connection: Connection) -> None:
        self._counts.requests += 1
        if asked.path.startswith("/v1/"):
            self._authorised(asked)
        if asked.path in _GENERATE:
            _allowed(asked, "POST")
            await self._generate(asked, connection)
        elif asked.path in _GET or asked.path == f"/v1/models/{self.settings.model}":
            _allowed(asked, "GET", "HEAD")
            await connection.send(self._get(asked.path))
        else:
            raise ApiError(404, f"no such route: {asked.path}", code="unknown_url")

    def _authorised(self, asked: Request) -> None:
        key = self.settings.api_key
        scheme, _, given = asked.headers.get("authorization", "").partition(" ")
        if key is None:
            return
        same = hmac.compare_digest(given.encode(), key.encode())
        if not same or scheme.lower() != "bearer":
            # RFC 9110, section 15.5.2: "The server generating a 401 response MUST send a
            # WWW-Authenticate header field".
            challenge = ((b"www-authenticate", b'Bearer realm="streamproof"'),)
            raise ApiError(401, "wrong API key", code="invalid_api_key", fields=challenge)

    def _get(self, path: str) -> Answer:
        model = self.settings.model
        if path == "/metrics":
            text = gauges.prometheus(model, self.bridge.gauges, self._counts)
            return Answer(200, text.encode(), b"text/plain; version=0.0.4; charset=utf-8")
        card = {
            "id": model,
            "object": "model",
            "created": int(self._counts.started),
            "owned_by": "streamproof",
            "max_model_len": self.settings.context,
        }
        if path == "/v1/models":
            return _document({"object": "list", "data": [card]})
        if path == "/stats":
            now = self._clock.unix()
            open_ = len(self._connections)
            return _document(gauges.stats(self.bridge.gauges, self._counts, open_, now))
        if path == "/health":
            word = "draining" if self.draining else "ok"
            return replace(_document({"status": word}), status=503 if self.draining else 200)
        return _document(card)

    # -- generation --------------------------------------------------------------------------

    async def _generate(self, asked: Request, connection: Connection) -> None:
        body = fields.parse(connection.seams.request(asked.body))
        ask = self._fitted(_GENERATE[asked.path](body))
        self._admitted()
        exchange = Exchange(
            ask,
            connection,
            self.bridge,
            connection.seams,
            self._ids(),
            created=int(self._clock.unix()),
            heartbeat=self.settings.heartbeat,
        )
        self._counts.streams += ask.stream
        await exchange.run()

    def _fitted(self, ask: Ask) -> Ask:
        """The model exists and the prompt leaves room; the limit is cut to the room there is."""
        if ask.model != self.settings.model:
            message = f"the model {ask.model!r} does not exist"
            raise ApiError(404, message, param="model", code="model_not_found")
        longest = max(self.bridge.engine.count_tokens(prompt) for prompt in ask.prompts)
        room = self.settings.context - longest
        if room <= 0:
            raise request.too_long(longest, self.settings.context, ask.api)
        limit = ask.sampling.max_tokens
        fitting = room if limit is None else min(limit, room)
        return replace(ask, sampling=replace(ask.sampling, max_tokens=fitting))

    def _admitted(self) -> None:
        retry = ((b"retry-after", b"1"),)
        if self.draining:
            raise ApiError(503, "the server is shutting down", fields=retry)
        most = self.settings.max_waiting
        if most is not None and self.bridge.gauges.waiting >= most:
            message = f"{most} requests are waiting already"
            raise ApiError(429, message, code="queue_full", fields=retry)


def _allowed(asked: Request, *methods: str) -> None:
    if asked.method not in methods:
        # RFC 9110, section 15.5.6: "The origin server MUST generate an Allow header field".
        allow = ((b"allow", ", ".join(methods).encode()),)
        message = f"{asked.method} is not allowed here"
        raise ApiError(405, message, code="method_not_allowed", fields=allow)


def _document(value: dict[str, object]) -> Answer:
    return Answer(200, sse_writer.dumps(value).encode())
