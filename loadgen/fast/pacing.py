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

import trio

# <sys/timerfd.h>, <time.h>
_MONOTONIC, _ABSOLUTE = 1, 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Timer(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Pacer:
    """One waiter at a time. A context manager."""

    def __init__(self) -> None:
        self._descriptor = _descriptor()

    def __enter__(self) -> Pacer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def is_exact(self) -> bool:
        """Is there a timerfd?"""
        return self._descriptor is not None

    async def sleep(self, seconds: float) -> None:
        """Returns at once, after a checkpoint, where the moment is over."""
        if self._descriptor is None or seconds <= 0:
            await trio.sleep(max(0.0, seconds))
            return
        _set(self._descriptor, time.monotonic() + seconds)
        await trio.lowlevel.wait_readable(self._descriptor)
        with suppress(BlockingIOError):
            os.read(self._descriptor, 8)


def _descriptor() -> int | None:
    """A timerfd of the monotonic clock, None where the system has none."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        create = ctypes.CDLL(None, use_errno=True).timerfd_create
    except (OSError, AttributeError):
        return None
    found = int(create(_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
    return found if found >= 0 else None


def _set(descriptor: int, moment: float) -> None:
    """Arm it for an absolute moment of the monotonic clock. Raises OSError."""
    whole = int(moment)
    timer = _Timer(_Timespec(0, 0), _Timespec(whole, int((moment - whole) * 1e9)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.timerfd_settime(descriptor, _ABSOLUTE, ctypes.byref(timer), None) != 0:
        raise OSError(ctypes.get_errno(), "timerfd_settime")
