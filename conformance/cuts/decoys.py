"""Decoys: stop strings that do not stand in a text, and stop it only if they are taken for more.

A pattern that matches what it does not spell, the text's own letters in the other case, a word of
the prompt: an answer that ends where one of these would have to end it was searched wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from conformance.cuts.places import FAR, LEAST_AFTER, LEAST_BEFORE

_SIZE = 5  # characters of a pattern
_LETTERS = 4  # of the other case
_ANY = "."  # in a regular expression: any character
_WORD = re.compile(r"[A-Za-z]{4,16}")
_RUN = re.compile(rf"[A-Za-z]{{{_LETTERS + 1},}}")
_PLAIN = re.compile(rf"[A-Za-z0-9, ]{{{_SIZE}}}")  # nothing that a pattern would read otherwise


class Kind(Enum):
    """What a server takes the decoy for."""

    PATTERN = "a regular expression"
    CASE = "letters of any case"
    PROMPT = "text of the answer, where it is the prompt's"


@dataclass(frozen=True, slots=True)
class Decoy:
    """[start, end): what of the control's text is taken for the stop string; the prompt's: none."""

    kind: Kind
    stop: str
    start: int = 0
    end: int = 0


def pattern(text: str) -> str | None:
    """A stretch of the text with a dot in its middle; None: the text has no place for one."""
    last = min(FAR, len(text) - LEAST_AFTER - _SIZE)
    third = max(LEAST_BEFORE, len(text) // 3)
    for start in (*range(third, last), *range(LEAST_BEFORE, min(third, last))):
        piece = text[start : start + _SIZE]
        stop = piece[: _SIZE // 2] + _ANY + piece[_SIZE // 2 + 1 :]
        plain = _PLAIN.fullmatch(piece) and piece == piece.strip()
        if plain and _stands(Decoy(Kind.PATTERN, stop, start, start + _SIZE), text):
            return stop
    return None


def other_case(text: str, before: int = FAR) -> str | None:
    """Letters of the text that stand before that place, in the other case; None: there are none."""
    for run in _RUN.finditer(text[: min(before, len(text) - LEAST_AFTER)]):
        start = run.start() + 1  # something has to remain of the text
        stop = text[start : start + _LETTERS].swapcase()
        if _stands(Decoy(Kind.CASE, stop, start, start + _LETTERS), text):
            return stop
    return None


def of_prompt(prompt: str, text: str) -> str | None:
    """A word of the prompt that the text has in no spelling."""
    words = (word[0] for word in _WORD.finditer(prompt))
    return next((word for word in words if word.lower() not in text.lower()), None)


def decoys(stops: Sequence[str], text: str, prompts: Sequence[str]) -> Iterator[Decoy]:
    """Those of the stop strings that are decoys for this text, behind these prompts."""
    for stop in stops:
        found = _read(stop, text)
        if found is not None:
            yield found
        elif stop not in text and any(stop in prompt for prompt in prompts):
            yield Decoy(Kind.PROMPT, stop)


def _stands(decoy: Decoy, text: str) -> bool:
    """Is this the first place that is taken for the stop string, and does it stand nowhere?"""
    return decoy.stop not in text and _read(decoy.stop, text[: decoy.end]) == decoy


def _read(stop: str, text: str) -> Decoy | None:
    """The stop string as a pattern, or in any case; None: it stands there, or is neither."""
    if stop in text:
        return None
    if _ANY in stop:
        spelled = map(re.escape, stop.split(_ANY))
        kind, found = Kind.PATTERN, re.search(_ANY.join(spelled), text)
    else:
        kind, found = Kind.CASE, re.search(re.escape(stop), text, re.IGNORECASE | re.ASCII)
    return None if found is None else Decoy(kind, stop, *found.span())
