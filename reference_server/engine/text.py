"""From token bytes to text: strict incremental UTF-8, stop strings, tokens aligned with characters.

Pure and byte-level. What leaves here is final: no character is shown before all of its bytes are
there, and no text that may still turn out to be the start of a stop string.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from reference_server.engine.interface import TokenLogprob

REPLACEMENT = "\ufffd"


@dataclass(frozen=True, slots=True)
class Char:
    """One character and how many raw bytes it stands for (an invalid stretch gives U+FFFD)."""

    text: str
    size: int


_ASCII = tuple(Char(chr(byte), 1) for byte in range(0x80))


def _lead(byte: int) -> tuple[int, int, int] | None:
    """Bytes that follow a lead byte, and the range of the first of them; None: no lead byte.

    Unicode, table 3-7 ("Well-Formed UTF-8 Byte Sequences").
    """
    if 0xC2 <= byte <= 0xDF:
        return 1, 0x80, 0xBF
    if 0xE0 <= byte <= 0xEF:
        return 2, 0xA0 if byte == 0xE0 else 0x80, 0x9F if byte == 0xED else 0xBF
    if 0xF0 <= byte <= 0xF4:
        return 3, 0x90 if byte == 0xF0 else 0x80, 0x8F if byte == 0xF4 else 0xBF
    return None


class Utf8:
    """An incremental decoder. An incomplete character waits; an ill-formed one is U+FFFD at once.

    "Maximal subpart" replacement as in Unicode, section 3.9: one U+FFFD for each longest prefix of
    a well-formed sequence, so any split of the input gives the same text.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._missing = 0
        self._low, self._high = 0x80, 0xBF

    def feed(self, raw: bytes) -> list[Char]:
        if not self._missing and raw.isascii():
            return [_ASCII[byte] for byte in raw]
        out: list[Char] = []
        for byte in raw:
            if self._missing and not self._low <= byte <= self._high:
                out.append(Char(REPLACEMENT, len(self._held)))
                self._held.clear()
                self._missing = 0
            if self._missing:
                self._continue(byte, out)
            else:
                self._start(byte, out)
        return out

    def text(self, raw: bytes) -> str:
        """As `feed`, the characters joined."""
        # Not the standard library's incremental decoder: it keeps ED A0, which nothing can finish.
        if not self._missing:
            with suppress(UnicodeDecodeError):
                return raw.decode()
        return "".join([char.text for char in self.feed(raw)])

    def _start(self, byte: int, out: list[Char]) -> None:
        if byte < 0x80:
            out.append(Char(chr(byte), 1))
        elif (lead := _lead(byte)) is None:
            out.append(Char(REPLACEMENT, 1))
        else:
            self._missing, self._low, self._high = lead
            self._held.append(byte)

    def _continue(self, byte: int, out: list[Char]) -> None:
        self._held.append(byte)
        self._missing -= 1
        self._low, self._high = 0x80, 0xBF
        if not self._missing:
            out.append(Char(self._held.decode(), len(self._held)))
            self._held.clear()


class _Matcher:
    """Knuth-Morris-Pratt over one stop string: the longest open match after each character."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.open = 0
        self.start: int | None = None  # where the first full match began
        self._fail = [0] * len(stop)
        k = 0
        for i in range(1, len(stop)):
            while k and stop[i] != stop[k]:
                k = self._fail[k - 1]
            k += stop[i] == stop[k]
            self._fail[i] = k

    def feed(self, char: str, index: int) -> None:
        if self.start is not None:
            return
        while self.open and char != self.stop[self.open]:
            self.open = self._fail[self.open - 1]
        self.open += char == self.stop[self.open]
        if self.open == len(self.stop):
            self.start, self.open = index + 1 - self.open, 0


class StopGate:
    """Holds text back while it may belong to a stop string; cuts at the earliest occurrence.

    "The returned text will not contain the stop sequence." Of several stop strings the one that
    begins first decides, so a finished match waits while an earlier one is still open.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self.watch(stops)
        self._held: list[Char] = []
        self._base = 0  # index of the first held character
        self._seen = 0
        self.stopped = False

    def watch(self, stops: Sequence[str]) -> None:
        """Look for these from the next character on."""
        self._matchers = [_Matcher(stop) for stop in stops if stop]
        self._first = frozenset(matcher.stop[0] for matcher in self._matchers)

    def feed(self, chars: Sequence[Char]) -> list[Char]:
        """The characters that became certain."""
        if self.stopped:
            return []
        if not self._held and self._first.isdisjoint([char.text for char in chars]):
            self._seen += len(chars)  # nothing is open, and no stop string begins here
            self._base = self._seen
            return list(chars)
        for char in chars:
            self._held.append(char)
            for matcher in self._matchers:
                matcher.feed(char.text, self._seen)
            self._seen += 1
            cut, first_open = self._cut(), self._first_open()
            if cut is not None and cut <= first_open:
                return self._stop(cut)
        return self._release(self._first_open())

    def close(self) -> list[Char]:
        """No more text comes: release what was withheld, up to a match if one is complete."""
        cut = self._cut()
        if cut is not None and not self.stopped:
            return self._stop(cut)
        return self._release(self._seen)

    def _cut(self) -> int | None:
        return min((m.start for m in self._matchers if m.start is not None), default=None)

    def _first_open(self) -> int:
        return self._seen - max((m.open for m in self._matchers), default=0)

    def _stop(self, cut: int) -> list[Char]:
        self.stopped = True
        out = self._release(cut)
        self._held.clear()
        return out

    def _release(self, end: int) -> list[Char]:
        cut = self._cut()
        count = max(0, (end if cut is None else min(end, cut)) - self._base)
        out = self._held[:count]
        del self._held[:count]
        self._base += len(out)
        return out


