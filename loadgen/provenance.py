"""How the times of a run were made, and how far off such times are on this machine: lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from conformance.capture import Json
from conformance.report.escape import terminal
from loadgen.bounds import AS_READ, AT_MOST, Known
from loadgen.result import Result

NO_SELFTEST = "selftest: none of this machine on record by this clock (loadgen selftest)"

BY_READS = f"each is when a read returned: {AT_MOST} that or less; {AS_READ} between two such times"


def lines(result: Result) -> Iterator[str]:
    """The clock and who recorded; how many times are bounds; the selftest's figures."""
    known = BY_READS if result.summary.is_by_reads else _bounds(result.summary.times)
    yield f"times: {_made(result.load)}; {known}"
    is_tls = result.target.url.startswith("https:")
    yield from _selftest(result.selftest, result.load.get("clock"), " without TLS" * is_tls)


def _made(load: Mapping[str, Json]) -> str:
    known = [f"{key} {load[key]}" for key in ("clock", "recorder", "pacing") if load.get(key)]
    why = load.get("clock_because")
    because = f" (not the kernel's: {why})" if why else ""
    return terminal(f"{', '.join(known) or 'not said how'}{because}")


def _bounds(known: Known) -> str:
    """How many of them are values."""
    if not known.chunks:
        return "no chunk with text"
    share = f"{known.bounds} of {known.chunks} chunks' times are bounds ({known.share:.2%})"
    return f"{share}, first tokens {known.first_bounds} of {known.first}; the others are values"


def _selftest(quote: Json, clock: Json, how: str) -> Iterator[str]:
    """Of each load that was tried by this clock."""
    found = [load for load in _loads(quote) if load.get("clock") == clock]
    if not found:
        yield NO_SELFTEST
    for load in found:
        off = ", ".join(f"{name} {_p99(load, name)}" for name in ("ttft", "gap"))
        streams = f"{load.get('streams')} streams × {load.get('events_a_second')} events/s"
        valid = "" if load.get("valid") else ", not valid"
        at = quote.get("at") if isinstance(quote, dict) else None
        yield terminal(f"selftest of {at}{how}, {streams}{valid}: p99 of the error: {off}")


def _loads(quote: Json) -> Iterator[Mapping[str, Any]]:
    loads = quote.get("loads") if isinstance(quote, dict) else None
    yield from (load for load in loads if isinstance(load, dict)) if isinstance(loads, list) else ()


def _p99(load: Mapping[str, Any], name: str) -> str:
    """Of the size of all errors, values and bounds."""
    errors = load.get("errors")
    found = errors.get(name) if isinstance(errors, dict) else None
    every = found.get("all") if isinstance(found, dict) else None
    value = every.get("p99") if isinstance(every, dict) else None
    return f"{value * 1e3:.3f} ms" if isinstance(value, int | float) else "–"
