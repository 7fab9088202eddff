"""Lengths in tokens as a distribution: `128`, `64..256`, `normal:200,50`, `lognormal:200,80`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from random import Random

from conformance.errors import UsageError

MOST_TOKENS = 1_000_000
FORMS = "N, A..B, normal:MEAN,SD or lognormal:MEAN,SD"


@dataclass(frozen=True, slots=True)
class Length:
    """`kind`: fixed (a), uniform (a to b, both included), normal, lognormal (mean a, deviation b).

    A draw of the last two is rounded and kept between 1 and MOST_TOKENS, so a wide normal has a
    greater mean than it names.
    """

    kind: str
    a: float
    b: float = 0.0

    def draw(self, rng: Random) -> int:
        """Tokens, at least 1."""
        if self.kind == "fixed":
            return int(self.a)
        if self.kind == "uniform":
            return rng.randint(int(self.a), int(self.b))
        drawn = rng.gauss(self.a, self.b) if self.kind == "normal" else self._lognormal(rng)
        return min(MOST_TOKENS, max(1, round(drawn)))

    def _lognormal(self, rng: Random) -> float:
        """With mean a and standard deviation b themselves, not those of the logarithm."""
        variance = math.log1p((self.b / self.a) ** 2)
        return rng.lognormvariate(math.log(self.a) - variance / 2, math.sqrt(variance))

    def __str__(self) -> str:
        if self.kind == "fixed":
            return f"{self.a:g}"
        return f"{self.a:g}..{self.b:g}" if self.kind == "uniform" else self._named()

    def _named(self) -> str:
        return f"{self.kind}:{self.a:g},{self.b:g}"


_NUMBER = r"([0-9]{1,7}(?:\.[0-9]{1,6})?)"
_FIXED = re.compile(r"([0-9]{1,7})")
_UNIFORM = re.compile(r"([0-9]{1,7})\.\.([0-9]{1,7})")
_NAMED = re.compile(rf"(normal|lognormal):{_NUMBER},{_NUMBER}")


def parse_length(text: str, flag: str) -> Length:
    """Raises UsageError in one line that names the flag."""
    length = _parsed(text)
    upper = 0.0 if length is None else max(length.a, length.b)
    if length is None or length.a < 1 or upper > MOST_TOKENS:
        within = f"between 1 and {MOST_TOKENS}"
        raise UsageError(f"{flag} {text}: expected a number {within}, as {FORMS}")
    if length.kind == "uniform" and length.b < length.a:
        raise UsageError(f"{flag} {text}: expected A..B with A not above B")
    return length


def _parsed(text: str) -> Length | None:
    if found := _FIXED.fullmatch(text):
        return Length("fixed", float(found[1]))
    if found := _UNIFORM.fullmatch(text):
        return Length("uniform", float(found[1]), float(found[2]))
    if found := _NAMED.fullmatch(text):
        return Length(found[1], float(found[2]), float(found[3]))
    return None
