"""Looking at many answers: in processes of their own where there are enough of them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
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
_SIGNALS = {signal.SIGINT, signal.SIGTERM}  # whole groups of processes are sent the second one too


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
    with the same mask, before it can say itself that signals are not its affair.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_job: Job | None = None


def _begin(job: Job) -> None:
    """In the new process: signals are the parent's affair, whose end is ours."""
    global _job
    _job = job
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Nobody else tells us: of the queue that we wait at we hold both ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _look(played: Played) -> Look:
    assert _job is not None
    return _job.look(played)
