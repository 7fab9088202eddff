"""Scenarios: ways to provoke an endpoint, by name. What each sends is data; see `asks`."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.scenarios.abort import ABORT
from conformance.scenarios.crowd import CROWD
from conformance.scenarios.dialect import DISCOVERY
from conformance.scenarios.invalid import INVALID
from conformance.scenarios.keep_alive import KEEP_ALIVE
from conformance.scenarios.limit import LIMIT
from conformance.scenarios.pair import PAIR
from conformance.scenarios.scenario import Scenario
from conformance.scenarios.slow_read import SLOW_READ
from conformance.scenarios.stop_cut import STOP_CUT
from conformance.scenarios.storm import STORM
from conformance.scenarios.stream import STREAM
from conformance.scenarios.tools import TOOLS

SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        DISCOVERY,
        STREAM,
        PAIR,
        TOOLS,
        LIMIT,
        KEEP_ALIVE,
        STOP_CUT,
        CROWD,
        INVALID,
        ABORT,
        SLOW_READ,
        STORM,
    )
}
