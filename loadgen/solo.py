"""After the load: some of its requests once more, each alone and twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from conformance.recorder import Recorder
from conformance.script import Exchange
from loadgen.clients import NOBODY
from loadgen.crosstalk import Solo
from loadgen.looking import Look
from loadgen.measure import row_from
from loadgen.played import Played
from loadgen.workload import Ask, Place, Workload

Script = Callable[[Ask], Exchange]


async def alone(
    recorder: Recorder, script: Script, workload: Workload, looks: Sequence[Look], most: int
) -> Solo:
    """At most so many of the requests that came whole, spread over the load.

    A later turn of a session repeats the answers that the load itself brought, as it did there.
    """
    ordinary = replace(workload, clients=NOBODY)
    rows = sorted((look.row for look in looks), key=lambda row: row.index)
    said = {look.row.index: look.said for look in looks if look.said is not None}
    whole = [row for row in rows if row.success and row.client is None and row.answer_hash]
    chosen = whole[:: max(1, -(-len(whole) // most))]
    repeats, differs = 0, []
    for row in chosen:
        ask = ordinary.ask(row.index, _before(workload, row.index, said))
        answers = {await _answer(recorder, script(ask), ask, workload.api) for _ in range(2)}
        if len(answers) == 1 and None not in answers:
            repeats += 1
            if row.answer_hash not in answers:
                differs.append(row.index)
    return Solo(len(chosen), repeats, tuple(differs))


def _before(workload: Workload, index: int, said: Mapping[int, str]) -> list[str]:
    """The answers to the turns before that one, each to whichever attempt had one."""
    place = workload.place(index)
    tries = range(workload.attempts)
    turns = [[workload.index(Place(place.unit, t, n)) for n in tries] for t in range(place.turn)]
    return [next(said[each] for each in turn if each in said) for turn in turns]


async def _answer(recorder: Recorder, script: Exchange, ask: Ask, api: str) -> str | None:
    capture = await recorder.exchange(script)
    row = row_from(Played(ask.index, 0.0, 0.0, capture), ask, api)
    return row.answer_hash if row.success else None
