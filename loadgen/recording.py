"""Who records a run, and by which clock: the fast recorder where it can, else conformance's own."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from conformance.capture import Json
from conformance.connect import Door
from conformance.errors import UsageError
from conformance.masking import Secret
from conformance.recorder import Recorder
from loadgen.fast import (
    FastRecorder,
    Pacer,
    reason_against,
    reason_against_packets,
    stamps_work,
)
from loadgen.lines import Records

KERNEL, USER, PACKET = "kernel", "user", "packet"
CLOCKS = (USER, KERNEL, PACKET)
Sleep = Callable[[float], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Recording:
    """`sleep`: how the schedule is waited for; `watch`: for one more who waits in that way.

    `described`: what the report says, at the end.
    """

    recorder: Records
    sleep: Sleep
    watch: Sleep
    described: Callable[[], dict[str, Json]]


def settle(wanted: str | None, door: Door) -> tuple[str, str | None]:
    """The clock, and why it is not the kernel's where nobody said so. Raises UsageError."""
    if wanted == USER:
        return USER, None
    against = reason_against(door)
    if against is None and not stamps_work():
        against = "this system gives no receive stamps"
    if wanted in (KERNEL, PACKET) and against is not None:
        raise UsageError(f"--clock {wanted}: {against}; use --clock user")
    if wanted == PACKET:
        _may_see_packets(door)
        return PACKET, None
    return (KERNEL, None) if against is None else (USER, against)


def _may_see_packets(door: Door) -> None:
    against = "TLS hides what a packet brings" if door.tls else reason_against_packets()
    if against is not None:
        raise UsageError(f"--clock packet: {against}; use --clock kernel")


@asynccontextmanager
async def recording(
    door: Door, wanted: str | None, secrets: Iterable[Secret], *, paced: bool = True
) -> AsyncIterator[Recording]:
    """`wanted`: a member of CLOCKS, None for the best there is. `paced`: by a timerfd; without,
    by the event loop's clock, which a test may have replaced. Raises UsageError.
    """
    clock, why = settle(wanted, door)
    about: dict[str, Json] = {"clock": clock, "clock_because": why}
    with Pacer() as pacer, Pacer() as watch:
        exact = paced and pacer.is_exact and watch.is_exact
        about["pacing"] = "timerfd" if exact else "event loop"
        waits = (pacer.sleep, watch.sleep) if exact else (trio.sleep, trio.sleep)
        if clock == USER:
            about["recorder"] = "plain"
            yield Recording(Recorder(door, secrets=secrets), *waits, lambda: about)
            return
        about["recorder"] = "fast"
        fast = FastRecorder(door, packet=clock == PACKET, clock=time.monotonic, secrets=secrets)
        async with fast.open():
            yield Recording(fast, *waits, lambda: {**about, **_stamping(fast)})


def _stamping(fast: FastRecorder) -> dict[str, Json]:
    """`clock_jumps`: real time stepped then, in seconds from the recorder's making, and so far.

    `read_delay`: for how many seconds bytes lay before they were read, of what was read after
    pauses; `pause` is the longest that one may be. `packets`: how many were not seen, and how many
    exchanges for that reason have the kernel's stamps in place of arrivals.
    """
    jumps: list[Json] = [] if fast.stamps is None else [list(jump) for jump in fast.stamps.jumps]
    return {
        "clock_jumps": jumps,
        "unstamped_reads": fast.engine.unstamped,
        "read_delay": {**fast.engine.delay},
        "packets": fast.packets_told,
    }
