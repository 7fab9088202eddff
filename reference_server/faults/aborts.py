"""Faults of hang-ups: the work goes on, its place is lost, or the neighbours pay for it."""

from __future__ import annotations

import math
from collections.abc import Callable

from reference_server.faults.fault import Fault, Place
from reference_server.seams import AT_ONCE, After

LATE = 6.0  # seconds
ON = After(seconds=math.inf)
Rule = Callable[[Place, str, bool], After]


def _if(after: After, when: Callable[[str, bool], bool]) -> Rule:
    """That becomes of the work where `when(how, began)` holds; elsewhere it ends at once."""
    return lambda place, how, began: after if when(how, began) else AT_ONCE


def _always(how: str, began: bool) -> bool:
    return True


def _fin(how: str, began: bool) -> bool:
    return how == "fin"


def _rst(how: str, began: bool) -> bool:
    return how == "rst"


def _early(how: str, began: bool) -> bool:
    return not began


def _begun(how: str, began: bool) -> bool:
    return began


FAULTS = (
    Fault("abort.fin", "A hang-up is not noticed: the engine goes on", hung_up=_if(ON, _always)),
    Fault("abort.fin", "Only a reset is noticed", "only-fin", hung_up=_if(ON, _fin)),
    Fault(
        "abort.fin", "A hang-up is noticed six seconds late", "late",
        hung_up=_if(After(seconds=LATE), _always),
    ),
    Fault(
        "abort.fin", "The place of an aborted request is never given back", "leak",
        hung_up=_if(After(leaks=True), _always),
    ),
    Fault("abort.rst", "A hang-up in mid-stream is not noticed", hung_up=_if(ON, _begun)),
    Fault("abort.rst", "Only a close is noticed", "only-rst", hung_up=_if(ON, _rst)),
    Fault(
        "abort.rst", "A reset is noticed six seconds late", "late",
        hung_up=_if(After(seconds=LATE), _rst),
    ),
    Fault(
        "abort.before-headers", "A hang-up is noticed only once the answer has begun",
        hung_up=_if(ON, _early),
    ),
    Fault(
        "abort.neighbours", "With one request that is aborted the others end as well",
        hung_up=_if(After(cuts=True), _always),
    ),
)  # fmt: skip
