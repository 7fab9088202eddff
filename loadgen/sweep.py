"""The trials of `loadgen sweep`: each a load like that of `run`, stopped early where it is lost."""

from __future__ import annotations

from collections.abc import Callable

import trio

from loadgen.knee import Outcome, Search, Trial, is_saturated
from loadgen.play import Playing
from loadgen.result import Result
from loadgen.run_command import judged, perform
from loadgen.setup import Setup
from loadgen.slo import Judged, Met

LOOKS = 40  # at what is in flight, in one trial
HALF = LOOKS // 2  # before that nobody is stopped

Make = Callable[[float, int], Setup]  # rate and number of the trial → its setup


async def sweep(make: Make, search: Search, settle: float, tell: Callable[[Trial], None]) -> None:
    """Plays what the search asks for until it is over; an interruption leaves `search.rate`."""
    while (rate := search.rate) is not None:
        if search.told:
            await trio.sleep(settle)
        trial = await _trial(make(rate, len(search.told)), rate)
        if trial is None:
            return
        search.tell(trial)
        tell(trial)


async def _trial(setup: Setup, rate: float) -> Trial | None:
    """None where it was interrupted."""
    watched = _Watched(setup)
    ran = await perform(setup, watched.watch)
    result = judged(setup, ran)
    if watched.saturated:
        return Trial(rate, Outcome.SATURATED, f"{watched.last} requests in flight, and growing")
    return None if not result.complete else trial_of(result, rate)


def trial_of(result: Result, rate: float) -> Trial:
    """What a whole run says about its rate."""
    missed = [_said(each) for each in result.judged if each.met is Met.NO]
    if result.too_many:
        missed.append(f"{result.failed} failed, {result.allowed} allowed")
    limits = [doubt for doubt in result.doubts if doubt.is_of_client]
    if limits:
        return Trial(rate, Outcome.UNTOLD, f"{limits[0].reason}: {limits[0].detail}")
    if missed:
        return Trial(rate, Outcome.MISSED, ", ".join(missed))
    if any(each.met is Met.UNDECIDED for each in result.judged):
        few = next(d.detail for d in result.doubts if d.reason == "too_few_samples")
        return Trial(rate, Outcome.UNTOLD, few)
    return Trial(rate, Outcome.MET)


def _said(each: Judged) -> str:
    return f"{each.slo.text} (by times that are bounds)" if each.is_open else each.slo.text


class _Watched:
    """Looks at what is in flight, and stops a load that is lost."""

    def __init__(self, setup: Setup) -> None:
        seconds = getattr(setup.load, "seconds", None) or 1.0
        self._every = seconds / LOOKS
        self.saturated = False
        self.last = 0

    async def watch(self, player: Playing) -> None:
        seen: list[int] = []
        while len(seen) < LOOKS:
            await trio.sleep(self._every)
            seen.append(player.in_flight)
            if len(seen) >= HALF and is_saturated(seen):
                self.saturated, self.last = True, seen[-1]
                player.interrupt()
                return
