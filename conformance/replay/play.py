"""Playing it: the recorded connections again, those that overlapped at once."""

from __future__ import annotations

from dataclasses import replace

import trio

from conformance.capture import Capture, Json
from conformance.dossier import Dossier
from conformance.recorder import Recorder
from conformance.replay.script import Groups, Line, is_cut_short


async def play(dossier: Dossier, groups: Groups, recorder: Recorder) -> Dossier:
    """The dossier as it comes out today: same roles, same choices, new captures."""
    taken: dict[tuple[str, int], Capture] = {}
    picked: dict[str, Json] = {k: v for k, v in dossier.picked.items() if k != "abstain"}
    for group in groups:
        async with trio.open_nursery() as nursery:
            for line in group:
                nursery.start_soon(_line, line, recorder, taken)
    if picked.get("reused") or is_cut_short(dossier):
        picked["reused"] = all(key in taken for group in groups for key in _keys(group))
    roles = {
        role: tuple(taken[key] for key in sorted(taken) if key[0] == role) for role in dossier.roles
    }
    return replace(dossier, roles=roles, picked=picked, samples=(), actions=())


def _keys(group: tuple[Line, ...]) -> list[tuple[str, int]]:
    return [(turn.role, turn.take) for line in group for turn in line.turns]


async def _line(line: Line, recorder: Recorder, taken: dict[tuple[str, int], Capture]) -> None:
    await trio.sleep(line.after)
    async with recorder.connection() as connection:
        for turn in line.turns:
            if not connection.usable:
                return
            taken[turn.role, turn.take] = await connection.exchange(turn.script)
