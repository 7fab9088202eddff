"""What became of each scheduled request: exactly one fate, from a table without holes. Pure.

The fates of a request that was sent are the outcomes of conformance's `lifecycle` and two more,
for streams that end in order and give nobody an answer. Scheduled = sent + dropped + cancelled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from conformance.lifecycle import Close, Outcome, close_from_capture
from conformance.reading import Form, Reading


class Fate(Enum):
    """One for each scheduled request."""

    COMPLETE = "complete"
    COMPLETE_UNTERMINATED = "complete-unterminated"  # finished, but no sentinel
    TOKENLESS = "tokenless"  # finished, and not one token came
    UNFINISHED = "unfinished"  # the sentinel, but a choice has no finish reason
    NOT_CONNECTED = "not-connected"
    TLS_FAILED = "tls-failed"
    REFUSED = "refused"  # an HTTP status of 400 or more
    NO_ANSWER = "no-answer"
    UNREADABLE = "unreadable"
    EMPTY = "empty"
    ERROR_BEFORE_TOKEN = "error-before-token"
    ERROR_AFTER_TOKEN = "error-after-token"
    TRUNCATED = "truncated"
    STALLED = "stalled"
    OVER_LONG = "over-long"  # our bound
    LEFT = "left"  # we hung up
    DROPPED = "dropped"  # its time came and a limit of ours did not let it go
    CANCELLED = "cancelled"  # the run was interrupted before its time, or its client had left
    UNREACHED = "unreached"  # an earlier turn of its session failed


SUCCESSES = frozenset({Fate.COMPLETE, Fate.COMPLETE_UNTERMINATED})
UNSENT = frozenset({Fate.DROPPED, Fate.CANCELLED, Fate.UNREACHED})
# Nobody's failure: the run was interrupted, or a client of ours left.
OURS = frozenset({Fate.LEFT, Fate.CANCELLED})


class Lack(Enum):
    """What a stream that ended in order lacks all the same."""

    NOTHING = "nothing"
    FINISH = "finish"  # a choice without a finish reason
    TOKEN = "token"  # no content, reasoning, refusal or tool call at all


_SAME = {
    Outcome.NOT_CONNECTED: Fate.NOT_CONNECTED,
    Outcome.TLS_FAILED: Fate.TLS_FAILED,
    Outcome.REFUSED: Fate.REFUSED,
    Outcome.NO_ANSWER: Fate.NO_ANSWER,
    Outcome.UNREADABLE: Fate.UNREADABLE,
    Outcome.LEFT: Fate.LEFT,
    Outcome.EMPTY: Fate.EMPTY,
    Outcome.ERROR_BEFORE_TOKEN: Fate.ERROR_BEFORE_TOKEN,
    Outcome.ERROR_AFTER_TOKEN: Fate.ERROR_AFTER_TOKEN,
    Outcome.TRUNCATED: Fate.TRUNCATED,
    Outcome.STALLED: Fate.STALLED,
    Outcome.OVER_LONG: Fate.OVER_LONG,
}
# None: the answer to a request that never left whole, and no event stream: it has no life.
FATES: Mapping[tuple[Outcome | None, Lack], Fate] = {
    **{(None, lack): Fate.EMPTY for lack in Lack},
    **{(outcome, lack): fate for outcome, fate in _SAME.items() for lack in Lack},
    (Outcome.COMPLETE, Lack.NOTHING): Fate.COMPLETE,
    (Outcome.COMPLETE, Lack.FINISH): Fate.UNFINISHED,
    (Outcome.COMPLETE, Lack.TOKEN): Fate.TOKENLESS,
    (Outcome.COMPLETE_UNTERMINATED, Lack.NOTHING): Fate.COMPLETE_UNTERMINATED,
    (Outcome.COMPLETE_UNTERMINATED, Lack.FINISH): Fate.UNFINISHED,
    (Outcome.COMPLETE_UNTERMINATED, Lack.TOKEN): Fate.TOKENLESS,
}


def fate_of(reading: Reading) -> Fate:
    """The fate of one request that was sent."""
    if reading.form is Form.PLAIN and reading.asked("stream") is False:
        return _plain_fate(reading)
    return FATES[reading.outcome, lack_of(reading)]


# What ended a plain answer before it was whole.
_CUT_SHORT = {
    Close.CUT: Fate.TRUNCATED,
    Close.STALLED: Fate.STALLED,
    Close.LEFT: Fate.LEFT,
    Close.BOUND: Fate.OVER_LONG,
}


def _plain_fate(reading: Reading) -> Fate:
    """Of an answer that was not to be streamed: whole only with text and every finish reason."""
    close = close_from_capture(reading.capture, reading.complete)
    if close in _CUT_SHORT:
        return _CUT_SHORT[close]
    value = None if reading.document is None else reading.document.value
    if not isinstance(value, dict):
        return Fate.UNREADABLE if reading.body.strip() else Fate.EMPTY
    choices = reading.plain_choices
    if not choices:
        return Fate.EMPTY if value.get("error") is None else Fate.ERROR_BEFORE_TOKEN
    if not any(choice.carries for choice in choices):
        return Fate.TOKENLESS
    finished = all(isinstance(choice.finish_reason, str) for choice in choices)
    return Fate.COMPLETE if finished else Fate.UNFINISHED


def lack_of(reading: Reading) -> Lack:
    """A token that is missing tells more than a finish that is."""
    life = reading.life
    if life is None:
        return Lack.NOTHING
    if not any(piece.carries for choice in life.choices for _, piece in choice.pieces):
        return Lack.TOKEN
    return Lack.FINISH if life.unfinished else Lack.NOTHING


@dataclass(frozen=True, slots=True)
class Sums:
    """The books of a run. `of`: fate → requests, only those that occurred.

    `cancelled`: turns that were not reached among them.
    """

    scheduled: int
    sent: int
    dropped: int
    cancelled: int
    succeeded: int
    failed: int  # neither a success nor ours
    of: Mapping[Fate, int]


def sums(fates: Iterable[Fate]) -> Sums:
    """Scheduled = sent + dropped + cancelled, and sent = succeeded + failed + left."""
    counts = Counter(fates)
    scheduled = counts.total()
    dropped = counts[Fate.DROPPED]
    cancelled = counts[Fate.CANCELLED] + counts[Fate.UNREACHED]
    succeeded = sum(counts[fate] for fate in SUCCESSES)
    ours = dropped + cancelled + counts[Fate.LEFT]
    return Sums(
        scheduled=scheduled,
        sent=scheduled - dropped - cancelled,
        dropped=dropped,
        cancelled=cancelled,
        succeeded=succeeded,
        failed=scheduled - succeeded - ours,
        of={fate: counts[fate] for fate in Fate if counts[fate]},
    )
