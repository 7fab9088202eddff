"""Where a line is not UTF-8, in the terms of the Encoding standard's UTF-8 decoder.

That decoder emits one U+FFFD for each "maximal subpart" (Unicode 3.9, U+FFFD substitution): the
longest start of a well-formed sequence, or one byte. Python's "replace" decodes the same way; it
does not say where.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Unicode 3.9, table 3-7, row by row: the encoder's "lower boundary" and "upper boundary".
_WELL_FORMED = re.compile(
    rb"(?:[\x00-\x7f]"
    rb"|[\xc2-\xdf][\x80-\xbf]"
    rb"|\xe0[\xa0-\xbf][\x80-\xbf]"
    rb"|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    rb"|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]{2}"
    rb"|[\xf1-\xf3][\x80-\xbf]{3}"
    rb"|\xf4[\x80-\x8f][\x80-\xbf]{2})*+"  # possessive: nothing to go back to, no stack to grow
)
# The same rows cut short, for where no row fits; at last any byte.
_SUBPART = re.compile(
    rb"\xe0[\xa0-\xbf]"
    rb"|[\xe1-\xec\xee\xef][\x80-\xbf]"
    rb"|\xed[\x80-\x9f]"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]?"
    rb"|[\xf1-\xf3][\x80-\xbf]{1,2}"
    rb"|\xf4[\x80-\x8f][\x80-\xbf]?"
    rb"|[\x80-\xff]"
)


def ill_formed(line: bytes) -> Iterator[tuple[int, bytes]]:
    """Each subpart that reads as one U+FFFD: where it starts, and its bytes."""
    pos = _end(_WELL_FORMED, line, 0)
    while pos < len(line):
        end = _end(_SUBPART, line, pos)
        yield pos, line[pos:end]
        pos = _end(_WELL_FORMED, line, end)


def is_cut_character(subpart: bytes) -> bool:
    """Whether more bytes could have made an ill-formed subpart a character."""
    return 0xC2 <= subpart[0] <= 0xF4


def _end(pattern: re.Pattern[bytes], line: bytes, pos: int) -> int:
    found = pattern.match(line, pos)
    assert found is not None  # the patterns match everywhere that they are tried
    return found.end()
