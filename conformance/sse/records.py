"""What a reader of event streams hands out: events, and notes on what is odd about the bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

KEPT = 100  # anomalies of one kind that are kept; all are counted
EXCERPT = 64  # bytes
KINDS = (
    "invalid-utf8",  # a maximal ill-formed subpart, anywhere; it reads as one U+FFFD
    "bom",  # a byte-order mark at the start of the stream (removed) or of a line (kept)
    "mixed-endings",  # a line ends otherwise than the first line does
    "bare-cr",  # a line ends in a CR without a LF
    "empty-data-event",  # an event whose data is the empty string
    "dataless-block",  # a block with `event`, `id` or `retry` and no data line: no event
    "sticky-id",  # a blank line that closes no field, after a non-empty id: some clients dispatch
    "id-field", "retry-field", "event-field",  # one each line; `event` other than "message"
    "bad-retry",  # `retry` without a number: ignored
    "id-nul",  # an id with U+0000: ignored
    "unprefixed-line",  # no field name of any kind: text that every client drops
    "unknown-field",  # looks like a field, but the standard does not have it
    "multi-line-data",  # the second data line of a block
    "no-space",  # a data line without the customary space after the colon
    "raw-line-separator",  # U+0085, U+2028 or U+2029 in a data line: some clients split there
    "unterminated-event",  # fields were pending at the end: they are discarded
    "leading-noise",  # the first line that is not blank is an unprefixed one
    "event-too-long",  # a block grew over the reader's bound; the reader stopped there
)  # fmt: skip


class Event(NamedTuple):
    """One dispatched event.

    `type` is "message" where the block names none. `last_id` is the last event ID at dispatch.
    `retry` is the valid reconnection time (ms) that this block set. `offset` is the first byte of
    its block (comments included), at 1-based `line`. `end` is just after the byte that closed it:
    its blank line's LF or CR. A LF that completes a CRLF stands after `end`, because the line ends
    at the CR, whatever the next read brings. `data_offset` is where the first data value starts.
    """

    # A named tuple: building a frozen dataclass of ten fields takes longer than all the rest of
    # reading a small event.
    data: str
    type: str
    last_id: str
    retry: int | None
    ordinal: int
    offset: int
    end: int
    line: int
    data_lines: int
    data_offset: int


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One place where the stream is wrong, or right and a trap. `kind` is a member of KINDS.

    `event` is the ordinal of the event that the place belongs to, or of the next one. `excerpt`
    are the bytes from `offset`, at most EXCERPT: for `unterminated-event` and `event-too-long` as
    they came, for the others to the end of the line (or of the ill-formed subpart, the mark, the
    terminator) at most.
    """

    kind: str
    offset: int
    line: int
    event: int
    excerpt: bytes


class Place(NamedTuple):
    """Where something stands, between the rooms of this package."""

    offset: int
    line: int
    excerpt: bytes

    def within(self, start: int, excerpt: bytes) -> Place:
        """A place in the same line, `start` bytes further."""
        return Place(self.offset + start, self.line, excerpt)
