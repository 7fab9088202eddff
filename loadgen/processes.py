"""Workers as processes of this machine.

Each is started anew, never forked, in a session of its own: Ctrl-C at a terminal is the parent's.
Whatever ends the parent ends the pipe, and with it the worker.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import IO

import trio

from loadgen.frames import FrameError, Unframer, framed
from loadgen.hands import Gone, Hand

READ = 1 << 16
TAIL = 200  # characters of what a dead worker left on stderr
DYING = 2.0  # seconds


@asynccontextmanager
async def processes(count: int) -> AsyncIterator[list[Hand]]:
    """So many; none is left afterwards."""
    hands: list[_Process] = []
    try:
        for _ in range(count):
            hands.append(await _started())
        yield list(hands)
    finally:
        with trio.CancelScope(shield=True):
            for hand in hands:
                hand.end()
            for hand in hands:
                await hand.buried()


async def _started() -> _Process:
    # -P and the parent's own path: not what else stands in the current folder.
    command = [sys.executable, "-P", "-m", "loadgen.worker"]
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    environment = {**os.environ, "PYTHONPATH": path}
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `buried`
    process = await trio.lowlevel.open_process(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=environment,
        start_new_session=True,
    )
    return _Process(process, errors)


class _Process:
    def __init__(self, process: trio.Process, errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors
        self._unframer = Unframer()
        self._frames: deque[bytes] = deque()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._process.stdin.send_all(framed(data))

    async def receive(self) -> bytes:
        assert self._process.stdout is not None
        while not self._frames:
            data = await self._process.stdout.receive_some(READ)
            if not data:
                raise Gone(await self._why())
            try:
                self._frames += self._unframer.feed(bytes(data))
            except FrameError as error:
                raise Gone(str(error)) from None
        return self._frames.popleft()

    async def _why(self) -> str:
        """It has closed its pipe, so it is dead or about to be."""
        with trio.move_on_after(DYING):
            await self._process.wait()
        code = self._process.returncode
        if code is None:
            return "it closed its pipe"
        if code < 0:
            known = -code in set(signal.Signals)
            return f"killed by {signal.Signals(-code).name if known else f'signal {-code}'}"
        return f"it ended with code {code}{self._last_words()}"

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").split("\n")
        told = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f": {told[:TAIL]}" if told else ""

    def end(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    async def buried(self) -> None:
        await self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                await trio.aclose_forcefully(pipe)
        self._errors.close()
