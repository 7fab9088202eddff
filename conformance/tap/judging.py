"""Judging what passed: a pure function, and the process of its own that runs it.

The tap's own thread has nothing to do but to pass bytes on; a judge in another thread would keep it
from the interpreter for milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from conformance import http1, storage
from conformance.capture import Capture, How
from conformance.dialects import api_of
from conformance.dossier import Dossier
from conformance.errors import RecordError
from conformance.findings import Level, Result, fails
from conformance.judge import Policy, judge
from conformance.lifecycle import Outcome
from conformance.masking import Secret, mask
from conformance.reading import Form, Reading, read
from conformance.specs import Case
from conformance.tap.taking import Taken

ROLE = "stream"
NICE = 10


@dataclass(frozen=True, slots=True)
class Job:
    """What stays the same over all exchanges."""

    cases: tuple[Case, ...]
    known: tuple[Case, ...]
    policy: Policy
    dialect: str | None = None
    secrets: tuple[Secret, ...] = ()
    captures: Path | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """One exchange as it was judged. `api` None: another route, which passes unjudged."""

    number: int
    method: str
    path: str
    status: int | None
    api: str | None
    events: int
    outcome: str
    seconds: float | None
    failed: tuple[str, ...]
    noted: tuple[str, ...]
    results: tuple[Result, ...]
    size: int
    unreached: bool = False  # the upstream; the tap itself answered
    problem: str | None = None


def judged(taken: Taken, job: Job) -> Told:
    """Mask, keep, read and judge one exchange."""
    capture = mask(taken.capture(), job.secrets)
    path = _path(capture)
    api = api_of(path)
    name = f"tap-{taken.number:06d}"
    dossier = Dossier("tap", {ROLE: (capture,)}, api=api, dialect=job.dialect, name=name)
    problem = None
    if job.captures is not None:
        dossier, problem = _kept(dossier, job.captures)
    reading = read(capture, api=api, dialect=job.dialect)
    connected = capture.end.how not in (How.NOT_CONNECTED, How.TLS_FAILED)
    judges = api is not None and connected and reading.form is not Form.OTHER
    results = judge([dossier], job.cases, job.policy, job.known) if judges else ()
    failed = tuple(each.id for each in results if fails(each, job.strict))
    return Told(
        number=taken.number,
        method=taken.asked.method.decode("ascii", "replace") or "?",
        path=path or "?",
        status=reading.status,
        api=api if judges else None,
        events=sum(1 for event in reading.events if event.data),
        outcome=_outcome(reading),
        seconds=None if capture.end.at is None else capture.end.at - taken.began,
        failed=failed,
        noted=tuple(e.id for e in results if _is_noted(e) and e.id not in failed),
        results=tuple(results),
        size=taken.size,
        unreached=not connected,
        problem=problem,
    )


def _path(capture: Capture) -> str:
    """The request-target, as far as it may be shown; empty where there is none."""
    joined = b"".join(segment.data for segment in capture.request[:16]).lstrip(b"\r\n")
    words = joined.partition(b"\n")[0].split()
    return words[1].decode("ascii", "replace") if len(words) == 3 else ""


def _is_noted(result: Result) -> bool:
    return bool(result.findings) and result.level is not Level.MAY


def _outcome(reading: Reading) -> str:
    """What became of it, in a word or two; how the client left, where it did."""
    end = reading.capture.end
    if end.how is How.LEFT:
        who = "the tap ended" if end.detail == "tap" else f"client left ({end.left})"
        events = reading.life is not None and reading.events
        return f"{who} after {len(reading.events)} events" if events else who
    if reading.outcome is not None:
        why = f" ({end.detail})" if reading.outcome in _EXPLAINED and end.detail else ""
        return f"{reading.outcome.value}{why}"
    if reading.complete or reading.framing is http1.Framing.CLOSE:
        return "whole"
    return str(end.how.value)


_EXPLAINED = (Outcome.NOT_CONNECTED, Outcome.TLS_FAILED)


def _kept(dossier: Dossier, folder: Path) -> tuple[Dossier, str | None]:
    """The dossier under the name of its file, or why it has none."""
    path = folder / f"{dossier.name}.jsonl"
    try:
        path.write_bytes(storage.write(dossier))
    except (OSError, RecordError) as error:
        return dossier, f"{path} was not kept: {error}"
    return replace(dossier, name=str(path)), None


# -- the process -----------------------------------------------------------------------------------

_job: Job | None = None


def _begin(job: Job) -> None:
    """In the new process: signals are the parent's affair, also where the whole group is sent one;
    and without a parent there is no work.
    """
    global _job
    _job = job
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICE)  # the way comes first
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _judge(taken: Taken) -> Told:
    assert _job is not None
    return judged(taken, _job)


def _ready() -> bool:
    return _job is not None


class Judge:
    """One process that judges. A context manager; the process starts at once."""

    def __init__(self, job: Job) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, context, _begin, (job,))

    def ready(self) -> None:
        """Wait until it works."""
        self._pool.submit(_ready).result()

    def submit(self, taken: Taken) -> Future[Told]:
        return self._pool.submit(_judge, taken)

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
