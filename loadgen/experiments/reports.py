"""Which function reads what was played, and what the table it makes has for columns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from loadgen.experiments import leavers, plots, readers, streams
from loadgen.experiments.figures import Shot
from loadgen.experiments.table import Column, Table

Make = Callable[[Sequence[Shot], Mapping[str, int]], Table]
Broke = Callable[[Shot, Mapping[str, int]], str | None]
Draw = Callable[[Sequence[Shot], Table], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Report:
    """`draw`: the figures of its page. `broke`: what went wrong in a load, for experiments that end
    there and call it a finding. `captures`: it reads the bytes too.
    """

    columns: tuple[Column, ...]
    make: Make
    draw: Draw
    broke: Broke | None = None
    captures: bool = False


REPORTS: Mapping[str, Report] = {
    "overlap": Report(streams.OVERLAP, streams.overlap, plots.scaling),
    "joiners": Report(streams.ARRIVALS, streams.joiners, plots.company),
    "long-prompt": Report(streams.ARRIVALS, streams.long_prompt, plots.company),
    "many-streams": Report(streams.MANY, streams.many_streams, plots.scaling, broke=streams.broke),
    "slow-readers": Report(readers.SLOW, readers.slow_readers, plots.company),
    "buffers": Report(readers.BUFFERS, readers.buffers, plots.bytes_read, captures=True),
    "hang-ups": Report(leavers.HANG_UPS, leavers.hang_ups, plots.looked_at),
    "leaks": Report(leavers.LEAKS, leavers.leaks, plots.looked_at),
}
