"""The server's own metrics during a load: one page a second, on the clock of the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from conformance.metering import meter_of, path_beside, same_server
from conformance.metrics import Row as Line
from conformance.metrics import detect, values_from
from conformance.recorder import Recorder
from conformance.scenarios.meter import Meter
from loadgen.server_metrics import FIRST_TOKEN, Histogram, Sample, Served, histogram_from
from loadgen.setup import AUTO, EVERY, NONE, Setup

MOST = 3600  # samples kept


@dataclass(slots=True)
class Scraper:
    """`now`: the rows' clock; `every`: seconds between looks. `finish` tells what came of it."""

    meter: Meter
    server: str
    now: Callable[[], float]
    first: tuple[Line, ...]
    every: float = EVERY
    samples: list[Sample] = field(default_factory=list)

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            await self._look()
            await trio.sleep(self.every)

    async def finish(self) -> Served:
        """One more look, once the load is over."""
        last = await self._look()
        tokens = [self._tokens(rows) for rows in (self.first, last)]
        before, after = tokens
        grew = None if after is None else after - (before or 0.0)
        return Served(
            self.server,
            tuple(self.samples),
            None if grew is None or grew < 0 else grew,
            self._first_token(last),
        )

    async def _look(self) -> tuple[Line, ...]:
        rows = await self.meter.look()
        values = values_from(rows, self.meter.known or {})
        if values and len(self.samples) < MOST:
            self.samples.append(Sample(self.now(), values))
        return rows

    def _tokens(self, rows: tuple[Line, ...]) -> float | None:
        return values_from(rows, self.meter.known or {}).get("generated_tokens")

    def _first_token(self, last: tuple[Line, ...]) -> Histogram | None:
        name = FIRST_TOKEN.get(self.server)
        after = histogram_from(last, name) if name else None
        return (
            None if after is None or name is None else after.since(histogram_from(self.first, name))
        )


async def scraper_of(setup: Setup, recorder: Recorder, now: Callable[[], float]) -> Scraper | None:
    """None where nobody wants them, or the page has no number that we know."""
    if setup.metrics == NONE:
        return None
    target, path, fields = setup.target, path_beside(setup.target.url), setup.fields
    if setup.metrics != AUTO and setup.metrics_target is not None:
        target, path = setup.metrics_target, setup.metrics_target.url.path
        recorder = recorder.beside(setup.metrics_door or setup.door)
        fields = fields if same_server(target.url, setup.target.url) else ()
    meter = await meter_of(recorder, target, path, {}, fields)
    if meter is None:
        return None
    first = await meter.look()
    return Scraper(meter, detect(first) or "unknown", now, first, setup.every)
