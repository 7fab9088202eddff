"""Ways to cut bytes into reads. A reader that depends on the cut is broken."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence


def whole(data: bytes) -> list[bytes]:
    return [data]


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def cut_at(data: bytes, places: Sequence[int]) -> list[bytes]:
    """Pieces between the places (any order, repeats and zero-length pieces allowed)."""
    edges = [0, *sorted(min(max(place, 0), len(data)) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def every_split(data: bytes) -> Iterator[list[bytes]]:
    """Whole, byte by byte, then in two pieces at each place (an empty piece at both ends)."""
    yield whole(data)
    yield byte_by_byte(data)
    for place in range(len(data) + 1):
        yield [data[:place], data[place:]]
