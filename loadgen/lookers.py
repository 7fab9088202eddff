"""Looking at many answers: in processes of their own where there are enough of them."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from loadgen.collecting import short_collections
from loadgen.looking import Checks, Look, look
from loadgen.played import Played
from loadgen.workload import Workload

ENOUGH = 64  # answers; fewer are looked at sooner than a process starts
AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Job:
    """What stays the same over all answers."""

    workload: Workload
    checks: Checks

    def look(self, played: Played) -> Look:
        workload = self.workload
        ask = workload.ask(played.index)
        return look(played, ask, workload.api, self.checks, again=workload.greedy)


def looks(job: Job, played: Sequence[Played], processes: int) -> Iterator[Look]:
    """One for each, in order."""
    if processes < 2 or len(played) < ENOUGH or not job.checks.cases:
        with short_collections():  # what was recorded is not walked again and again
            yield from map(job.look, played)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, _begin, (job,))
    try:
        with _undisturbed():
            found = pool.map(_look, played, chunksize=AT_ONCE)
        yield from found
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """An interruption waits: a process whose start was cut short would complain of it. It starts
    with the same mask, before it can say itself that Ctrl-C is not its affair.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_job: Job | None = None


def _begin(job: Job) -> None:
    """In the new process: Ctrl-C is the parent's affair."""
    global _job
    _job = job
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _look(played: Played) -> Look:
    assert _job is not None
    return _job.look(played)
