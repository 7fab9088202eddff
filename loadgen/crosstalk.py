"""Does an answer hold what belongs to another request? Is it what is said to it alone? Pure.

A generated prompt begins with a mark that no other prompt has. An answer that holds the mark of
another request shows text that was never meant for it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from conformance.reading import Reading
from loadgen.spelling import MARK_DIGITS

_MARK = re.compile(rf"(?<![0-9a-f])[0-9a-f]{{{MARK_DIGITS}}}(?![0-9a-f])")
MOST = 100  # marks of one answer


@dataclass(frozen=True, slots=True)
class Crossing:
    """Request `index` was answered with the mark of request `other`."""

    index: int
    other: int


def text_of(reading: Reading) -> str:
    """All that an answer says to people: of each choice its reasoning, content and refusal."""
    if reading.life is None:
        choices = [[choice] for choice in reading.plain_choices]
    else:
        choices = [[piece for _, piece in choice.pieces] for choice in reading.life.choices]
    parts = [
        said
        for pieces in choices
        for kind in ("reasoning", "content", "refusal")
        for piece in pieces
        if isinstance(said := getattr(piece, kind), str)
    ]
    return "".join(parts)


def hash_of(text: str) -> str | None:
    """Names an answer without showing it; None for one that says nothing."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16] if text else None


def marks_in(text: str, own: str | None) -> tuple[str, ...]:
    """What may be marks, its own apart; once each."""
    found = dict.fromkeys(each for each in _MARK.findall(text) if each != own)
    return tuple(found)[:MOST]


def crossings(
    seen: Iterable[tuple[int, Sequence[str]]], owner: Mapping[str, int]
) -> list[Crossing]:
    """`seen`: for each request the marks in its answer; `owner`: whose they are."""
    return [
        Crossing(index, owner[mark]) for index, marks in seen for mark in marks if mark in owner
    ]


@dataclass(frozen=True, slots=True)
class Solo:
    """Answers under load held against the same requests alone, each asked twice.

    `asked`: how many. `repeats`: those whose two lone answers were equal; only these say anything.
    `differs`: of them, the requests whose answer under load was another.
    """

    asked: int
    repeats: int
    differs: tuple[int, ...]

    def __str__(self) -> str:
        same = self.repeats - len(self.differs)
        told = f"identical to solo: {same} of {self.repeats}"
        if self.repeats < self.asked:
            told += f" ({self.asked - self.repeats} of {self.asked} do not repeat themselves alone)"
        return told
