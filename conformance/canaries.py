"""Canaries: words that no text has by chance, one for each request, and where they are found. Pure.

Any six letters of a word stand in no other word of the same set, and in no word of any language
that we know of: six letters of a neighbour's word in an answer came from that neighbour.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

SYLLABLES = 5
PIECE = 6  # letters: three syllables, whatever the place
_CONSONANTS, _VOWELS = "gjkqvwxz", "aiouy"


def words(count: int, seed: int) -> tuple[str, ...]:
    """`count` words of ten letters; equal for equal seeds."""
    rng = random.Random(f"canary {seed}")
    out: list[str] = []
    taken: set[str] = set()
    while len(out) < count:
        word = "".join(rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(SYLLABLES))
        pieces = set(_pieces(word))
        if len(pieces) == len(word) - PIECE + 1 and not pieces & taken:
            taken |= pieces
            out.append(word)
    return tuple(out)


def _pieces(word: str) -> Iterator[str]:
    return (word[at : at + PIECE] for at in range(len(word) - PIECE + 1))


def places(text: str, listed: Sequence[str]) -> Mapping[str, int]:
    """Word → where the text first has six letters of it in a row; letter case does not count."""
    lower = text.lower()
    found: dict[str, int] = {}
    for word in listed:
        at = min((lower.find(piece) for piece in _pieces(word) if piece in lower), default=None)
        if at is not None:
            found[word] = at
    return found
