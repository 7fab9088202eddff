"""A server in a few lines of arithmetic: Poisson arrivals, a queue before so many slots, and a
speed that wanders. Its requests depend on each other, as those of a real one do."""

from __future__ import annotations

import heapq
from random import Random

from loadgen.looking import Tally
from loadgen.measure import Row
from loadgen.result import Ran, Result, Target, result_of
from loadgen.summary import Window
from tests.loadgen.rows import row

SECONDS = 240.0
RATE, SLOTS, SERVICE = 4.0, 4, 0.6  # 60 % busy
CHUNKS = 6


def rows(seed: int, slower: float = 1.0, rate: float = RATE) -> list[Row]:
    """`slower`: what every service time is multiplied by."""
    rng, at, speed = Random(f"simulated:{seed}"), 0.0, 1.0
    free = [0.0] * SLOTS
    out: list[Row] = []
    while (at := at + rng.expovariate(rate)) < SECONDS:
        speed = 1 + 0.9 * (speed - 1) + rng.gauss(0, 0.03)  # wanders by ±7 %, over ten requests
        service = SERVICE * slower * max(0.3, speed) * rng.uniform(0.7, 1.3)
        begun = max(at, heapq.heappop(free))
        heapq.heappush(free, begun + service)
        gap = 0.8 * service / (CHUNKS - 1)
        out.append(row(len(out), at, ttft=begun - at + 0.2 * service, chunks=CHUNKS, gap=gap))
    return out


def run(seed: int, slower: float = 1.0, **load: object) -> Result:
    described = {"kind": "open", "arrivals": "poisson", "rate": RATE, "seed": seed, **load}
    ran = Ran(
        target=Target("http://h/v1", "chat", "m"),
        load=described,  # type: ignore[arg-type]
        rows=rows(seed, slower),
        tally=Tally(),
        gates=(),
        window=Window(0.0, SECONDS),
        lags=(0.001,),
        complete=True,
        steady=False,
    )
    return result_of(ran, (), 0, "0")
