"""Waiting for an absolute moment to within some ten microseconds: a timerfd.

The event loop's own timeouts come in steps of a millisecond. Where there is no timerfd, trio.sleep
does.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from contextlib import suppress
from functools import cache

import trio

# <sys/timerfd.h>, <time.h>
_MONOTONIC, _ABSOLUTE = 1, 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Timer:
    """A timerfd of the monotonic clock, to be waited for by its number. Raises OSError."""

    def __init__(self) -> None:
        self._set = _libc().timerfd_settime
        self.number = int(_libc().timerfd_create(_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
        if self.number < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._setting = _Setting(_Timespec(0, 0), _Timespec(0, 0))
        self._at = ctypes.byref(self._setting)

    def set(self, moment: float, again: float = 0.0) -> None:
        """Arm it for an absolute moment of the monotonic clock, in place of an earlier one.

        `again`: seconds after which it rings from then on. A moment of 0.0 disarms it.
        """
        _put(self._setting.value, moment)
        _put(self._setting.interval, again)
        if self._set(self.number, _ABSOLUTE, self._at, None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def quiet(self) -> None:
        """It has rung, and has been heard; only then does it ring again."""
        with suppress(BlockingIOError):
            os.read(self.number, 8)

    def close(self) -> None:
        """Once."""
        os.close(self.number)


def _put(where: _Timespec, seconds: float) -> None:
    whole = int(seconds)
    where.seconds, where.nanoseconds = whole, int((seconds - whole) * 1e9)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


class Pacer:
    """One waiter at a time. A context manager."""

    def __init__(self) -> None:
        self._timer = timer()

    def __enter__(self) -> Pacer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.close()
            self._timer = None

    @property
    def is_exact(self) -> bool:
        """Is there a timerfd?"""
        return self._timer is not None

    async def sleep(self, seconds: float) -> None:
        """Returns at once, after a checkpoint, where the moment is over."""
        if self._timer is None or seconds <= 0:
            await trio.sleep(max(0.0, seconds))
            return
        self._timer.set(time.monotonic() + seconds)
        await trio.lowlevel.wait_readable(self._timer.number)
        self._timer.quiet()


def timer() -> Timer | None:
    """None where the system has none."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        return Timer()
    except (OSError, AttributeError):
        return None
