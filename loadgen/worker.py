"""`python -m loadgen.worker`: one worker of `--workers`. Its parent starts it; nobody else does.

The plan and the orders come on stdin, frames go out on stdout. At the end of stdin it stops.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress

import trio

from loadgen.frames import (
    Failed,
    Frame,
    FrameError,
    Order,
    Plan,
    Unframer,
    framed,
    packed,
    unpacked,
)
from loadgen.shard import run_shard

READ = 1 << 16


def main() -> None:
    inward, outward = os.dup(0), os.dup(1)
    # Whatever prints must not write among the frames.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's affair

    def emit(frame: Frame) -> None:
        _write(outward, framed(packed(frame)))

    unframer = Unframer()
    try:
        plan, *others = _first(inward, unframer)
        said = unpacked(plan)
    except FrameError as error:
        with suppress(OSError):
            emit(Failed(str(error)))
        return
    assert isinstance(said, Plan)
    run_shard(said, emit, lambda: _orders(inward, unframer, others), f"pid {os.getpid()}")


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _first(descriptor: int, unframer: Unframer) -> list[bytes]:
    """Waits for the first frame. Raises FrameError where none comes."""
    while True:
        data = os.read(descriptor, READ)
        if not data:
            raise FrameError("it was told nothing")
        if found := unframer.feed(data):
            return found


async def _orders(
    descriptor: int, unframer: Unframer, waiting: list[bytes]
) -> AsyncIterator[Order]:
    async with trio.lowlevel.FdStream(descriptor) as stream:
        while True:
            for each in waiting:
                order = unpacked(each)
                assert isinstance(order, Order)
                yield order
            data = await stream.receive_some(READ)
            if not data:
                return
            waiting = unframer.feed(bytes(data))


if __name__ == "__main__":
    main()
