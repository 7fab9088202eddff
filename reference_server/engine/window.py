"""Text of tokens whose bytes nobody knows: what two decode calls differ by.

For tokenizers whose decoder is no matter of single tokens (WordPiece, and whatever comes next).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reference_server.engine.text import REPLACEMENT


class Window:
    """What became certain with each token: all that is decoded less what was before.

    The window begins one stretch before what is not shown yet, because a decoder may treat a text's
    first token in its own way. `decode` turns ids to text, an unfinished character to one U+FFFD;
    `bytewise`: each of its bytes to one, and those of finished ones before it too. What may be
    unfinished waits, but for three tokens only: no character has more than four bytes, so what is
    unfinished for longer stays so.
    """

    _PATIENCE = 3  # tokens

    def __init__(self, decode: Callable[[Sequence[int]], str], bytewise: bool = False) -> None:
        self._decode, self._bytewise = decode, bytewise
        self._ids: list[int] = []
        self._known = 0  # ids of the stretch before, all shown
        self._shown = 0  # characters of the window's text
        self._waited = 0  # tokens since something was shown

    def feed(self, token: int) -> str:
        """The text that became certain with this token."""
        self._ids.append(token)
        text = self._decode(self._ids)
        certain = self._certain(text)
        self._waited = 0 if certain > self._shown or self._shown >= len(text) else self._waited + 1
        if self._waited > self._PATIENCE:
            certain, self._waited = len(text), 0
        new = text[self._shown : certain]
        self._shown = max(self._shown, certain)
        if self._shown >= len(text):
            self._advance()
        return new

    def _certain(self, text: str) -> int:
        """Characters before what may be unfinished."""
        finished = len(text.rstrip(REPLACEMENT))
        return finished if self._bytewise else max(finished, len(text) - 1)

    def _advance(self) -> None:
        """All is shown: the stretch before is not needed any more."""
        del self._ids[: self._known]
        self._known = len(self._ids)
        self._shown = len(self._decode(self._ids))
