"""Naming how a streamed text differs from the plain one: known corruptions, each of one kind.

A name is given only where the rest of the texts agrees exactly, so sampling that went another way
has none.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Sequence

BAD = "\ufffd"
_LONGEST = 200_000  # characters; longer texts are compared, not explained


def corruption(
    text: str,
    plain: str,
    pieces: Sequence[str],
    leakable: tuple[tuple[str, ...], tuple[re.Pattern[str], ...]],
) -> str | None:
    """The name of what turned `plain` into `text` (sent as `pieces`); None: no known corruption."""
    if len(text) + len(plain) > _LONGEST:
        return None
    if text != plain and plain.startswith(text):
        return f"the last {len(plain) - len(text)} characters are missing" if text else "no text"
    named = (
        (_replaced(text, plain), "replacement characters stand for others"),
        (_squeezed(text) == _squeezed(plain), "whitespace was lost or added"),
        (_doubled(text, plain, pieces), "a piece stands twice"),
        (_leaked(text, plain, *leakable), "what should stay inside leaked out"),
        (html.unescape(text) == plain, "characters became HTML entities"),
        (_unescaped(text) == plain, "characters were escaped twice"),
        (_normal(text) == _normal(plain), "characters were normalised"),
    )
    return next((name for hit, name in named if hit), None)


def resemblance(text: str, plain: str) -> str | None:
    """What the difference looks like where sampling may have made it too; None: like nothing."""
    if plain.endswith(text) and 2 * len(text) >= len(plain):
        return "the beginning is missing"
    return "a piece in the middle is missing" if _swallowed(text, plain) else None


def _replaced(text: str, plain: str) -> bool:
    """Do runs of U+FFFD, more than the plain text has, stand for one to few characters each?"""
    if text.count(BAD) <= plain.count(BAD):
        return False
    parts = re.split(f"{BAD}+", text)
    at = 0
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        found = plain.rfind(part) if last and part else plain.find(part, at)
        if found < at or (number == 0 and found != 0):
            return False
        at = found + len(part)
    return parts[-1] == "" or at == len(plain)


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _doubled(text: str, plain: str, pieces: Sequence[str]) -> bool:
    extra = len(text) - len(plain)
    if extra <= 0:
        return False
    once = [p for i, p in enumerate(pieces) if i == 0 or p != pieces[i - 1]]
    if "".join(once) == plain:
        return True
    # a+b+b+c against a+b+c: what the texts have in common ends in a turned copy of b.
    begin = _common(text, plain)
    piece = text[begin : begin + extra]
    return text[:begin].endswith(piece) and text[begin + extra :] == plain[begin:]


def _leaked(
    text: str, plain: str, strings: tuple[str, ...], patterns: tuple[re.Pattern[str], ...]
) -> bool:
    """Is the plain text there once stop strings (or a beginning of one) and tokens are out?"""
    rest = text[len(plain) :] if text.startswith(plain) else ""
    if rest and any(s.startswith(rest) or rest.startswith(s) for s in strings):
        return True
    without = text
    for pattern in patterns:
        without = pattern.sub("", without)
    return without != text and (without == plain or (rest != "" and _begins(patterns, rest)))


def _begins(patterns: tuple[re.Pattern[str], ...], rest: str) -> bool:
    return any(pattern.match(rest) for pattern in patterns)


def _swallowed(text: str, plain: str) -> bool:
    """One gap, and most of the text around it."""
    gap = len(plain) - len(text)
    begin = _common(text, plain)
    return 0 < gap <= len(text) and text[begin:] == plain[begin + gap :] and begin > 0


def _unescaped(text: str) -> str | None:
    r"""The text with `\n`, `\"` and `\uXXXX` read once more."""
    pairs = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "/": "/"}
    return re.sub(
        r"\\(?:u([0-9a-fA-F]{4})|(.))",
        lambda m: chr(int(m[1], 16)) if m[1] else pairs.get(m[2], m[0]),
        text,
    )


def _normal(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _common(text: str, plain: str) -> int:
    both = zip(text, plain, strict=False)
    return next((i for i, (a, b) in enumerate(both) if a != b), min(len(text), len(plain)))
