"""Seeded mutation of examples, against what must hold for any bytes.

A target is a set of example inputs, tokens that its format is made of, and a check that raises if
something is wrong. Every round has a random generator of its own, made from the run's seed and the
round's number, so a failure can be had again without the rounds before it.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType

LIMIT = 1 << 16  # bytes that a mutated input may have


@dataclass(frozen=True, slots=True)
class Target:
    """`check(data, chance)` raises if `data` is handled wrongly; `chance` cuts it into reads.

    What a reader is documented to raise on bad input is for the check to catch.
    """

    examples: Callable[[], Sequence[bytes]]
    tokens: Sequence[bytes]
    check: Callable[[bytes, random.Random], object]


class Found(AssertionError):
    """A check failed; the message says how to have it again."""


def fuzz(
    name: str,
    target: Target,
    *,
    seed: int,
    rounds: range | None = None,
    seconds: float | None = None,
    patience: float | None = None,
) -> int:
    """Run until one of the bounds is reached; returns the number of rounds.

    `patience` is what one round may take, in seconds (main thread and POSIX only).
    """
    examples, done = target.examples(), 0
    until = None if seconds is None else time.monotonic() + seconds
    numbers = iter(rounds if rounds is not None else range(10**12))
    for number in numbers:
        if until is not None and time.monotonic() >= until:
            break
        chance = random.Random(f"{name}:{seed}:{number}")
        data = mutated(examples, target.tokens, chance)
        try:
            _within(patience, partial(target.check, data, chance))
        except Exception as failure:
            again = f"python tests/fuzz/run.py --target {name} --seed {seed} --round {number}"
            raise Found(f"{again}\n{failure!r}\ninput: {data!r}") from failure
        done += 1
    return done


def _within(patience: float | None, work: Callable[[], object]) -> None:
    if patience is None:
        work()
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"one round took over {patience} s")

    handler = signal.signal(signal.SIGALRM, ring)
    timer = signal.setitimer(signal.ITIMER_REAL, patience)
    try:
        work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def mutated(examples: Sequence[bytes], tokens: Sequence[bytes], chance: random.Random) -> bytes:
    """An example, or two spliced, with a few changes."""
    data = bytearray(chance.choice(examples))
    if chance.random() < 0.3:
        other = chance.choice(examples)
        data[chance.randint(0, len(data)) :] = other[chance.randint(0, len(other)) :]
    for _ in range(chance.choice((0, 1, 1, 2, 3, 5, 8, 20))):
        _MUTATIONS[chance.randrange(len(_MUTATIONS))](data, tokens, chance)
    return bytes(data[:LIMIT])


def _span(data: bytearray, chance: random.Random) -> slice:
    start = chance.randint(0, len(data))
    return slice(start, start + chance.choice((1, 1, 2, 4, 16, 256)))


def _remove(data: bytearray, tokens: Sequence[bytes], chance: random.Random) -> None:
    del data[_span(data, chance)]


def _repeat(data: bytearray, tokens: Sequence[bytes], chance: random.Random) -> None:
    span = _span(data, chance)
    data[span.start : span.start] = data[span] * chance.choice((1, 2, 30))


def _token(data: bytearray, tokens: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randint(0, len(data))
    data[at:at] = chance.choice(tokens)


def _replace(data: bytearray, tokens: Sequence[bytes], chance: random.Random) -> None:
    data[_span(data, chance)] = chance.choice(tokens)


def _byte(data: bytearray, tokens: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randint(0, len(data))
    data[at : at + 1] = bytes([chance.randrange(256)])


def _flip(data: bytearray, tokens: Sequence[bytes], chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _noise(data: bytearray, tokens: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randint(0, len(data))
    data[at:at] = chance.randbytes(chance.choice((1, 3, 20)))


def _cut(data: bytearray, tokens: Sequence[bytes], chance: random.Random) -> None:
    del data[chance.randint(0, len(data)) :]


_MUTATIONS = (_remove, _repeat, _token, _token, _replace, _byte, _flip, _noise, _cut)
