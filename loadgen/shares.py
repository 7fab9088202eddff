"""A load divided among workers: whose each unit (a request or a session) is. Pure.

Unit u asks the same whoever plays it. Only the limits must be told apart, so that no worker need
know how far another is.
"""

from __future__ import annotations

import math
from dataclasses import replace

from conformance.errors import UsageError
from loadgen.load import Closed, Limits, Open


def shares(load: Open | Closed, workers: int) -> list[Open | Closed]:
    """One for each worker; together the load: unit u is worker u % workers'.

    Raises UsageError where a worker would have no client.
    """
    if isinstance(load, Closed):
        return [_closed(load, worker, workers) for worker in range(workers)]
    return [_open(load, worker, workers) for worker in range(workers)]


def enough(load: Open | Closed, workers: int) -> None:
    """Raises UsageError where a worker would have no client, or nothing to send."""
    if isinstance(load, Closed) and load.clients < workers:
        raise UsageError(f"--workers {workers}: more than the {load.clients} clients of the load")
    if isinstance(load, Open) and max(1, len(load.offsets)) < workers:
        of = len(load.offsets)
        raise UsageError(f"--workers {workers}: more than the {of} requests of the load")


def _open(load: Open, worker: int, workers: int) -> Open:
    mine = [(unit, at) for unit, at in load.numbered if unit % workers == worker]
    return replace(
        load, offsets=tuple(at for _, at in mine), indices=tuple(unit for unit, _ in mine)
    )


def _closed(load: Closed, worker: int, workers: int) -> Closed:
    enough(load, workers)
    mine = replace(
        load,
        clients=_part(load.clients, worker, workers),
        requests=None,
        first=worker,
        step=workers,
    )
    return mine if load.requests is None else replace(mine, requests=int(mine.below(load.requests)))


def limits_of(limits: Limits, worker: int, workers: int, stride: int) -> Limits:
    """A worker's own. `in_flight` stays: what it bounds, open files, is a process's.

    `stride`: most requests of a unit. Where it is 1, the first so many requests are sent, as by one
    process; else each worker may send its part of them.
    """
    if math.isinf(limits.requests):
        return limits
    if stride == 1:
        return replace(limits, requests=math.inf, index=min(limits.index, limits.requests))
    return replace(limits, requests=_part(int(limits.requests), worker, workers))


def _part(whole: int, worker: int, workers: int) -> int:
    return whole // workers + (worker < whole % workers)


def scheduled(load: Open | Closed) -> int | None:
    """How many units a share has; None where time alone ends it."""
    return len(load.offsets) if isinstance(load, Open) else load.requests
