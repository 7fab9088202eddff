"""The life of a stream as one transition table, and what became of it.

Chunks go in, one outcome per choice and one per exchange comes out. A step for which the table
has no row breaks the protocol: it is kept as a `Stray` and the phase stays. "Complete" is never
inferred from the end of the body: only a finish reason and the sentinel make it so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from conformance.capture import Capture, How, Json
from conformance.chunks import Choice, Chunk, Kind, Maybe, Tool


class Phase(Enum):
    """How far a stream has come."""

    NOTHING = "nothing"  # no event yet
    OPENED = "opened"  # chunks, no text yet
    FLOWING = "flowing"  # text, reasoning, refusal or a tool call was seen
    FINISHED = "finished"  # every expected choice has its finish reason
    TERMINATED = "terminated"  # the sentinel was seen
    FAILED_BEFORE = "failed-before"  # an in-band error before any text
    FAILED_AFTER = "failed-after"  # an in-band error after text

    __hash__ = object.__hash__  # as for chunks.Kind


class Step(Enum):
    """What one event means for the stream's life."""

    CHUNK = "chunk"  # a chunk without text: role, usage, empty delta
    TEXT = "text"  # text for a choice that had not finished
    FINISH = "finish"  # with this chunk every expected choice has finished
    LATE = "late"  # text, or a second finish, for a choice that had finished
    DONE = "done"
    ERROR = "error"
    JUNK = "junk"  # unreadable, foreign, empty

    __hash__ = object.__hash__


class Outcome(Enum):
    """What became of an exchange."""

    NOT_CONNECTED = "not-connected"
    TLS_FAILED = "tls-failed"
    REFUSED = "refused"  # an HTTP status of 400 or more
    NO_ANSWER = "no-answer"  # a clock ran out, or the peer hung up, before a head
    UNREADABLE = "unreadable"  # not HTTP that can be read on
    LEFT = "left"  # by us, before it was over
    EMPTY = "empty"  # a whole body without one chunk
    ERROR_BEFORE_TOKEN = "error-before-token"
    ERROR_AFTER_TOKEN = "error-after-token"
    TRUNCATED = "truncated"
    STALLED = "stalled"
    COMPLETE_UNTERMINATED = "complete-unterminated"  # finished, but no sentinel
    COMPLETE = "complete"
    OVER_LONG = "over-long"  # our bound


class Close(Enum):
    """How the body ended."""

    WHOLE = "whole"  # by HTTP framing, or by FIN where the framing leaves it to that
    CUT = "cut"  # closed or reset before the framing said so
    STALLED = "stalled"  # one of our clocks
    LEFT = "left"
    BOUND = "bound"


P, S, R, C = Phase, Step, Outcome, Close

TRANSITIONS: dict[tuple[Phase, Step], Phase] = {
    (P.NOTHING, S.CHUNK): P.OPENED,
    (P.NOTHING, S.TEXT): P.FLOWING,
    (P.NOTHING, S.FINISH): P.FINISHED,
    (P.NOTHING, S.DONE): P.TERMINATED,
    (P.NOTHING, S.ERROR): P.FAILED_BEFORE,
    (P.NOTHING, S.JUNK): P.NOTHING,
    (P.OPENED, S.CHUNK): P.OPENED,
    (P.OPENED, S.TEXT): P.FLOWING,
    (P.OPENED, S.FINISH): P.FINISHED,
    (P.OPENED, S.DONE): P.TERMINATED,
    (P.OPENED, S.ERROR): P.FAILED_BEFORE,
    (P.OPENED, S.JUNK): P.OPENED,
    (P.FLOWING, S.CHUNK): P.FLOWING,
    (P.FLOWING, S.TEXT): P.FLOWING,
    (P.FLOWING, S.FINISH): P.FINISHED,
    (P.FLOWING, S.DONE): P.TERMINATED,
    (P.FLOWING, S.ERROR): P.FAILED_AFTER,
    (P.FLOWING, S.JUNK): P.FLOWING,
    (P.FINISHED, S.CHUNK): P.FINISHED,  # usage
    (P.FINISHED, S.TEXT): P.FLOWING,  # a further choice, n not known to us
    (P.FINISHED, S.FINISH): P.FINISHED,  # the same, in one chunk
    (P.FINISHED, S.DONE): P.TERMINATED,
    (P.FINISHED, S.ERROR): P.FAILED_AFTER,
    (P.FINISHED, S.JUNK): P.FINISHED,
    (P.FAILED_BEFORE, S.DONE): P.FAILED_BEFORE,
    (P.FAILED_AFTER, S.DONE): P.FAILED_AFTER,
}

