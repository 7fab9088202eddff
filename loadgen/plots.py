"""The figures of a run, from its rows. Times count from the start of the window. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from loadgen.formulas import METRICS
from loadgen.measure import Row
from loadgen.outcome import OURS
from loadgen.result import Result
from loadgen.svg import Bar, Lane, Plot, Point, Series, lanes, plot

LANES = 80
BINS = 60  # at most, and
REQUESTS_A_BIN = 5
TICKS = 400  # of one lane
BOUNDED = "Times as they were read; where one is a bound the chunk came then or before."


def figures(results: Sequence[Result], names: Sequence[str]) -> Iterator[str]:
    """What can be laid over each other for all of them, the rest for each."""
    for metric, words in (("ttft", "Time to the first token"), ("gap", "Gaps between chunks")):
        yield plot(cdf(f"{words} ({metric})", metric, results, names))
    for result, name in zip(results, names, strict=True):
        tail = f" · {name}" if len(results) > 1 else ""
        yield plot(rates(result, f"Requests a second{tail}"))
        yield plot(lateness(result, f"How late each request was sent{tail}"))
        if result.served is not None and result.served.samples:
            yield plot(gauges(result, f"The server's gauges beside requests in flight{tail}"))
        yield swim_lanes(result, f"Streams{tail}")


def cdf(title: str, metric: str, results: Sequence[Result], names: Sequence[str]) -> Plot:
    """Of a metric, in each of the runs."""
    pools = {name: _pool(metric, result) for name, result in zip(names, results, strict=True)}
    is_bounded = any(result.summary.times.bounds for result in results)
    return distributions(title, pools, is_bounded=is_bounded)


def distributions(title: str, pools: Mapping[str, Sequence[float]], *, is_bounded: bool) -> Plot:
    """`pools`: name → milliseconds, ascending. The x axis ends where 99.5 % of the values do, so
    that one straggler hides nothing."""
    series = [
        Series(name, [(v, (n + 1) / len(pool)) for n, v in enumerate(pool)], hue)
        for hue, (name, pool) in enumerate(pools.items())
    ]
    ends = [pool[min(len(pool) - 1, int(0.995 * len(pool)))] for pool in pools.values() if pool]
    most = 1.05 * max(ends, default=1.0)
    beyond = sum(v > most for pool in pools.values() for v in pool)
    notes = [f"Values beyond the right edge: {beyond}."] if beyond else []
    notes += [BOUNDED] if is_bounded else []
    return Plot(title, "ms", "share of values up to", series, 1.0, most or 1.0, " ".join(notes))


def _pool(metric: str, result: Result) -> list[float]:
    rows = [r for r in result.measured if r.success and r.client is None]
    return sorted(v * 1e3 for row in rows for v in METRICS[metric].values(row))


def _start(result: Result) -> float:
    return min([result.summary.window.start, *(row.intended for row in result.rows)])


def _binned(times: Sequence[float | None], start: float, width: float) -> list[Point]:
    """Per second, by bins of that width."""
    counts = Counter(int((at - start) / width) for at in times if at is not None and at >= start)
    last = max(counts, default=0)
    return [(n * width, counts[n] / width) for n in range(last + 2)]


def rates(result: Result, title: str) -> Plot:
    start = _start(result)
    bins = min(BINS, max(1, len(result.rows) // REQUESTS_A_BIN))
    width = max(result.summary.window.end - start, 1e-3) / bins
    rows = result.rows
    done = [row.last_event for row in rows if row.success]
    series = [
        Series("offered", _binned([row.intended for row in rows], start, width), 0, "steps"),
        Series("sent", _binned([row.sent for row in rows], start, width), 1, "steps"),
        Series("succeeded", _binned(done, start, width), 2, "steps"),
    ]
    return Plot(title, "s", "1/s", series)


def lateness(result: Result, title: str) -> Plot:
    start = _start(result)
    points = [(r.intended - start, max(0.0, r.lateness) * 1e3) for r in result.rows if r.lateness]
    return Plot(title, "s", "ms", [Series("lateness", points, 0, "dots")], 1.0)


def gauges(result: Result, title: str) -> Plot:
    start = _start(result)
    samples = result.served.samples if result.served is not None else ()
    shown = [
        Series(
            role,
            [(max(0.0, s.at - start), s.values[role]) for s in samples if role in s.values],
            hue,
        )
        for hue, role in enumerate(("running", "waiting"))
    ]
    return Plot(title, "s", "requests", [*shown, Series("in flight", _flying(result), 2, "steps")])


def _flying(result: Result) -> list[Point]:
    start = _start(result)
    known = [r for r in result.rows if r.sent is not None and r.ended is not None]
    steps = [(r.sent, 1) for r in known] + [(r.ended, -1) for r in known]
    now, out = 0, []
    for at, change in sorted((at or 0.0, change) for at, change in steps):
        now += change
        out.append((at - start, float(now)))
    return out


def swim_lanes(result: Result, title: str) -> str:
    """Waiting to be sent, until the first token, streaming; each chunk with text a tick."""
    start = _start(result)
    rows = [row for row in result.rows if row.was_sent and row.ended is not None]
    step = max(1, -(-len(rows) // LANES))
    chosen = sorted(rows, key=lambda row: row.intended)[::step]
    right = max([(row.ended or start) - start for row in chosen], default=1.0)
    note = f"{len(chosen)} of {len(rows)} requests. " if step > 1 else ""
    note += "Grey: late or connecting; amber: until the first token; then each chunk a tick."
    return lanes(title, "s", [_lane(row, start) for row in chosen], right, note)


def _lane(row: Row, start: float) -> Lane:
    ended = row.ended or row.intended
    sent = row.sent or ended
    first = row.first_token or ended
    fate = "fine" if row.success else ("left" if row.fate in OURS else "lost")
    bars = [
        Bar(row.intended - start, sent - start, "late"),
        Bar(sent - start, first - start, "wait" if row.success or row.token_times else fate),
        Bar(first - start, ended - start, fate),
    ]
    name = f"request {row.index}: {row.fate.value}" + (f", {row.client}" if row.client else "")
    times = row.token_times[:: max(1, -(-len(row.token_times) // TICKS))]
    return Lane(name, [b for b in bars if b.end > b.start], [at - start for at in times])
