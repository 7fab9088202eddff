"""The driver: renders asks for one endpoint, sends them through the recorder, keeps the roles."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from conformance.capture import Capture, Json
from conformance.dossier import Dossier
from conformance.recorder import Connection, Recorder
from conformance.scenarios.asks import Ask
from conformance.script import Bounds, Clocks, Exchange
from conformance.target import Endpoint, Target, request_bytes

# What a hostile server can make a run keep, for each of its one or two hundred exchanges.
BOUNDS = Bounds(body=2 * 1024 * 1024, event=1024 * 1024, reads=20_000)
LINGER = 0.25  # seconds; long enough for what a server writes by mistake after its last chunk


class Driver:
    """One per run of a scenario; `dossier` is everything it sent."""

    def __init__(
        self,
        recorder: Recorder,
        target: Target,
        endpoint: Endpoint,
        *,
        clocks: Clocks,
        secret_fields: tuple[tuple[str, str], ...] = (),
        empty: Dossier,
    ) -> None:
        self.endpoint = endpoint
        self._recorder, self._target = recorder, target
        self._clocks = clocks
        self._secret_fields = secret_fields
        self._empty = empty
        self._roles: dict[str, list[Capture]] = {}
        self.sent = 0
        self.tokens = 0

    async def send(
        self, ask: Ask, *, connection: Connection | None = None, linger: float = 0.0
    ) -> Capture:
        """One exchange; its capture is filed under the ask's role."""
        self.sent += 1
        self.tokens += ask.tokens
        script = self._script(ask, linger)
        if connection is None:
            capture = await self._recorder.exchange(script)
        else:
            capture = await connection.exchange(script)
        self._roles.setdefault(ask.role, []).append(capture)
        return capture

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A socket for several exchanges."""
        async with self._recorder.connection() as connection:
            yield connection

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
            picked=_merged(empty.picked, picked),
            dialect=empty.dialect,
            name=empty.name,
        )

    def _script(self, ask: Ask, linger: float) -> Exchange:
        accept = "text/event-stream" if ask.stream else "application/json"
        request = request_bytes(
            self._target,
            self.endpoint.path,
            ask.rendered(),
            secrets=self._secret_fields,
            accept=accept,
        )
        return Exchange(
            (request,),
            events=ask.stream,
            linger=linger,
            clocks=self._clocks,
            bounds=BOUNDS,
            url=f"{self._target.url.scheme}://{self._target.url.authority}{self.endpoint.path}",
        )


def _merged(first: Mapping[str, Json], second: Mapping[str, Json]) -> dict[str, Json]:
    return {**first, **second}
