"""The server: routes, admission, and one task for each connection over any trio stream.

`Server.seams` decides for each request what is broken on purpose; by default nothing is.
"""

from __future__ import annotations

import hmac
import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import trio

from reference_server.bridge import Bridge
from reference_server.bridge.ticket import UNAVAILABLE
from reference_server.clock import Clock
from reference_server.seams import CLEAN, Answer, Seams
from reference_server.wire import chat_request, fields, gauges, request, sse_writer, tokens
from reference_server.wire.connection import Connection, Request
from reference_server.wire.errors import ApiError
from reference_server.wire.exchange import Exchange
from reference_server.wire.fitting import fitted
from reference_server.wire.limits import Bodies, Limits

_GENERATE = {"/v1/chat/completions": chat_request.chat, "/v1/completions": request.completions}
_TOKENS = {"/tokenize": tokens.tokenize, "/detokenize": tokens.detokenize}
_GET = ("/v1/models", "/health", "/stats", "/metrics")
_SHOWN = 16  # streams of which /stats tells what they hold
_LONG = 16 * 1024  # characters: counting the tokens of more is left to a thread


@dataclass(frozen=True, slots=True)
class Settings:
    """`context` in tokens (None: the engine's); `max_waiting` in requests; the others in seconds.

    `start_within`: a request that is not expected to start by then is refused at once; one that
    was, and does not, is given up.
    """

    model: str = "scripted"
    context: int | None = None
    max_waiting: int | None = None
    start_within: float | None = None
    heartbeat: float | None = None
    api_key: str | None = None
    limits: Limits = field(default_factory=Limits)


Made = TypeVar("Made")
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
        self._bodies = Bodies(self.settings.limits.bodies)
        self._long = trio.CapacityLimiter(1)  # one long text after the other: the engine computes
        self.draining = False

    # -- connections -------------------------------------------------------------------------

    async def serve_connection(self, stream: trio.abc.Stream) -> None:
        """Exchange after exchange, until the peer leaves or the server drains."""
        connection = Connection(stream, self.settings.limits, self._clock, self._bodies)
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
        if asked.path.startswith("/v1/") or asked.path in _TOKENS:
            self._authorised(asked, connection.seams)
        if asked.path in _GENERATE:
            _allowed(asked, "POST")
            await self._generate(asked, connection)
        elif asked.path in _TOKENS:
            _allowed(asked, "POST")
            body = fields.parse(asked.body)
            spell = partial(_TOKENS[asked.path], self.bridge.engine, body)
            made = await self._aside(len(asked.body), spell)
            await connection.send(_document(made))
        elif asked.path in _GET or asked.path == f"/v1/models/{self.settings.model}":
            _allowed(asked, "GET", "HEAD")
            await connection.send(self._get(asked.path))
        else:
            raise ApiError(404, f"no such route: {asked.path}", code="unknown_url")

    def _authorised(self, asked: Request, seams: Seams) -> None:
        key = self.settings.api_key
        scheme, _, given = asked.headers.get("authorization", "").partition(" ")
        if key is None:
            return
        same = hmac.compare_digest(given.encode(), key.encode())
        if not seams.authorised(same and scheme.lower() == "bearer"):
            # RFC 9110, section 15.5.2: "The server generating a 401 response MUST send a
            # WWW-Authenticate header field".
            challenge = ((b"www-authenticate", b'Bearer realm="streamproof"'),)
            raise ApiError(401, "wrong API key", code="invalid_api_key", fields=challenge)

    def _get(self, path: str) -> Answer:
        model = self.settings.model
        if path == "/metrics":
            text = gauges.prometheus(self._snapshot())
            return Answer(200, text.encode(), b"text/plain; version=0.0.4; charset=utf-8")
        card = {
            "id": model,
            "object": "model",
            "created": int(self._counts.started),
            "owned_by": "streamproof",
            "max_model_len": self.context,
        }
        if path == "/v1/models":
            return _document({"object": "list", "data": [card]})
        if path == "/stats":
            return _document(gauges.stats(self._snapshot(), self._clock.unix()))
        if path == "/health":
            word = "draining" if self.draining else "ok"
            return replace(_document({"status": word}), status=503 if self.draining else 200)
        return _document(card)

    def _snapshot(self) -> gauges.Snapshot:
        bridge = self.bridge
        return gauges.Snapshot(
            model=self.settings.model,
            engine=bridge.gauges,
            counts=self._counts,
            books=bridge.books,
            meter=bridge.meter,
            late_events=bridge.late_events,
            connections_open=len(self._connections),
            body_bytes=self._bodies.held,
            slow_client=bridge.slow.name,
            shares=bridge.shares(_SHOWN),
        )

    # -- generation --------------------------------------------------------------------------

    async def _generate(self, asked: Request, connection: Connection) -> None:
        body = fields.parse(connection.seams.request(asked.body))
        ask = _GENERATE[asked.path](body)
        self._known(ask.model)
        fit = partial(fitted, self.bridge.engine, ask, self.context)
        ask = await self._aside(len(asked.body), fit)
        self._admitted()
        exchange = Exchange(
            ask,
            connection,
            self.bridge,
            connection.seams,
            self._ids(),
            created=int(self._clock.unix()),
            heartbeat=self.settings.heartbeat,
            start_within=self.settings.start_within,
        )
        self._counts.streams += ask.stream
        await exchange.run()

    async def _aside(self, size: int, call: Callable[[], Made]) -> Made:
        """A call that takes long for much text: then other connections need not wait for it.

        Not on the scripted engine's virtual clock, which knows no threads.
        """
        if self.bridge.threaded and size > _LONG:
            return await trio.to_thread.run_sync(call, limiter=self._long)
        return call()

    @property
    def context(self) -> int:
        """The most tokens of a prompt and its answer together."""
        most = self.bridge.engine.context
        return most if self.settings.context is None else min(most, self.settings.context)

    def _known(self, model: str) -> None:
        if model != self.settings.model:
            message = f"the model {model!r} does not exist"
            raise ApiError(404, message, param="model", code="model_not_found")

    def _admitted(self) -> None:
        if self.draining:
            raise ApiError(503, "the server is shutting down", fields=_retry(1))
        most = self.settings.max_waiting
        if most is not None and self.bridge.waiting >= most:
            message = f"{most} requests are waiting already"
            raise ApiError(429, message, code="queue_full", fields=_retry(1))
        soon, expected = self.settings.start_within, self.bridge.wait_expected()
        if soon is not None and expected > soon:
            message = f"the request would start in about {expected:.1f} s, later than {soon:g} s"
            raise ApiError(429, message, code="queue_full", fields=_retry(expected - soon))


def _retry(seconds: float) -> tuple[tuple[bytes, bytes], ...]:
    """RFC 9110, section 10.2.3: whole seconds."""
    return ((b"retry-after", b"%d" % max(1, math.ceil(seconds))),)


def _allowed(asked: Request, *methods: str) -> None:
    if asked.method not in methods:
        # RFC 9110, section 15.5.6: "The origin server MUST generate an Allow header field".
        allow = ((b"allow", ", ".join(methods).encode()),)
        message = f"{asked.method} is not allowed here"
        raise ApiError(405, message, code="method_not_allowed", fields=allow)


def _document(value: dict[str, object]) -> Answer:
    return Answer(200, sse_writer.dumps(value).encode())
