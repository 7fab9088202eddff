"""After the load: some of its requests once more, each alone and twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from conformance.recorder import Recorder
from conformance.script import Exchange
from loadgen.clients import NOBODY
from loadgen.crosstalk import Solo
from loadgen.measure import Row, row_from
from loadgen.played import Played
from loadgen.workload import Workload

Script = Callable[[Workload, int], Exchange]


async def alone(
    recorder: Recorder, script: Script, workload: Workload, rows: Sequence[Row], most: int
) -> Solo:
    """At most so many of the requests that came whole, spread over the load; of sessions first
    turns alone, which hang on no earlier answer."""
    ordinary = replace(workload, clients=NOBODY)
    whole = [
        row
        for row in rows
        if row.success and row.client is None and row.answer_hash and not row.turn
    ]
    chosen = whole[:: max(1, -(-len(whole) // most))]
    repeats, differs = 0, []
    for row in chosen:
        answers = {await _answer(recorder, script, ordinary, row.index) for _ in range(2)}
        if len(answers) == 1 and None not in answers:
            repeats += 1
            if row.answer_hash not in answers:
                differs.append(row.index)
    return Solo(len(chosen), repeats, tuple(differs))


async def _answer(recorder: Recorder, script: Script, workload: Workload, index: int) -> str | None:
    capture = await recorder.exchange(script(workload, index))
    row = row_from(Played(index, 0.0, 0.0, capture), workload.ask(index), workload.api)
    return row.answer_hash if row.success else None
