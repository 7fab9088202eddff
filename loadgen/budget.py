"""--max-tokens-total: how many of a load's units may be begun. Pure but for what it tells."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable

from loadgen.workload import Workload

LONG = 2.0  # seconds after which somebody is told what takes so long
A_LOOK = 10_000  # units between two looks at the clock


def within(
    most: int | None,
    workload: Workload,
    count: float,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> float:
    """How many of the first `count` units cost no more than `most` tokens together.

    Where lengths are drawn each unit is drawn for it, some 70 000 a second. `most` None: any.
    """
    if most is None:
        return math.inf
    if workload.costs_alike:
        return min(count, most // workload.tokens(0))
    unit, due = 0, clock() + LONG
    while unit < count and (most := most - workload.tokens(unit)) >= 0:
        unit += 1
        if unit % A_LOOK == 0 and clock() >= due:
            due = math.inf
            print("loadgen: adding up what --max-tokens-total allows …", file=sys.stderr)
    return unit
