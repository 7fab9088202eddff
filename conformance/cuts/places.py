"""Where a text can be cut: stop strings chosen out of the deltas that a server itself sent."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

# Follows a piece of text in a near miss: no model writes it, so the stop string never stands there.
IMPOSSIBLE = "\u241e\u241f"
LEAST_BEFORE = 8  # characters that must remain, or the prefix proves nothing
LEAST_AFTER = 4  # characters that must follow, or a stop string that is passed over does not show
SIZES = range(4, 13)  # characters of a stop string
FAR = 400  # characters; places are looked for before this
NEAR = 8  # characters of a near miss that are really there
_FIRST_AT_MOST = 24


@dataclass(frozen=True, slots=True)
class Place:
    """A stop string [start, end) and how hard a server finds it."""

    start: int
    end: int
    spans: int  # deltas that it touches
    middle: bool  # it begins and ends in the middle of a delta
    overlaps: bool  # the character before it is its own first: a match begun there must fall back
    wide: bool  # it holds characters of several bytes

    @property
    def score(self) -> tuple[bool, ...]:
        return self.spans >= 3, self.middle, self.overlaps


def place_at(pieces: Sequence[str], start: int, end: int) -> Place:
    """What is special about this stretch of the text that the pieces join to."""
    return _place("".join(pieces), _edges(pieces), start, end)


def _edges(pieces: Sequence[str]) -> list[int]:
    """Where deltas begin, and the end."""
    return sorted({0, *accumulate(map(len, pieces))})


def _place(text: str, edges: list[int], start: int, end: int) -> Place:
    first, last = bisect_right(edges, start), bisect_left(edges, end)
    middle = edges[first - 1] != start and edges[min(last, len(edges) - 1)] != end
    overlaps = 0 < start < len(text) and text[start - 1] == text[start]
    return Place(start, end, 1 + last - first, middle, overlaps, not text[start:end].isascii())


def hardest(pieces: Sequence[str], *, wide: bool = False) -> Place | None:
    """The best place for one stop string; None: the text has none.

    The string stands nowhere before it, and neither at the very beginning nor at the end. Best:
    over three deltas, from the middle of one to the middle of another, and where a match begun too
    early has to fall back; past the first third where that is possible. `wide`: it must hold
    characters of several bytes.
    """
    text = "".join(pieces)
    edges = _edges(pieces)
    found = [_place(text, edges, *span) for span in _spans(text)]
    fitting = [place for place in found if place.wide] if wide else found
    third = len(text) // 3
    return max(fitting, key=lambda p: (p.score, p.start >= third, -p.start), default=None)


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """First occurrences, of each size, that can be sent and do not begin or end in a space."""
    for start in range(LEAST_BEFORE, min(FAR, len(text) - LEAST_AFTER)):
        for size in SIZES:
            stop = text[start : start + size]
            fits = start + size <= len(text) - LEAST_AFTER
            if fits and stop == stop.strip() and text.find(stop) == start and sendable(stop):
                yield start, start + size


def sendable(text: str) -> bool:
    """Can this stand in a request: no half of a surrogate pair, no replacement character?"""
    return not any("\ud800" <= char <= "\udfff" or char == "\ufffd" for char in text)


def first(pieces: Sequence[str]) -> str | None:
    """The very first text: what the first deltas up to one with more than space in it bring."""
    text = ""
    for piece in pieces:
        text += piece
        if text.strip():
            return text if len(text) <= _FIRST_AT_MOST and sendable(text) else None
    return None


def white(text: str) -> str | None:
    """White space that stands in the text: behind something else if it can be, and of lines."""
    found = [(stop, text.find(stop)) for stop in ("\n\n", "\n", "\t", " ")]
    places = [(s, at) for s, at in found if 0 <= at <= len(text) - len(s) - LEAST_AFTER]
    behind_text = [stop for stop, at in places if text[:at].strip()]
    return next(iter([*behind_text, *(stop for stop, _ in places)]), None)


def several(pieces: Sequence[str]) -> tuple[str, ...]:
    """Stop strings of which one is the beginning of another, before and after it in the list.

    All begin where a delta begins; the first in the list stands further on in the text. The
    shortest decides. Empty: the text has no such place.
    """
    text = "".join(pieces)
    for start in accumulate(map(len, pieces)):
        if not LEAST_BEFORE <= start < FAR:
            continue
        for size in range(2, 8):
            short, long = text[start : start + size], text[start : start + size + 3]
            after = _later(text, start + size + 3)
            whole = text.find(short) == start and short == short.strip()
            if whole and after and long == long.rstrip() and sendable(long):
                return after, long[:-2], short, long
    return ()


def _later(text: str, begin: int) -> str | None:
    for start in range(begin + 1, min(begin + 60, len(text) - LEAST_AFTER)):
        stop = text[start : start + LEAST_AFTER]
        if stop == stop.strip() and sendable(stop) and text.find(stop) == start:
            return stop
    return None


def behind(text: str, end: int) -> str | None:
    """Letters that stand in the text for the first time behind `end`: a second stop string."""
    for start in range(end + 1, min(end + FAR, len(text) - 1)):
        stop = text[start : start + LEAST_AFTER]
        if stop.isascii() and stop.isalpha() and text.find(stop) == start:
            return stop
    return None


def near_misses(text: str) -> tuple[str, ...]:
    """A phrase of the middle, and the very end, each with an impossible suffix. Empty: too short.

    The end begins with a letter or digit, so that it looks like no symbol cut off.
    """
    middle, start = len(text) // 2, len(text) - NEAR
    while start > middle + NEAR and not text[start].isalnum():
        start -= 1
    phrase, tail = text[middle : middle + NEAR], text[start:]
    if start < middle + NEAR or not tail[0].isalnum() or not sendable(phrase + tail):
        return ()
    return phrase + IMPOSSIBLE, tail + IMPOSSIBLE
