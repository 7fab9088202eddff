"""What became of a text under stop strings, beside the text without them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

# Characters of both texts, and of the stop strings: longer ones are compared, not explained.
_LONGEST, _LONGEST_STOPS = 1024, 256
_TOKEN = 16  # characters; longer tokens are rare
_TELLING = 4  # characters in which a text must go on as its control does


class Fate(Enum):
    """How the text relates to what its control promises."""

    EXACT = "exact"
    SHOWN = "shown"  # it ends with the whole stop string
    PASSED = "passed"  # the stop string and what follows it are there
    LEAKED = "leaked"  # it ends with a proper beginning of the stop string
    LOST = "lost"  # its end is missing
    WENT_ON = "went-on"  # the stop string was taken out and the text goes on
    DROPPED = "dropped"  # withheld text is missing where it proved harmless
    DOUBLED = "doubled"  # withheld text came twice
    DISORDERED = "disordered"  # all of it is there, in another order
    ELSEWHERE = "elsewhere"  # another text: nothing can be said


def cut_at(control: str, stops: Sequence[str]) -> tuple[int, int] | None:
    """[start, end) of the first stop string in the control's text."""
    found = [(control.find(stop), len(stop)) for stop in stops if stop in control]
    if not found:
        return None
    start, size = min(found)
    return start, start + size


def fate(control: str, text: str, stops: Sequence[str]) -> Fate:
    """What became of `text`, sent under these stop strings, where `control` came without them.

    "The returned text will not contain the stop sequence": it ought to be the control up to the
    first of them, and all of the control where none occurs in it.
    """
    cut = cut_at(control, stops)
    return _missed(control, text, stops) if cut is None else _cut(control, text, *cut)


def common(a: str, b: str) -> int:
    """Length of the common beginning."""
    both = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(both) if x != y), min(len(a), len(b)))


def _cut(control: str, text: str, start: int, end: int) -> Fate:
    same = common(control, text)
    ends_there = same == len(text)
    if same < start:
        return Fate.LOST if ends_there else Fate.ELSEWHERE
    if same >= end:
        return Fate.SHOWN if len(text) == end else Fate.PASSED
    if ends_there:
        return Fate.EXACT if same == start else Fate.LEAKED
    return Fate.WENT_ON if _goes_on(control[end:], text[start:]) else Fate.ELSEWHERE


def _goes_on(after: str, rest: str) -> bool:
    same = common(after, rest)
    return same >= _TELLING and same >= min(len(after), len(rest))


def _missed(control: str, text: str, stops: Sequence[str]) -> Fate:
    if text == control:
        return Fate.EXACT
    if control.startswith(text) and len(control) - len(text) <= _withheld(control, stops):
        return Fate.LOST
    if len(control) + len(text) > _LONGEST or sum(map(len, stops)) > _LONGEST_STOPS:
        return Fate.ELSEWHERE
    if _is_edited(control, text, stops):
        return Fate.DROPPED
    if _is_edited(text, control, stops, doubled=True):
        return Fate.DOUBLED
    return Fate.DISORDERED if sorted(text) == sorted(control) else Fate.ELSEWHERE


def _withheld(control: str, stops: Sequence[str]) -> int:
    """The most characters of the end that can have been withheld: a stop string's beginning, and
    what came in one token with its first character."""
    heads = (size for s in stops for size in range(1, len(s)) if control.endswith(s[:size]))
    return max(heads, default=-_TOKEN) + _TOKEN


def _is_edited(whole: str, part: str, stops: Sequence[str], *, doubled: bool = False) -> bool:
    """Is `part` the `whole` without some pieces, each of them the beginning of a stop string?

    Only what begins like a stop string is ever withheld, so nothing else can get lost with it, nor,
    `doubled`, come again directly behind itself.
    """
    heads = {stop[:size] for stop in stops for size in range(1, len(stop))}
    sizes = sorted({len(head) for head in heads})
    open_, seen = [(0, 0)], {(0, 0)}
    while open_:
        i, j = open_.pop()
        if i == len(whole):
            if j == len(part):
                return True
            continue
        following = [(i + 1, j + 1)] if j < len(part) and whole[i] == part[j] else []
        for size in sizes:
            piece = whole[i : i + size]
            again = not doubled or whole[max(0, i - size) : i] == piece
            if len(piece) == size and piece in heads and again:
                following.append((i + size, j))
        new = [state for state in following if state not in seen]
        seen.update(new)
        open_ += new
    return False
