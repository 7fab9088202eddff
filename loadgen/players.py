"""Who plays the load of a setup: the same player in this process and in each worker."""

from __future__ import annotations

from functools import partial

from loadgen.courses import course_of
from loadgen.load import Limits
from loadgen.play import Player, Take
from loadgen.preflight import Endpoint
from loadgen.recording import Recording
from loadgen.setup import Setup
from loadgen.workload import Workload


def player_of(
    setup: Setup,
    endpoint: Endpoint,
    workload: Workload,
    made: Recording,
    take: Take,
    limits: Limits | None = None,
) -> Player:
    """`limits`: in place of the setup's."""
    script = partial(setup.script, endpoint, workload)
    course = course_of(workload, partial(setup.exchange, endpoint))
    bounds = limits or setup.limits
    return Player(made.recorder, script, take, bounds, made.sleep, made.watch, course=course)
