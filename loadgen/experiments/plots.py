"""The figures of an experiment. Pure: what was played and its table → SVG.

Where times are bounds they are drawn as they were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from loadgen.experiments.figures import Shot, gaps, role
from loadgen.experiments.table import Column, Table, number
from loadgen.plots import distributions, gauges, swim_lanes
from loadgen.result import Result
from loadgen.svg import Plot, Point, Series, plot

# Title → unit, and columns that are drawn together where a table has them.
SCALED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "Throughput": ("tokens/s", ("tokens-s",)),
    "Gaps between chunks": ("ms", ("gap-p50", "gap-p99")),
    "Time to the first token": ("ms", ("ttft-p50", "ttft-max")),
    "What became of the requests": ("requests", ("whole", "refused", "failed")),
}
OVERLAID = 4  # loads in one plot: there are no more colours


def scaling(shots: Sequence[Shot], table: Table) -> Iterator[str]:
    """The table's columns against its first, the number of streams; then the greatest of them."""
    columns = {column.name: column for column in table.columns}
    for title, (unit, names) in SCALED.items():
        known = [(name, _points(table, columns[name])) for name in names if name in columns]
        series = [Series(name, each, hue, "marked") for hue, (name, each) in enumerate(known)]
        if any(each.points for each in series):
            yield plot(Plot(title, "streams at once", unit, series, is_doubling=True))
    greatest = max(first_round(shots), key=lambda shot: shot.turn.n or 0, default=None)
    if greatest is not None:
        yield swim_lanes(_drawn(greatest), f"Streams · {greatest.turn.name}")


def _points(table: Table, column: Column) -> list[Point]:
    first, scale = table.columns[0].name, 1e3 if column.shown == "ms" else 1.0
    pairs = [(number(row.get(first)), number(row.get(column.name))) for row in table.rows]
    return [(x, y * scale) for x, y in pairs if x is not None and y is not None]


def company(shots: Sequence[Shot], table: Table) -> Iterator[str]:
    """Gaps of the ordinary streams in each load, all rounds; and who was there, and when."""
    loads = list(dict.fromkeys(shot.turn.load.name for shot in shots))[:OVERLAID]
    pools = {
        load: sorted(gap * 1e3 for s in shots if s.turn.load.name == load for gap in _gaps(s))
        for load in loads
    }
    is_bounded = any(shot.result.summary.times.bounds for shot in shots)
    title = "Gaps between chunks of the ordinary streams"
    yield plot(distributions(title, pools, is_bounded=is_bounded))
    for shot in first_round(shots)[:OVERLAID]:
        yield swim_lanes(_drawn(shot), f"Streams · {shot.turn.name}")


def _gaps(shot: Shot) -> list[float]:
    return gaps(role(shot.result.rows))


def looked_at(shots: Sequence[Shot], table: Table) -> Iterator[str]:
    """The server's gauges during each load of the first round."""
    for shot in first_round(shots):
        if shot.result.served is not None and shot.result.served.samples:
            yield plot(gauges(_drawn(shot), f"Requests, by the server · {shot.turn.name}"))


def bytes_read(shots: Sequence[Shot], table: Table) -> Iterator[str]:
    """How much of each answer had been read, and when."""
    series = [
        Series(shot.turn.name, _read(shot), hue % OVERLAID, "steps")
        for hue, shot in enumerate(first_round(shots))
    ]
    if any(each.points for each in series):
        yield plot(Plot("Bytes of the answer that were read", "s", "bytes", series))


def _read(shot: Shot) -> list[Point]:
    """From the first request's send on."""
    start = min((row.sent for row in shot.result.rows if row.sent is not None), default=0.0)
    reads = [read for capture in shot.captures.values() for read in capture.reads]
    known = [(max(0.0, read.at - start), read.end) for read in reads if read.at is not None]
    return [(0.0, 0.0), *known] if known else []


def first_round(shots: Sequence[Shot]) -> list[Shot]:
    return [shot for shot in shots if shot.turn.round == 0]


def _drawn(shot: Shot) -> Result:
    """With a window that begins with the first request, or look at the server: times are drawn
    from there on."""
    result = shot.result
    looks = [sample.at for sample in result.served.samples[:1]] if result.served else []
    start = min([row.intended for row in result.rows] or looks, default=0.0)
    window = replace(result.summary.window, start=start)
    return replace(result, summary=replace(result.summary, window=window))