OUTCOMES: dict[tuple[Phase, Close], Outcome] = {
    (P.NOTHING, C.WHOLE): R.EMPTY,
    (P.NOTHING, C.CUT): R.TRUNCATED,
    (P.OPENED, C.WHOLE): R.TRUNCATED,
    (P.OPENED, C.CUT): R.TRUNCATED,
    (P.FLOWING, C.WHOLE): R.TRUNCATED,
    (P.FLOWING, C.CUT): R.TRUNCATED,
    (P.FINISHED, C.WHOLE): R.COMPLETE_UNTERMINATED,
    (P.FINISHED, C.CUT): R.TRUNCATED,
    **{(phase, C.STALLED): R.STALLED for phase in (P.NOTHING, P.OPENED, P.FLOWING, P.FINISHED)},
    **{(phase, C.LEFT): R.LEFT for phase in (P.NOTHING, P.OPENED, P.FLOWING, P.FINISHED)},
    **{(phase, C.BOUND): R.OVER_LONG for phase in (P.NOTHING, P.OPENED, P.FLOWING, P.FINISHED)},
    **{(P.TERMINATED, close): R.COMPLETE for close in Close},
    **{(P.FAILED_BEFORE, close): R.ERROR_BEFORE_TOKEN for close in Close},
    **{(P.FAILED_AFTER, close): R.ERROR_AFTER_TOKEN for close in Close},
}

# After these nothing is added to a choice any more.
_OVER = (P.TERMINATED, P.FAILED_BEFORE, P.FAILED_AFTER)

_STEPS = {
    Kind.DONE: Step.DONE,
    Kind.ERROR: Step.ERROR,
    Kind.BAD_DONE: Step.JUNK,
    Kind.FOREIGN: Step.JUNK,
    Kind.SCALAR: Step.JUNK,
    Kind.UNREADABLE: Step.JUNK,
    Kind.EMPTY: Step.JUNK,
}


