"""What goes on while a load is played, in this process or by workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import trio

from loadgen import progress
from loadgen.interrupting import Shelter
from loadgen.load import Closed, Open
from loadgen.play import Playing
from loadgen.scraping import Scraper

T = TypeVar("T")


async def meanwhile(
    play: Callable[[], Awaitable[T]],
    playing: Playing,
    load: Open | Closed,
    stride: int,
    scraper: Scraper | None,
    beside: Callable[[Playing], Awaitable[None]] | None,
    signals: Shelter,
) -> T:
    """What `play` returns. Signals interrupt it, progress is shown, metrics are scraped."""
    async with trio.open_nursery() as nursery:
        await nursery.start(signals.listen, playing.interrupt)
        if progress.wanted():
            show = partial(progress.show, a_unit=stride)
            nursery.start_soon(show, playing, load)
        if scraper is not None:
            nursery.start_soon(scraper.watch)
        if beside is not None:
            nursery.start_soon(beside, playing)
        played = await play()
        nursery.cancel_scope.cancel()
    return played
