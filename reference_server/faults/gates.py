"""Stop strings, done wrong: each class has one of the bugs that servers have had. Pure.

A gate takes text piece by piece and gives what it shows. `Gate` itself is right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence


class Gate:
    """Holds back what may become a stop string, cuts at the first one, releases the rest."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = tuple(stop for stop in stops if stop)
        self.stopped = False
        self.sent = ""  # every character that went through or was cut away
        self.held = ""

    def feed(self, piece: str) -> str:
        """What becomes certain with this piece."""
        if self.stopped:
            return ""
        before, self.held = self.held, self.held + piece
        found = self.found(piece)
        if found is not None:
            self.stopped = True
            return self.cut(*found)
        keep = max(0, min(self.kept(piece), len(self.held)))
        size = len(self.held) - keep
        out, self.held = self.held[:size], self.held[size:]
        self.sent += out
        return self.released(out, before)

    def close(self, limited: bool) -> str:
        """The rest, at the text's own end or at the limit."""
        out, self.held = self.held, ""
        return out

    # -- what the bugs change ------------------------------------------------------------------

    def found(self, piece: str) -> tuple[int, str] | None:
        """(place in the held text, stop string) of the earliest one."""
        hits = [(self.held.find(stop), stop) for stop in self.stops if stop in self.held]
        return min(hits, default=None)

    def kept(self, piece: str) -> int:
        """Characters at the end of the held text that may become a stop string."""
        sizes = (
            size
            for stop in self.stops
            for size in range(1, len(stop))
            if self.held.endswith(stop[:size])
        )
        return max(sizes, default=0)

    def cut(self, at: int, stop: str) -> str:
        """What is shown of the held text once a stop string stands in it."""
        return self.held[:at]

    def released(self, out: str, before: str) -> str:
        """What is shown of text that cannot become one any more; `before`: held until now."""
        return out


class NothingHeld(Gate):
    """Every piece goes out at once; what was sent cannot be taken back."""

    def found(self, piece: str) -> tuple[int, str] | None:
        whole = self.sent + self.held
        hits = [(whole.find(stop), stop) for stop in self.stops if stop in whole]
        return min(((at - len(self.sent), stop) for at, stop in hits), default=None)

    def kept(self, piece: str) -> int:
        return 0

    def cut(self, at: int, stop: str) -> str:
        return self.held[: max(0, at)]


class OnePieceHeld(NothingHeld):
    """Only the last piece is held back."""

    def kept(self, piece: str) -> int:
        return min(Gate.kept(self, piece), len(piece))


class OneCharacterHeld(NothingHeld):
    """A buffer of one character less than was needed."""

    def kept(self, piece: str) -> int:
        return min(1, Gate.kept(self, piece))


class WithinOnePiece(Gate):
    """Each piece is searched by itself."""

    def kept(self, piece: str) -> int:
        return 0


class Blind(Gate):
    """Nothing is ever found."""

    def __init__(self, stops: Sequence[str]) -> None:
        super().__init__(())


class AtStartOfPiece(Gate):
    """A stop string counts only where a piece begins, as if it were a list of tokens."""

    def __init__(self, stops: Sequence[str]) -> None:
        super().__init__(stops)
        self.starts: set[int] = set()

    def feed(self, piece: str) -> str:
        self.starts.add(len(self.sent) + len(self.held))
        return super().feed(piece)

    def found(self, piece: str) -> tuple[int, str] | None:
        hits = (
            (at, stop)
            for stop in self.stops
            for at in range(len(self.held))
            if self.held.startswith(stop, at) and len(self.sent) + at in self.starts
        )
        return min(hits, default=None)


class AtEndOfPiece(Gate):
    """A stop string counts only where a piece ends with it."""

    def found(self, piece: str) -> tuple[int, str] | None:
        hits = [(len(self.held) - len(s), s) for s in self.stops if self.held.endswith(s)]
        return min(hits, default=None)

    def kept(self, piece: str) -> int:
        return max(map(len, self.stops), default=0)


class NoFallback(Gate):
    """A match that fails begins anew with the next character, not with one already seen."""

    def found(self, piece: str) -> tuple[int, str] | None:
        hits = ((at, s) for s in self.stops if (at := _naive(self.held, s)) is not None)
        return min(hits, default=None)

    def kept(self, piece: str) -> int:
        return len(self.held)  # the whole text, so that it fails for one reason only


def _naive(text: str, stop: str) -> int | None:
    matched = 0
    for at, char in enumerate(text):
        matched = matched + 1 if char == stop[matched] else 0
        if matched == len(stop):
            return at + 1 - matched
    return None