@dataclass(frozen=True, slots=True)
class Stray:
    """A step without a row: chunk `at` came in `phase`, where `step` may not happen."""

    at: int  # index into the chunks
    phase: Phase
    step: Step


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call, its fragments joined by index (absent index: by position)."""

    index: Json
    fragments: tuple[tuple[int, Tool], ...]  # (index into the chunks, fragment)

    @property
    def arguments(self) -> str:
        """The argument text, string fragments only."""
        return "".join(t.arguments for _, t in self.fragments if isinstance(t.arguments, str))

    @property
    def name(self) -> str | None:
        """The first non-empty name, if any."""
        names = (t.name for _, t in self.fragments)
        return next((n for n in names if isinstance(n, str) and n), None)


@dataclass(frozen=True, slots=True)
class ChoiceLife:
    """One choice: everything it said, and each finish reason it gave (index into the chunks)."""

    index: int
    pieces: tuple[tuple[int, Choice], ...]
    finishes: tuple[tuple[int, Json], ...]
    calls: tuple[Call, ...]

    @property
    def text(self) -> str:
        """The whole content."""
        return "".join(choice.text for _, choice in self.pieces)


@dataclass(frozen=True, slots=True)
class Life:
    """What became of a stream."""

    outcome: Outcome
    phase: Phase
    choices: tuple[ChoiceLife, ...]  # in order of first appearance
    unfinished: tuple[int, ...]  # expected choices without a finish reason
    strays: tuple[Stray, ...]


@dataclass(slots=True)
class _Choice:
    pieces: list[tuple[int, Choice]] = field(default_factory=list)
    finishes: list[tuple[int, Json]] = field(default_factory=list)


class Machine:
    """Incremental: `feed` each chunk in order, then `close`. `expected` is the request's n."""

    def __init__(self, expected: int = 1) -> None:
        self.phase = Phase.NOTHING
        self._open = dict.fromkeys(range(min(expected, 1024)))  # a set in order of appearance
        self._choices: dict[int, _Choice] = {}
        self._strays: list[Stray] = []
        self._fed = 0
        self._flowing: dict[str | None, _Choice] = {}  # by pattern: see _note_flow

    def feed(self, chunk: Chunk) -> None:
        """One event's chunk."""
        at, self._fed = self._fed, self._fed + 1
        if chunk.pattern in self._flowing:
            self._flowing[chunk.pattern].pieces.append((at, chunk.choices[0]))
            return
        if chunk.kind is Kind.VENDOR:
            return
        step = _STEPS.get(chunk.kind) or self._advance(at, chunk)
        following = TRANSITIONS.get((self.phase, step))
        self._note_flow(chunk, (self.phase, step, following))
        if following is None:
            self._strays.append(Stray(at, self.phase, step))
        else:
            self.phase = following

    def _note_flow(self, chunk: Chunk, moved: tuple[Phase, Step, Phase | None]) -> None:
        """Where text went on and nothing moved, the next chunk of the pattern only adds its text.

        Another such chunk between them changes nothing of that; whatever else comes may.
        """
        flows = chunk.pattern is not None and moved == (Phase.FLOWING, Step.TEXT, Phase.FLOWING)
        state = self._choices[_index(chunk.choices[0].index)] if flows else None
        if state is None or state.finishes:
            self._flowing.clear()
        else:
            self._flowing[chunk.pattern] = state

    def _advance(self, at: int, chunk: Chunk) -> Step:
        over = self.phase in _OVER  # what stands behind the end belongs to no choice
        text = late = finished = False
        for choice in chunk.choices:
            index = _index(choice.index)
            state = self._choices.get(index) or _Choice()
            gone = bool(state.finishes)
            reason = choice.finish_reason
            ends = isinstance(reason, str) and reason != ""
            carries = choice.carries
            late |= gone and (carries or ends)
            text |= carries and not gone
            finished |= ends and not gone
            if over:
                continue
            if index not in self._choices:
                self._choices[index] = state
                self._open.setdefault(index)
            state.pieces.append((at, choice))
            if isinstance(reason, str) and ends:
                state.finishes.append((at, reason))
                self._open.pop(index, None)
        if finished and not self._open:
            return Step.FINISH
        return Step.TEXT if text else Step.LATE if late else Step.CHUNK

    def close(self, close: Close) -> Life:
        """The body ended."""
        choices = tuple(
            ChoiceLife(i, tuple(c.pieces), tuple(c.finishes), calls_from(c.pieces))
            for i, c in self._choices.items()
        )
        outcome = OUTCOMES[self.phase, close]
        return Life(outcome, self.phase, choices, tuple(self._open), tuple(self._strays))


def _index(value: Maybe) -> int:
    """As meant: a number in quotes is a fault of its own and still tells the choices apart."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return value if type(value) is int else 0


def calls_from(pieces: Sequence[tuple[int, Choice]]) -> tuple[Call, ...]:
    """Tool calls of one choice, fragments grouped by their index."""
    groups: dict[str, tuple[Json, list[tuple[int, Tool]]]] = {}
    for at, choice in pieces:
        for position, tool in enumerate(choice.tools):
            index: Json = position if not isinstance(tool.index, int) else tool.index
            groups.setdefault(repr(index), (index, []))[1].append((at, tool))
    return tuple(Call(index, tuple(fragments)) for index, fragments in groups.values())


def close_from_capture(capture: Capture, complete: bool | None) -> Close:
    """How the body ended. `complete`: by its framing; None where the record has none."""
    how = capture.end.how
    if how is How.LEFT:
        return Close.LEFT
    if how is How.CLOCK:
        return Close.STALLED
    if how is How.BOUND:
        return Close.BOUND
    if how in (How.RESET, How.TLS_CUT):
        return Close.WHOLE if complete else Close.CUT
    return Close.CUT if complete is False else Close.WHOLE
