"""All faults by name, and the seams of a server that has some of them."""

from __future__ import annotations

import difflib
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from reference_server.faults import (
    aborts,
    calls,
    company,
    counts,
    events,
    framing,
    glyphs,
    refusals,
    shape,
    stops,
    text,
)
from reference_server.faults.fault import Fault, FaultySeams, request_document
from reference_server.seams import CLEAN, Seams
from reference_server.wire.connection import Request
from reference_server.wire.errors import invalid

HEADER = "x-streamproof-fault"
_ROUTES = ("/v1/chat/completions", "/v1/completions")

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        *framing.FAULTS,
        *events.FAULTS,
        *shape.FAULTS,
        *counts.FAULTS,
        *calls.FAULTS,
        *text.FAULTS,
        *aborts.FAULTS,
        *glyphs.FAULTS,
        *stops.FAULTS,
        *refusals.FAULTS,
        *company.FAULTS,
    )
}


def find(name: str) -> Fault:
    """Raises KeyError with one line that names a likely other."""
    if name in FAULTS:
        return FAULTS[name]
    near = difflib.get_close_matches(name, FAULTS, n=1)
    hint = f"; did you mean {near[0]}?" if near else "; --list-faults lists them"
    raise KeyError(f"no fault is called {name}{hint}")


def listing() -> str:
    """One line for each fault: its name and its title."""
    width = max(len(name) for name in FAULTS)
    return "\n".join(f"{name:<{width}}  {fault.title}" for name, fault in FAULTS.items())


def seams_for(
    always: Sequence[Fault], allowed: bool = False
) -> Callable[[Request, dict[str, Any]], Seams]:
    """The server's `seams`: these faults in every generation, and those that a header names.

    `allowed`: whether the header `x-streamproof-fault: ID[,ID…]` counts. An unknown id in it is
    a 400. Only the generation routes are ever faulty.
    """
    serial = itertools.count()
    shared: defaultdict[str, dict[str, Any]] = defaultdict(dict)

    def seams(request: Request, memory: dict[str, Any]) -> Seams:
        faults = [*always, *(_asked(request) if allowed else ())]
        if not faults or request.path not in _ROUTES:
            return CLEAN
        mine = {fault.name: shared[fault.name] for fault in faults}
        return FaultySeams(faults, request_document(request.body), next(serial), memory, mine)

    return seams


def _asked(request: Request) -> list[Fault]:
    names = [name.strip() for name in request.headers.get(HEADER, "").split(",")]
    try:
        return [find(name) for name in names if name]
    except KeyError as error:
        raise invalid(str(error.args[0]), HEADER) from None