class PieceDropped(Gate):
    """The whole piece in which the stop string begins is cut away with it."""

    def __init__(self, stops: Sequence[str]) -> None:
        super().__init__(stops)
        self.edges = [0]

    def feed(self, piece: str) -> str:
        self.edges.append(self.edges[-1] + len(piece))
        return super().feed(piece)

    def kept(self, piece: str) -> int:
        keep = Gate.kept(self, piece)
        return len(self.held) - self._begin(len(self.held) - keep) if keep else 0

    def cut(self, at: int, stop: str) -> str:
        return self.held[: self._begin(at)]

    def _begin(self, at: int) -> int:
        """Where in the held text the piece begins that holds this place."""
        place = len(self.sent) + at
        return max(0, max(edge for edge in self.edges if edge <= place) - len(self.sent))


class TooMuchCut(Gate):
    """Two characters before the stop string go with it."""

    def kept(self, piece: str) -> int:
        return Gate.kept(self, piece) + 2

    def cut(self, at: int, stop: str) -> str:
        return self.held[: max(0, at - 2)]


class TakenOut(Gate):
    """The stop string is taken out of the text, and the text goes on."""

    def feed(self, piece: str) -> str:
        out = super().feed(piece)
        if self.stopped:
            at, stop = self.found(piece) or (0, "")
            self.stopped, self.held = False, self.held[at + len(stop) :]
        return out


class CharactersOfString(Gate):
    """A string is taken for a list of its characters, as a loop over it does."""

    def __init__(self, stops: Sequence[str]) -> None:
        super().__init__([*stops[0]] if len(stops) == 1 else stops)


class OnlyFirst(Gate):
    """Of a list the first one counts."""

    def __init__(self, stops: Sequence[str]) -> None:
        super().__init__(stops[:1])


class OnlyOne(Gate):
    """Of a list none counts."""

    def __init__(self, stops: Sequence[str]) -> None:
        super().__init__(stops if len(stops) == 1 else ())


class LongestAwaited(NothingHeld):
    """With several stop strings nothing is held back; with one, all is right."""

    def kept(self, piece: str) -> int:
        return 0 if len(self.stops) > 1 else Gate.kept(self, piece)


class NotAtStart(Gate):
    """The very first text is never searched."""

    def found(self, piece: str) -> tuple[int, str] | None:
        if not self.sent and len(self.held) == len(piece):
            return None
        return super().found(piece)

    def kept(self, piece: str) -> int:
        return Gate.kept(self, piece) if self.sent else 0


class OnlyAscii(Gate):
    """Stop strings that are not ASCII are left out."""

    def __init__(self, stops: Sequence[str]) -> None:
        super().__init__([stop for stop in stops if stop.isascii()])


class Pattern(Gate):
    """Stop strings are taken for regular expressions, wherever they are such."""

    def __init__(self, stops: Sequence[str]) -> None:
        super().__init__(stops)
        self.longest = max(map(len, self.stops), default=0)

    def found(self, piece: str) -> tuple[int, str] | None:
        hits = [(m.start(), s) for s in self.stops if (m := _pattern(s).search(self.held))]
        return min(hits, default=None)

    def kept(self, piece: str) -> int:
        return self.longest


def _pattern(stop: str) -> re.Pattern[str]:
    try:
        return re.compile(stop)
    except re.error:
        return re.compile(re.escape(stop))


class AnyCase(Gate):
    """Letters count in either case. (ASCII alone is folded, so that no place moves.)"""

    def __init__(self, stops: Sequence[str]) -> None:
        super().__init__([_folded(stop) for stop in stops])

    def found(self, piece: str) -> tuple[int, str] | None:
        text = _folded(self.held)
        return min(((text.find(s), s) for s in self.stops if s in text), default=None)

    def kept(self, piece: str) -> int:
        return max(map(len, self.stops), default=0)


def _folded(text: str) -> str:
    return "".join(char.lower() if char.isascii() else char for char in text)


class Trimmed(Gate):
    """Stop strings of white space alone are empty once they are trimmed, and left out."""

    def __init__(self, stops: Sequence[str]) -> None:
        super().__init__([stop for stop in stops if stop.strip()])


class ByteOffsets(Gate):
    """The place is counted in bytes and used on characters."""

    def cut(self, at: int, stop: str) -> str:
        shift = len((self.sent + self.held[:at]).encode()) - len(self.sent) - at
        return self.held[: at + shift]


class LostAtEnd(Gate):
    """What is still held when the text ends by itself is forgotten."""

    def close(self, limited: bool) -> str:
        return super().close(limited) if limited else ""


class LostAtLimit(Gate):
    """What is still held when the limit is reached is forgotten."""

    def close(self, limited: bool) -> str:
        return "" if limited else super().close(limited)


class LostOnMiss(Gate):
    """What was held and proved harmless is dropped."""

    def released(self, out: str, before: str) -> str:
        return out[len(before) :]


class TwiceOnMiss(Gate):
    """What was held and proved harmless comes twice."""

    def released(self, out: str, before: str) -> str:
        return before + out if before and len(out) >= len(before) else out


class LateOnMiss(Gate):
    """What was held and proved harmless comes after the piece that proved it."""

    def released(self, out: str, before: str) -> str:
        whole = before and len(out) > len(before)
        return out[len(before) :] + before if whole else out
