"""JSON of a file we were handed: parsed only if the result cannot take much memory."""

from __future__ import annotations

import json

from conformance.capture import Json

MOST_BYTES = 16 << 20
# A parsed value takes up to some 230 bytes (a dict of one member), and each needs one of these.
MOST_VALUES = 400_000
_OPENERS = b"{[,:"


class Unreadable:
    """The bytes were no JSON, or too much of it; `why` fits behind a file name."""

    def __init__(self, why: str) -> None:
        self.why = why


def parse(data: bytes) -> Json | Unreadable:
    """The value, or why there is none. UTF-8 only; never raises."""
    if len(data) > MOST_BYTES:
        return Unreadable(f"JSON of more than {MOST_BYTES >> 20} MiB")
    if sum(map(data.count, map(bytes, zip(_OPENERS)))) > MOST_VALUES:
        return Unreadable(f"JSON with more than {MOST_VALUES} values")
    try:
        value: Json = json.loads(data.decode("utf-8-sig"))
    except RecursionError:
        return Unreadable("JSON nested too deeply")
    except ValueError as error:  # also UnicodeDecodeError, and integers of thousands of digits
        return Unreadable(f"not JSON: {' '.join(str(error).split())[:120]}")
    return value
