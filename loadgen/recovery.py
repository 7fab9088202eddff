"""After clients that left or read slowly: is the server as it was before? Asked of itself, by its
gauges, and by contrast: the same small requests, alone, before the load and after it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import trio

from conformance.metering import meter_of, path_beside
from conformance.metrics import values_from
from conformance.recorder import Recorder
from conformance.scenarios.meter import Meter
from conformance.script import Exchange
from loadgen.lengths import Length
from loadgen.measure import row_from
from loadgen.played import Played
from loadgen.preflight import Endpoint
from loadgen.recovered import Recovery
from loadgen.setup import Setup
from loadgen.workload import Workload

GAUGES = ("running", "waiting")
WITHIN = 10.0  # seconds that the gauges may take
LOOK = 0.1
PROBES = 3
ASKED = (Length("fixed", 32), Length("fixed", 16))  # words of a probe's prompt and its max_tokens


@dataclass(slots=True)
class Check:
    """One server before and after. `prepare` before the load, `recovered` after it."""

    recorder: Recorder
    script: Callable[[Workload, int], Exchange]
    workload: Workload
    meter: Meter | None = None
    gauges: Mapping[str, float] | None = None
    probe: float | None = None

    async def prepare(self) -> None:
        await self._probed("warm")  # whatever a first request costs
        self.probe = await self._probed("before")
        self.gauges = await self._look()

    async def recovered(self) -> Recovery:
        """Waits for the gauges for at most WITHIN seconds."""
        start, took = self.recorder.now(), None
        after = await self._look()
        while self.gauges is not None and self.recorder.now() - start < WITHIN:
            if after is not None and _back(self.gauges, after):
                took = self.recorder.now() - start
                break
            await trio.sleep(LOOK)
            after = await self._look()
        probe = await self._probed("after")
        return Recovery(self.gauges, after, took, WITHIN, self.probe, probe)

    async def _look(self) -> Mapping[str, float] | None:
        if self.meter is None or self.meter.known is None:
            return None
        values = values_from(await self.meter.look(), self.meter.known)
        return {name: values[name] for name in GAUGES if name in values} or None

    async def _probed(self, when: str) -> float | None:
        """Median seconds from sending to the last event; None where not all were answered."""
        asked = replace(self.workload, seed=f"{self.workload.seed}:{when}")
        took = []
        for index in range(PROBES):
            capture = await self.recorder.exchange(self.script(asked, index))
            row = row_from(Played(index, 0.0, 0.0, capture), asked.ask(index), asked.api)
            if not row.success or row.last_event is None or row.sent is None:
                return None
            took.append(row.last_event - row.sent)
        return statistics.median(took)


def _back(before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    return all(after.get(name, 0.0) <= value for name, value in before.items())


async def check_of(
    setup: Setup, recorder: Recorder, endpoint: Endpoint, workload: Workload
) -> Check | None:
    """None where every client is an ordinary one."""
    if not workload.clients.groups:
        return None
    path = path_beside(setup.target.url)
    meter = await meter_of(recorder, setup.target, path, {}, setup.fields)
    small = workload.simple(*ASKED)
    check = Check(recorder, lambda asked, i: setup.script(endpoint, asked, i), small, meter)
    await check.prepare()
    return check
