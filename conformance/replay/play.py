"""Playing it: the recorded connections again, those that overlapped at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import trio

from conformance.capture import Capture, Json
from conformance.dossier import Action, Dossier, Sample
from conformance.recorder import ANSWERED, Recorder
from conformance.replay.script import Groups, Line, is_cut_short, rest
from conformance.scenarios.meter import Meter


@dataclass(slots=True)
class _Stage:
    """What has come out so far."""

    recorder: Recorder
    taken: dict[tuple[str, int], Capture] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)


async def play(
    dossier: Dossier, groups: Groups, recorder: Recorder, meter: Meter | None = None
) -> Dossier:
    """The dossier as it comes out today: same roles, same choices, new captures.

    `meter`: the server's own metrics, watched from beginning to end.
    """
    stage = _Stage(recorder)
    async with trio.open_nursery() as watch:
        if meter is not None:
            watch.start_soon(_watch, meter, stage)
        for group in groups:
            async with trio.open_nursery() as nursery:
                for line in group:
                    nursery.start_soon(_line, line, stage)
        await trio.sleep(rest(dossier) if meter is not None else 0)
        watch.cancel_scope.cancel()
    return _played(dossier, groups, stage)


def _played(dossier: Dossier, groups: Groups, stage: _Stage) -> Dossier:
    taken = stage.taken
    picked: dict[str, Json] = {k: v for k, v in dossier.picked.items() if k != "abstain"}
    if picked.get("reused") or is_cut_short(dossier):
        picked["reused"] = all(key in taken for group in groups for key in _keys(group))
    roles = {
        role: tuple(taken[key] for key in sorted(taken) if key[0] == role) for role in dossier.roles
    }
    return replace(
        dossier,
        roles=roles,
        picked=picked,
        samples=tuple(stage.samples),
        actions=tuple(stage.actions),
    )


async def _watch(meter: Meter, stage: _Stage) -> None:
    while True:  # a meter ends after so many scrapes; how long this takes is the record's affair
        await meter.watch(stage.samples)


def _keys(group: tuple[Line, ...]) -> list[tuple[str, int]]:
    return [(turn.role, turn.take) for line in group for turn in line.turns]


async def _line(line: Line, stage: _Stage) -> None:
    await trio.sleep(line.after)
    async with stage.recorder.connection() as connection:
        for turn in line.turns:
            if not connection.usable:
                return
            note = partial(_note, stage, turn.role)
            stage.taken[turn.role, turn.take] = await connection.exchange(turn.script, note)


def _note(stage: _Stage, role: str, at: float, what: str) -> None:
    if what != ANSWERED:
        stage.actions.append(Action(at, what, role))
