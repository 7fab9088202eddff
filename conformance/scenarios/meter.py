"""The meter: scrapes the server's own metrics through the recorder, on the captures' clock."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from conformance.capture import Capture, How
from conformance.dossier import Sample
from conformance.metrics import Map, Row, parse, values_from
from conformance.reading import read
from conformance.recorder import Connection, Recorder
from conformance.script import Bounds, Clocks, Exchange

INTERVAL = 0.1  # seconds from one scrape to the next
TOO_SLOW = 0.5  # seconds: what took longer says too little about when
MOST = 600  # scrapes of one scenario
CLOCKS = Clocks(connect=1, first_byte=2, progress=2, total=3)
BOUNDS = Bounds(body=8 * 1024 * 1024)


@dataclass(slots=True)
class Meter:
    """`request`: the bytes of one scrape. `known` None: whichever server's names are found."""

    recorder: Recorder
    request: bytes
    known: Map | None = None

    async def look(self) -> tuple[Row, ...]:
        """The rows of one scrape; empty if there is no such page."""
        async with self.recorder.connection() as connection:
            return _rows(await self._scrape(connection))

    async def watch(self, samples: list[Sample]) -> None:
        """A sample each INTERVAL until cancelled; scrapes that fail or take long give none."""
        left = MOST
        while left:
            async with self.recorder.connection() as connection:
                while left:
                    left -= 1
                    capture = await self._scrape(connection)
                    if (sample := self._sample(capture)) is not None:
                        samples.append(sample)
                    await trio.sleep(INTERVAL)
                    if not connection.usable:
                        break

    async def _scrape(self, connection: Connection) -> Capture:
        script = Exchange((self.request,), method="GET", clocks=CLOCKS, bounds=BOUNDS)
        return await connection.exchange(script)

    def _sample(self, capture: Capture) -> Sample | None:
        end, sent = capture.end, capture.sent_at
        if end.how is not How.FRAMED and end.how is not How.CLOSED:
            return None
        if end.at is None or sent is None or end.at - sent > TOO_SLOW or self.known is None:
            return None
        values = values_from(_rows(capture), self.known)
        return Sample(end.at, values) if values else None


def _rows(capture: Capture) -> tuple[Row, ...]:
    reading = read(capture)
    if reading.status != 200:
        return ()
    return parse(reading.body.decode("utf-8", "replace"))
