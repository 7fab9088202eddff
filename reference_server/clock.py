"""The server's clock as an argument: trio's by default, so an autojump clock drives it in tests."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio


@dataclass(frozen=True, slots=True)
class Clock:
    """`now` and `sleep` in seconds of any origin; `unix` in seconds since 1970."""

    now: Callable[[], float] = trio.current_time
    sleep: Callable[[float], Awaitable[None]] = trio.sleep
    unix: Callable[[], float] = time.time
