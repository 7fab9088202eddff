"""Byte-level tokens of a text: the same text is always cut in the same places.

Short ASCII words stay whole, everything else is cut by a fixed pattern, so that characters of two
bytes and more regularly span tokens, as they do with real byte-level vocabularies.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache

_PIECE = re.compile(rb" ?[A-Za-z]+| ?[0-9]{1,3}| ?[^\sA-Za-z0-9]+|\s")
LONGEST = 7  # bytes: the longest token, an ASCII word with its space
_SIZES = (3, 2, 1, 4, 2, 3, 5, 1, 2, 4, 3, 1, 2, 6, 2, 1, 3)  # bytes


_REMEMBERED = 64 * 1024  # characters: longer texts are cut again each time


def cut(text: str) -> tuple[bytes, ...]:
    """Non-empty tokens that join to the UTF-8 of `text`."""
    return _cut_once(text) if len(text) <= _REMEMBERED else _cut(text)


@lru_cache(maxsize=64)
def _cut_once(text: str) -> tuple[bytes, ...]:
    return _cut(text)


def _cut(text: str) -> tuple[bytes, ...]:
    raw = text.encode()
    turn = zlib.crc32(raw)
    out: list[bytes] = []
    for piece in _PIECE.findall(raw):
        if len(piece) <= LONGEST and piece.isascii():
            out.append(piece)
            continue
        start = 0
        while start < len(piece):
            size = _SIZES[turn % len(_SIZES)]
            turn += 1
            out.append(piece[start : start + size])
            start += size
    return tuple(out)
