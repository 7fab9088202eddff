"""Is what loadgen measures what the server did? Repeated selftests, alone and starved on purpose.

python tests/benchmarks/truth.py [--write] [--runs N] [--seconds S] [--clock kernel|packet|user]

--write: results/truth.md. --realtime: client and server, while alone, have precedence over what
else runs (needs the right to it), as on a machine that is otherwise idle. The scripted server keeps
a record of when each of its writes began and ended; a measured time's error is what lies between it
and the beginning of its write. Each load of 100 and of 1,000 streams × 20 events/s is played so
many times; then the smaller one again while `--hogs` processes that do nothing but compute share
the client's only core (the server has another). Needs two cores; what else runs on them shows.

Goals: p99 of |TTFT error| and of |gap error| ≤ 0.2 ms and ≤ 1 ms, nine of ten runs valid; starved:
ten of ten say client_limited, and no time that is called a value lies outside its write.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from loadgen.selftest import NOISE, figures, outside
from loadgen.selftest_command import EVENTS_A_SECOND, LARGE, SMALL, Tried, try_out

RESULT = Path(__file__).parent / "results" / "truth.md"
GOALS = {SMALL: 0.2e-3, LARGE: 1e-3}  # seconds
VALID_SHARE = 0.9
# So many that a fair share of the core is less than the client needs, about an eighth.
HOGS = 16


@dataclass(frozen=True, slots=True)
class Row:
    """Some runs of one load."""

    name: str
    runs: tuple[Tried, ...]

    def limited(self) -> int:
        return sum(any(d.reason == "client_limited" for d in run.doubts) for run in self.runs)

    def valid(self) -> int:
        return sum(not run.doubts for run in self.runs)

    def wrong(self) -> int:
        """Values that lie outside their write."""
        return sum(outside(run.errors)[0] for run in self.runs)

    def bounds(self) -> float:
        """Their share of all times."""
        times = [error for run in self.runs for error in run.errors.instants]
        return sum(not error.is_value for error in times) / len(times)

    def tail(self, metric: str, *, values: bool) -> float:
        """Median over the runs of the p99 of the error's size."""
        found = []
        for run in self.runs:
            errors = getattr(run.errors, metric)
            told = figures(error for error in errors if error.is_value or not values).p99
            found.append(float("nan") if told is None else told)
        return statistics.median(found)


# -- starving --------------------------------------------------------------------------------------


def _hog(core: int) -> None:
    os.sched_setaffinity(0, {core})
    while True:
        pass


@contextmanager
def starved(core: int, hogs: int) -> Iterator[None]:
    """This process on one core with so many hogs."""
    busy = [multiprocessing.Process(target=_hog, args=(core,), daemon=True) for _ in range(hogs)]
    for process in busy:
        process.start()
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.join()


def starve(streams: int, seconds: float, clock: str | None, hogs: int) -> Tried:
    """One load, its server on the other cores."""
    cores = os.sched_getaffinity(0)
    core = max(cores)
    os.sched_setaffinity(0, cores - {core})  # the server inherits that
    try:
        return try_out(streams, seconds, clock, partial(starved, core, hogs))
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def precedence(wanted: bool) -> Iterator[None]:
    """Before every process of ordinary priority; processes started meanwhile have it as well."""
    if wanted:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    try:
        yield
    finally:
        if wanted:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


# -- telling ---------------------------------------------------------------------------------------


def table(rows: Sequence[Row], clock: str, about: str) -> str:
    head = (
        "| client | valid | client_limited | TTFT error, p99, values (all) | gap error, p99, "
        "values (all) | bounds | values outside their write |\n|---|---:|---:|---:|---:|---:|---:|"
    )
    return "\n".join([f"Clock {clock}.", "", head, *map(_line, rows), "", about, ""])


def _line(row: Row) -> str:
    def told(metric: str) -> str:
        one, every = (row.tail(metric, values=values) * 1e3 for values in (True, False))
        return f"{one:.3f} ({every:.3f}) ms" if not math.isnan(one) else "too few"

    n = len(row.runs)
    return (
        f"| {row.name} | {row.valid()} of {n} | {row.limited()} of {n} | {told('ttft')} | "
        f"{told('gaps')} | {row.bounds():.1%} | {row.wrong()} |"
    )


def missed(rows: Sequence[Row], hungry: Row) -> list[str]:
    out = []
    for row, goal in zip(rows, GOALS.values(), strict=False):
        if row.valid() < VALID_SHARE * len(row.runs):
            out.append(f"{row.name}: {row.valid()} of {len(row.runs)} runs valid")
        off = max(row.tail(metric, values=False) for metric in ("ttft", "gaps"))
        if not off <= goal:
            out.append(f"{row.name}: p99 error {off * 1e3:.3f} ms, goal {goal * 1e3:g} ms")
    if hungry.runs and hungry.limited() < len(hungry.runs):
        out.append(f"{hungry.name}: {hungry.limited()} of {len(hungry.runs)} say client_limited")
    wrong = [f"{row.name}: {row.wrong()} wrong values" for row in (*rows, hungry) if row.wrong()]
    return out + wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--clock", choices=("user", "kernel", "packet"))
    parser.add_argument("--hogs", type=int, default=HOGS)
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--streams", type=int, nargs="*", default=list(GOALS))
    args = parser.parse_args()
    with precedence(args.realtime):
        rows = [
            Row(
                f"{streams} × {EVENTS_A_SECOND}/s, alone",
                tuple(try_out(streams, args.seconds, args.clock) for _ in range(args.runs)),
            )
            for streams in args.streams
        ]
    name = f"{SMALL} × {EVENTS_A_SECOND}/s, {args.hogs} hogs on its core"
    runs = args.runs if args.hogs else 0
    hungry = Row(
        name, tuple(starve(SMALL, args.seconds, args.clock, args.hogs) for _ in range(runs))
    )
    shown = [*rows, hungry] if hungry.runs else rows
    events = sum(run.errors.events for row in shown for run in row.runs)
    about = (
        f"{args.runs} runs of {args.seconds:g} s each, {events} events; p99 are medians over the "
        f"runs; outside: by more than {NOISE * 1e6:g} µs. {os.cpu_count()} cores for client and "
        f"server, load average {os.getloadavg()[0]:.1f}"
        f"{', real-time priority while alone' if args.realtime else ''}."
    )
    clock = str(next(run.about["clock"] for row in shown for run in row.runs))
    text = table(shown, clock, about)
    print(text)
    if args.write:
        place = RESULT if clock == "kernel" else RESULT.with_stem(f"truth_{clock}")
        place.write_text(text, encoding="utf-8")
    for each in missed(rows, hungry):
        print(f"missed: {each}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
