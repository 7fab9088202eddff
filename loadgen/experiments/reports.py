"""Which function reads what was played, and what the table it makes has for columns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loadgen.experiments import leavers, readers, streams
from loadgen.experiments.figures import Shot
from loadgen.experiments.table import Column, Table

Make = Callable[[Sequence[Shot], Mapping[str, int]], Table]
Broke = Callable[[Shot, Mapping[str, int]], str | None]


@dataclass(frozen=True, slots=True)
class Report:
    """`broke`: what went wrong in a load, for experiments that end there and call it a finding.

    `captures`: it reads the bytes too.
    """

    columns: tuple[Column, ...]
    make: Make
    broke: Broke | None = None
    captures: bool = False


REPORTS: Mapping[str, Report] = {
    "overlap": Report(streams.OVERLAP, streams.overlap),
    "joiners": Report(streams.ARRIVALS, streams.joiners),
    "long-prompt": Report(streams.ARRIVALS, streams.long_prompt),
    "many-streams": Report(streams.MANY, streams.many_streams, broke=streams.broke),
    "slow-readers": Report(readers.SLOW, readers.slow_readers),
    "buffers": Report(readers.BUFFERS, readers.buffers, captures=True),
    "hang-ups": Report(leavers.HANG_UPS, leavers.hang_ups),
    "leaks": Report(leavers.LEAKS, leavers.leaks),
}
