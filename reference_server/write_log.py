"""When each piece of an answer went to the kernel: for whoever measures a client on this machine.

One JSON line an answer: `{"id", "writes": [[part, before, after, bytes], …]}`. `id` is that of the
field x-request-id, null without one; times are seconds of the monotonic clock, which all processes
of a Linux machine share, right before the write and when it had returned.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from reference_server.seams import Act, Part, Seams

_ID = re.compile(rb"\r\nx-request-id: ([^\r\n]+)\r\n", re.IGNORECASE)


class Logged(Seams):
    """A clean answer, its writes on record."""

    def __init__(self, log: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._now = now
        self._id: str | None = None
        self._writes: list[tuple[str, float, float, int]] = []

    def frame(self, part: Part, raw: bytes) -> Iterable[bytes | Act]:
        if part is Part.HEAD and (found := _ID.search(raw)):
            self._id = found[1].decode("ascii", "replace")
        before = self._now()
        yield raw
        if raw:
            self._writes.append((part.value, before, self._now(), len(raw)))
        if part is Part.END:
            line = {"id": self._id, "writes": self._writes}
            print(json.dumps(line, separators=(",", ":")), file=self._log)


def logging_to(log: TextIO) -> Callable[[Any, Any], Seams]:
    """Seams for each request, as `Server` asks for them."""
    return lambda request, memory: Logged(log)
