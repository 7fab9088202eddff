"""How a chunk of a body begins and ends: RFC 9112 section 7.1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from .message import TOKEN

_QUOTED: Final = rb'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t \x21-\x7e\x80-\xff])*+"'
# 7.1.1: chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )
_CHUNK_EXT: Final = (
    rb"(?:[ \t]*+;[ \t]*+" + TOKEN + rb"(?:[ \t]*+=[ \t]*+(?:" + TOKEN + rb"|" + _QUOTED + rb"))?)"
)
CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]++)" + _CHUNK_EXT + rb"*+")
# Padded sizes and senseless extensions still tell where the chunk ends.
CHUNK_LIKE: Final = re.compile(rb"[ \t]*+([0-9A-Fa-f]++)(?=[ \t;]|$)")
_BARE_SIZE: Final = re.compile(rb"[0-9A-Fa-f]+")


def whole_chunks(data: bytes, pos: int, longest: int) -> Iterator[tuple[int, int]]:
    """Start and end of the data of each chunk from `pos` that is all there and as plain as can be:
    a bare size in a line of at most `longest` bytes, and CRLF after both. The last chunk is none.
    """
    longest = min(longest, 10)
    while True:
        cut = data.find(b"\r\n", pos, pos + longest)
        digits = data[pos:cut]
        if cut < 0 or not _BARE_SIZE.fullmatch(digits):
            return
        start = cut + 2
        end = start + int(digits, 16)
        pos = end + 2
        if end == start or data[end:pos] != b"\r\n":
            return
        yield start, end
