"""The driver: renders asks for one endpoint, sends them through the recorder, keeps the roles."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import replace

import trio

from conformance.capture import Capture, Json
from conformance.dossier import Action, Dossier, Sample
from conformance.reading import read
from conformance.recorder import ANSWERED, Connection, Recorder
from conformance.scenarios.asks import Ask
from conformance.scenarios.meter import Meter
from conformance.script import Bounds, Clocks, Exchange, Leave, Slow
from conformance.target import Endpoint, Target, request_bytes, with_wrong_key

# What a hostile server can make a run keep, for each of its one or two hundred exchanges.
BOUNDS = Bounds(body=2 * 1024 * 1024, event=1024 * 1024, reads=20_000)
BODY_AT_LEAST = 256 * 1024  # for a refusal's page, a vendor's records, heartbeats
BYTES_A_TOKEN = 4096  # a chunk with log-probabilities of twenty alternatives stays below
LINGER = 0.25  # seconds; long enough for what a server writes by mistake after its last chunk


class Driver:
    """One per run of a scenario; `dossier` is everything it sent.

    `meter`: the server's own metrics, where it shows them. `memory` is one for all scenarios of an
    API: what one has measured about the endpoint and the next need not measure again. `answers`:
    request body → the answer to it, for those who want the same one.
    """

    def __init__(
        self,
        recorder: Recorder,
        target: Target,
        endpoint: Endpoint,
        *,
        clocks: Clocks,
        secret_fields: tuple[tuple[str, str], ...] = (),
        empty: Dossier,
        meter: Meter | None = None,
        memory: MutableMapping[str, Json] | None = None,
        answers: MutableMapping[bytes, Capture] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._recorder, self._target = recorder, target
        self._clocks = clocks
        self._secret_fields = secret_fields
        self._empty = empty
        self._roles: dict[str, list[Capture]] = {}
        self._actions: list[Action] = []
        self.meter = meter
        self.memory = {} if memory is None else memory
        self.answers = {} if answers is None else answers
        self._shared: dict[str, Json] = {}
        self.lacking: dict[str, str] = {}
        self.samples: list[Sample] = []
        self.sent = 0
        self.tokens = 0

    @property
    def parameters(self) -> Mapping[str, Json]:
        """The scenario's own, defaults filled in."""
        return self._empty.parameters

    @property
    def detached(self) -> bool:
        """Is a generation meant to go on without its client?"""
        return self._target.detached

    @property
    def roles(self) -> Mapping[str, list[Capture]]:
        """What was recorded so far."""
        return self._roles

    def now(self) -> float:
        """Seconds on the captures' clock."""
        return self._recorder.now()

    async def send(
        self,
        ask: Ask,
        *,
        connection: Connection | None = None,
        linger: float = 0.0,
        leave: Leave | None = None,
        slow: Slow | None = None,
        begun: trio.Event | None = None,
        file: bool = True,
    ) -> Capture:
        """One exchange; its capture is filed under the ask's role, or left to the caller.

        `begun` is set at the answer's first byte, or at the end if there is none.
        """
        begun = trio.Event() if begun is None else begun
        self.sent += 1
        self.tokens += ask.tokens
        script = replace(self._script(ask, linger), leave=leave, slow=slow)

        def note(at: float, what: str) -> None:
            if what == ANSWERED:
                begun.set()
            else:
                self._actions.append(Action(at, what, ask.role))

        if connection is None:
            capture = await self._recorder.exchange(script, note)
        else:
            capture = await connection.exchange(script, note)
        if file:
            self.file(ask.role, capture)
        begun.set()
        return capture

    def file(self, role: str, capture: Capture) -> None:
        """Keep a capture under this role."""
        self._roles.setdefault(role, []).append(capture)

    def lacks(self, capability: str, said: str) -> None:
        """The endpoint refused this, and said so; for the scenarios to come as well."""
        self.lacking[capability] = said
        unsupported = {**self.endpoint.unsupported, capability: said}
        self.endpoint = replace(self.endpoint, unsupported=unsupported)

    async def shared(self, ask: Ask) -> Capture:
        """The answer that the API's scenarios have in common; sent if there is none yet."""
        known = self.answers.get(ask.rendered())
        if known is None:
            capture = await self.send(ask)
            self.share(ask, capture)
            return capture
        self.adopt(ask.role, known)
        return known

    def adopt(self, role: str, capture: Capture) -> None:
        """File what another dossier of the run holds as well; before any of the role's own."""
        self.file(role, capture)
        count = self._shared.get(role)
        self._shared[role] = 1 + (count if isinstance(count, int) else 0)

    def share(self, ask: Ask, capture: Capture) -> None:
        """Let others have this answer, whatever is wrong with it, unless there is none."""
        status = read(capture, api=self.endpoint.api).status
        if status is not None and 200 <= status < 300:
            self.answers[ask.rendered()] = capture

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A socket for several exchanges."""
        async with self._recorder.connection() as connection:
            yield connection

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Inside, the meter's samples come in; nothing happens where there is none."""
        async with trio.open_nursery() as nursery:
            if self.meter is not None:
                nursery.start_soon(self.meter.watch, self.samples)
            yield
            nursery.cancel_scope.cancel()

    def dossier(self, **picked: Json) -> Dossier:
        """What was recorded so far, with values that were chosen on the way."""
        empty = self._empty
        return Dossier(
            scenario=empty.scenario,
            roles={role: tuple(captures) for role, captures in self._roles.items()},
            api=empty.api,
            parameters=empty.parameters,
            seed=empty.seed,
            trial=empty.trial,
            picked={**empty.picked, **({"shared": self._shared} if self._shared else {}), **picked},
            samples=tuple(self.samples),
            actions=tuple(self._actions),
            dialect=empty.dialect,
            name=empty.name,
        )

    def _script(self, ask: Ask, linger: float) -> Exchange:
        accept = "text/event-stream" if ask.stream else "application/json"
        target, secrets = self._target, self._secret_fields
        if ask.wrong_key:
            target, secrets = with_wrong_key(target, secrets)
        path, body = self.endpoint.path, ask.rendered()
        request = request_bytes(target, path, body, secrets=secrets, accept=accept)
        return Exchange(
            (request,),
            events=ask.stream,
            linger=linger,
            clocks=self._clocks,
            bounds=replace(BOUNDS, body=_most(ask)),
            url=f"{self._target.url.scheme}://{self._target.url.authority}{self.endpoint.path}",
        )


def _most(ask: Ask) -> int:
    """Far more bytes than the answer can need, so that endless ones cost little memory."""
    return min(BODY_AT_LEAST + BYTES_A_TOKEN * ask.tokens, BOUNDS.body)