class TextPath:
    """The text of one choice, token by token, with its log-probabilities if they are asked for.

    With log-probabilities (`aligned`), text leaves only at places that are both the end of a token
    and the end of a character, so that the entries of a piece spell exactly that piece; the last
    entry is cut to the bytes that are shown. A path that is not aligned takes no entries.
    """

    def __init__(self, stops: Sequence[str] = (), aligned: bool = False) -> None:
        # Nothing to look for and nothing to align: characters need not be told apart.
        self._plain = not aligned and not any(stops)
        self._text = ""
        self._utf8 = Utf8()
        self._gate = StopGate(stops)
        self._aligned = aligned
        self._chars: list[Char] = []
        self._entries: list[TokenLogprob] = []

    @property
    def stopped(self) -> bool:
        """A stop string was found: nothing more comes."""
        return self._gate.stopped

    def watch(self, stops: Sequence[str]) -> None:
        """From the next character on look for these, of the stop strings that it was made with."""
        self._gate.watch(stops)

    def feed(self, raw: bytes, entry: TokenLogprob | None = None) -> None:
        if self._plain:
            self._text += self._utf8.text(raw)
            return
        self._chars += self._gate.feed(self._utf8.feed(raw))
        if entry is not None and self._aligned:
            self._entries.append(entry)

    def take(self) -> tuple[str, tuple[TokenLogprob, ...]]:
        """What is certain and was not taken yet."""
        if self._plain:
            text, self._text = self._text, ""
            return text, ()
        chars, entries = self._boundary() if self._aligned else (len(self._chars), 0)
        text = "".join([char.text for char in self._chars[:chars]])
        taken = tuple(self._entries[:entries])
        del self._chars[:chars]
        del self._entries[:entries]
        return text, taken

    def close(self) -> tuple[str, tuple[TokenLogprob, ...]]:
        """The rest, at the end: withheld text is released, an unfinished character dropped."""
        if self._plain:
            return self.take()
        self._chars += self._gate.close()
        text = "".join(char.text for char in self._chars)
        return text, tuple(self._clipped(sum(char.size for char in self._chars)))

    def _boundary(self) -> tuple[int, int]:
        """(characters, entries) up to the last place where a token and a character both end."""
        best = (0, 0)
        chars = shown = wanted = 0
        for position, entry in enumerate(self._entries, 1):
            wanted += len(entry.raw)
            while shown < wanted and chars < len(self._chars):
                shown += self._chars[chars].size
                chars += 1
            if shown < wanted:
                break
            if shown == wanted:
                best = (chars, position)
        return best

    def _clipped(self, left: int) -> list[TokenLogprob]:
        out: list[TokenLogprob] = []
        for entry in self._entries:
            if left <= 0:
                break
            raw = entry.raw[:left]
            left -= len(raw)
            out.append(entry if raw == entry.raw else replace(entry, token=spelled(raw), raw=raw))
        return out


def spelled(raw: bytes) -> str:
    """How a token is shown: its text, or `bytes:\\xNN…` where it is no whole text."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
