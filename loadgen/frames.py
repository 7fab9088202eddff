"""What a worker and its parent say to each other: plain records, each with a version. Pure.

    parent → worker    Plan, Go, then Stop, Tell and Hurry as needed; the end of the pipe: all over
    worker → parent    Ready, Began, a Snapshot each second, Over, Rows …, Done; or Failed

All are pickled. Times of rows are seconds from the worker's own start of the load, on its own
clock; only moments of a clock that both read (`clock_id`) are ever compared.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from conformance.capture import Json
from conformance.errors import StreamproofError
from loadgen.looking import Look
from loadgen.preflight import Endpoint
from loadgen.setup import Setup
from loadgen.versions import version

PROTOCOL = 2
FRAME_AT_MOST = 1 << 30  # bytes
_LENGTH = 8  # bytes before a frame on a pipe


class FrameError(StreamproofError):
    """The other side speaks another version, or no version at all."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a worker needs. `setup.load` is its share, `setup.workload` knows its model.

    `tls`: the door wants it; made anew there, since a context cannot be sent.
    """

    number: int
    workers: int
    setup: Setup
    endpoint: Endpoint
    tls: bool = False


@dataclass(frozen=True, slots=True)
class Go:
    """Begin at `at` of the clock that is called `clock`; who has another, `lead` seconds from now.

    `clock` None: nobody has it.
    """

    at: float
    clock: str | None
    lead: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Send nothing more and leave what is under way."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Look at the answers and say what came of them."""


@dataclass(frozen=True, slots=True)
class Hurry:
    """Somebody waits: judge no more, only measure."""


Order: TypeAlias = Go | Stop | Tell | Hurry


@dataclass(frozen=True, slots=True)
class Ready:
    """`place`: where it runs, in words. `clock`: the name of its monotonic clock, if it has one."""

    place: str
    clock: str | None


@dataclass(frozen=True, slots=True)
class Began:
    """`at`: when its load begins, on its monotonic clock."""

    at: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """So far."""

    sent: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class Over:
    """The load was played. `seconds`: how long it was offered. `lags`: as in `play.Offered`."""

    seconds: float
    complete: bool
    lags: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Some of its requests, measured and judged."""

    looks: tuple[Look, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more will come. `described`: what a report says of the recorder."""

    unjudged: int
    described: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Failed:
    """It could not go on. `why` is one line."""

    why: str


Frame: TypeAlias = Ready | Began | Snapshot | Over | Rows | Done | Failed
Said: TypeAlias = Plan | Order | Frame


def packed(said: Said) -> bytes:
    """With the version before it, in plain text: it must be readable to any other."""
    return f"{_ours()}\n".encode() + pickle.dumps(said)


def unpacked(data: bytes) -> Said:
    """Only of processes that we started ourselves: a pickle is a program. Raises FrameError."""
    head, _, body = data.partition(b"\n")
    if head != _ours().encode():
        theirs = head[:40].decode("ascii", "replace")
        raise FrameError(f"it runs {theirs}, this is {_ours()}: every worker needs the same")
    said: Said = pickle.loads(body)
    return said


def _ours() -> str:
    python = ".".join(map(str, sys.version_info[:2]))
    return f"streamproof {version()} protocol {PROTOCOL} Python {python}"


def framed(data: bytes) -> bytes:
    """For a pipe: the length comes first."""
    return len(data).to_bytes(_LENGTH, "big") + data


class Unframer:
    """Bytes of a pipe, as they come → whole frames. Raises FrameError for a length that is none."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        self._waiting += data
        found = []
        while len(self._waiting) >= _LENGTH:
            length = int.from_bytes(self._waiting[:_LENGTH], "big")
            if length > FRAME_AT_MOST:
                raise FrameError(f"a frame of {length} bytes")
            if len(self._waiting) < _LENGTH + length:
                break
            found.append(bytes(self._waiting[_LENGTH : _LENGTH + length]))
            del self._waiting[: _LENGTH + length]
        return found


def clock_id() -> str | None:
    """Processes for which this is equal read one monotonic clock. None: nobody knows.

    CLOCK_MONOTONIC counts from the boot of the kernel, shifted by the time namespace (Linux,
    time_namespaces(7)).
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
    except OSError:
        return None
    try:
        return f"{boot} {os.readlink('/proc/self/ns/time')}"
    except OSError:  # a kernel without time namespaces
        return boot
