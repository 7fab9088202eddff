"""Loads of an experiment that nobody played: rows by hand, and what a server said meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conformance.capture import Capture, Json
from loadgen.crosstalk import Solo
from loadgen.experiments.figures import Shot
from loadgen.experiments.spec import Load
from loadgen.experiments.staging import Turn
from loadgen.looking import Tally
from loadgen.measure import Row
from loadgen.result import Ran, Target, result_of
from loadgen.server_metrics import Sample, Served
from loadgen.summary import Window


def shot(
    load: str,
    rows: Sequence[Row],
    *,
    round: int = 0,
    n: int | None = None,
    how: str | None = None,
    samples: Sequence[Sample] = (),
    tokens: float | None = None,
    solo: Solo | None = None,
    lags: Sequence[float] = (0.001,),
    described: Mapping[str, Json] | None = None,
    captures: Mapping[int, Capture] | None = None,
) -> Shot:
    """`samples`, `tokens`: of the server's metrics page."""
    ran = Ran(
        target=Target("http://h/v1", "chat", "m"),
        load=described or {},
        rows=list(rows),
        tally=Tally(),
        gates=(),
        window=Window(0.0, 1e6),
        lags=lags,
        complete=True,
        steady=False,
        solo=solo,
        served=Served("streamproof", tuple(samples), tokens, None) if samples else None,
    )
    turn = Turn(Load(load, ()), round, n, how)
    return Shot(turn, result_of(ran, (), 0, "0"), dict(captures or {}))


def level(at: float, running: float, waiting: float = 0.0, **more: float) -> Sample:
    return Sample(at, {"running": running, "waiting": waiting, **more})
