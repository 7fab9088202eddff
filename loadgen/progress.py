"""The live line of a run, on a terminal."""

from __future__ import annotations

import sys
from typing import TextIO

import trio

from loadgen.load import Closed, Open
from loadgen.play import Playing

EVERY = 0.5  # seconds
CLEAR = "\r\x1b[K"


def line(seconds: float, whole: float | None, sent: int, most: int | None, in_flight: int) -> str:
    """`whole`: how many seconds the load takes, `most`: how many requests; None: not said."""
    time = f"{seconds:.0f} s" if whole is None else f"{seconds:.0f} of {whole:.0f} s"
    count = f"{sent} sent" if most is None else f"{sent} of {most} sent"
    return f"{time} · {count} · {sent - in_flight} ended · {in_flight} in flight"


async def show(
    player: Playing, load: Open | Closed, file: TextIO = sys.stderr, a_unit: int = 1
) -> None:
    """Until cancelled; the line is gone afterwards.

    `a_unit`: requests of a unit of the load at most; nobody knows how many of several will come.
    """
    start = trio.current_time()
    most = len(load.offsets) if isinstance(load, Open) else load.requests
    most = most if a_unit == 1 else None
    try:
        while True:
            seconds = trio.current_time() - start
            told = line(seconds, load.seconds, player.sent, most, player.in_flight)
            file.write(CLEAR + told)
            file.flush()
            await trio.sleep(EVERY)
    finally:
        file.write(CLEAR)
        file.flush()


def wanted(file: TextIO = sys.stderr) -> bool:
    """Only a person at a terminal reads it."""
    return file.isatty()
