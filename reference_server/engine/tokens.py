"""Byte-level tokens of a text: the same text is always cut in the same places.

Short ASCII words stay whole, everything else is cut by a fixed pattern, so that characters of two
bytes and more regularly span tokens, as they do with real byte-level vocabularies.
"""

from __future__ import annotations

import re
import zlib

_PIECE = re.compile(rb" ?[A-Za-z]+| ?[0-9]{1,3}| ?[^\sA-Za-z0-9]+|\s")
_WHOLE = 7  # the longest ASCII word, with its space, that is always one token
_SIZES = (3, 2, 1, 4, 2, 3, 5, 1, 2, 4, 3, 1, 2, 6, 2, 1, 3)  # bytes


def cut(text: str) -> list[bytes]:
    """Non-empty tokens that join to the UTF-8 of `text`."""
    raw = text.encode()
    turn = zlib.crc32(raw)
    out: list[bytes] = []
    for piece in _PIECE.findall(raw):
        if len(piece) <= _WHOLE and piece.isascii():
            out.append(piece)
            continue
        start = 0
        while start < len(piece):
            size = _SIZES[turn % len(_SIZES)]
            turn += 1
            out.append(piece[start : start + size])
            start += size
    return out
