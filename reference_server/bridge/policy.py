"""What is done about a client that reads more slowly than the engine writes. Pure.

Only `naive` lets the engine wait for a reader. All but `unbounded` bound what a stream holds:
`full` says when, in events of a step (each choice may give one) and in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from math import inf

from reference_server.engine.interface import Delta, Event

KIND = "slow_client"  # the type of the error event that a dropped client gets
BEHIND = 16  # steps that a reader may be late before its text is put together
_EVENT = 200  # bytes of a chunk around its text
_ENTRY = 100  # bytes of a token with its log-probability


class Full(Enum):
    """What happens to a stream that holds as much as it may."""

    PAUSE = "pause"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class SlowPolicy:
    """`steps` and `size` (bytes) are the high-water marks; the low ones are a quarter of them.

    `patience`: seconds that a pause may last before the stream is dropped.
    """

    name: str
    steps: float = 64
    size: float = 256 * 1024
    full: Full = Full.PAUSE
    patience: float = inf
    merges: bool = False  # the text of one choice is put together while its reader is behind
    waits: bool = False  # no step is done before all is written


POLICIES: Mapping[str, SlowPolicy] = {
    policy.name: policy
    for policy in (
        SlowPolicy("unbounded", steps=inf, size=inf),
        SlowPolicy("pause"),
        SlowPolicy("drop", full=Full.DROP),
        SlowPolicy("coalesce", steps=inf, patience=5.0, merges=True),
        SlowPolicy("pause-then-drop", patience=5.0),
        SlowPolicy("naive", steps=inf, size=inf, waits=True),
    )
}
# Nobody waits and nothing is lost: a slow reader gets its text in fewer, longer pieces, and its
# place in the batch is free again as soon as for any other.
DEFAULT = "coalesce"


def merged(first: Delta, then: Delta) -> Delta:
    """Two deltas of one choice as one."""
    return replace(
        first,
        text=first.text + then.text,
        tokens=first.tokens + then.tokens,
        logprobs=first.logprobs + then.logprobs,
        finish=then.finish,
        token_ids=first.token_ids + then.token_ids,
    )


def weight(event: Event) -> int:
    """About how many bytes the event takes when it is written."""
    if not isinstance(event, Delta):
        return _EVENT
    size = _EVENT + len(event.text.encode()) + 8 * len(event.token_ids)
    if event.logprobs:
        size += _ENTRY * sum(1 + len(entry.top) for entry in event.logprobs)
    return size
