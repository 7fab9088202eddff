"""Does a server show its own metrics? Then what scrapes them."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.metrics import MAPS, detect, map_from_names, values_from
from conformance.recorder import Recorder
from conformance.scenarios.meter import Meter
from conformance.target import Target, Url, request_bytes

Fields = tuple[tuple[str, str], ...]


def path_beside(url: Url) -> str:
    """Where the metrics page stands, if it stands beside the API."""
    return url.path.removesuffix("/v1") + "/metrics"


def same_server(one: Url, other: Url) -> bool:
    """May what is meant for one be told to the other?"""
    return (one.scheme, one.authority, one.unix) == (other.scheme, other.authority, other.unix)


async def meter_of(
    recorder: Recorder, target: Target, path: str, names: Mapping[str, str], fields: Fields
) -> Meter | None:
    """One look at the page. None if it has none of the numbers that `names`, or we, know.

    `fields`: header fields with secrets in them, for this server alone.
    """
    meter = Meter(recorder, request_bytes(target, path, None, secrets=fields))
    rows = await meter.look()
    name = detect(rows)
    if names:
        meter.known = map_from_names(names)
    elif name is not None:
        meter.known = MAPS[name]
    return meter if meter.known is not None and values_from(rows, meter.known) else None
