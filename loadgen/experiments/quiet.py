"""Between two loads: what one left behind is not to be held against the next."""

from __future__ import annotations

import trio

from conformance.recorder import Recorder
from loadgen.experiments.figures import Shot, level
from loadgen.outcome import Fate
from loadgen.scraping import scraper_of
from loadgen.setup import Setup

WITHIN = 10.0  # seconds
LOOK = 0.1


async def quiet(setup: Setup, shot: Shot) -> None:
    """Waits until the server's gauges show no more than when the load began, for a while at most.

    Only after a load on which somebody hung up.
    """
    served = shot.result.served
    levels = [level(sample) for sample in served.samples] if served is not None else []
    if not levels or levels[0] is None or all(r.fate is not Fate.LEFT for r in shot.result.rows):
        return
    recorder = Recorder(setup.door, secrets=setup.secrets)
    scraper = await scraper_of(setup, recorder, recorder.now)
    while scraper is not None and recorder.now() < WITHIN:
        await scraper.finish()
        now = level(scraper.samples[-1]) if scraper.samples else None
        if now is not None and now <= levels[0]:
            return
        await trio.sleep(LOOK)
