"""Python's garbage collector kept short while a load is played, and while it is looked at.

A full collection walks every object there is, and a load keeps what it recorded: tens of
milliseconds in which nothing is sent or read, again and again. What is old is therefore set aside
from time to time (`gc.freeze` only moves lists), so that a collection walks what is new.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

EVERY = 0.1  # seconds
SELDOM = 10_000  # objects more than before, after which the young ones are walked


@contextmanager
def short_collections() -> Iterator[None]:
    """Afterwards all is as before: cycles that were set aside are found by the next collection."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(SELDOM, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def set_aside() -> None:
    """Now and then, meanwhile. Exchanges leave no cycles, and errors few that live so long."""
    gc.freeze()
