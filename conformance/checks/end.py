"""How a stream ends: the sentinel, and what became of the whole (rules F19, F20, Z07, Z08, Z22)."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from conformance.capture import How
from conformance.checks import Findings
from conformance.checks.fin import limit_of
from conformance.checks.live import undelivered
from conformance.checks.place import at_chunk
from conformance.chunks import Chunk, Kind
from conformance.findings import Abstain, Finding
from conformance.lifecycle import Outcome
from conformance.outline import outlined
from conformance.reading import Reading

_UNSEEN = (Outcome.LEFT, Outcome.OVER_LONG, Outcome.UNREADABLE)
_BYTES_A_TOKEN = 4096  # a chunk with log-probabilities of twenty alternatives stays below
_FAILED = (Outcome.ERROR_BEFORE_TOKEN, Outcome.ERROR_AFTER_TOKEN)


def done_missing(reading: Reading) -> Findings:
    """Z07, K08: "the stream terminated by a `data: [DONE]` message" (OpenAI, `stream`)."""
    if reading.outcome in _UNSEEN or reading.outcome in _FAILED:
        yield Abstain("not-seen", "the stream did not come to its own end")
    elif reading.outcome is Outcome.COMPLETE_UNTERMINATED:
        yield Finding("Z07", "every choice finished and no [DONE] followed", _end(reading))
    elif undelivered(reading):
        yield Finding("Z07", "every choice that came finished, no [DONE] followed", _end(reading))


@outlined
def done_malformed(reading: Reading) -> Findings:
    """F19: the sentinel is these six bytes; clients compare them."""
    for chunk in reading.chunks:
        if chunk.kind is Kind.BAD_DONE:
            yield at_chunk(reading, chunk, "F19", f"the sentinel is spelled {chunk.event.data!r}")
            return


@outlined
def done_duplicate(reading: Reading) -> Findings:
    """F19: once."""
    after = [c for c in _after_done(reading) if c.kind is Kind.DONE]
    if after:
        yield at_chunk(reading, after[0], "F19", f"the sentinel stands {len(after) + 1} times")


@outlined
def done_data_after(reading: Reading) -> Findings:
    """F20: clients stop reading at the sentinel; what follows is lost."""
    after = [c for c in _after_done(reading) if c.kind is not Kind.DONE]
    if after:
        said = f"{len(after)} events follow the sentinel"
        yield at_chunk(reading, after[0], "F20", said)


@outlined
def stream_empty(reading: Reading) -> Findings:
    """Z08, Z23: an answer brings at least one chunk."""
    if reading.outcome in _UNSEEN:
        yield Abstain("not-seen", "the end was not seen")
        return
    chunks = [c for c in reading.chunks if c.kind in (Kind.CHUNK, Kind.ERROR, Kind.VENDOR)]
    lost = any(c.kind in (Kind.UNREADABLE, Kind.FOREIGN, Kind.SCALAR) for c in reading.chunks)
    if not chunks and not lost and reading.outcome in (Outcome.EMPTY, Outcome.COMPLETE):
        what = "nothing but the sentinel" if reading.chunks else "no event at all"
        yield Finding(
            "Z08", f"the stream brings {what}", reading.place(0) if reading.body else None
        )


def stream_truncated(reading: Reading) -> Findings:
    """Z08: a body that ends before the choices do, and says nothing, looks like success."""
    if reading.outcome in _UNSEEN:
        yield Abstain("not-seen", "we did not read to the end")
    elif undelivered(reading):
        return  # nothing broke off: choice.missing says what never came
    elif reading.outcome is Outcome.TRUNCATED or _only_wreckage(reading):
        left = reading.life.unfinished if reading.life else ()
        who = f"choice {left[0]} unfinished" if left else "no sentinel"
        events = len(reading.events)
        yield Finding("Z08", f"the body ends after {events} events, {who}, no error", _end(reading))


def stream_no_progress(reading: Reading) -> Findings:
    """Nothing more came until our clock ran out, or far more than the request's limit allows."""
    if reading.outcome is Outcome.OVER_LONG:
        yield _endless(reading)
    elif reading.outcome is Outcome.STALLED:
        end = reading.capture.end
        phase = reading.life.phase.value if reading.life else "nothing"
        said = f"the stream stopped ({phase}) and stayed open until the {end.detail} clock ran out"
        yield Finding("Z08", said, _end(reading))


def _endless(reading: Reading) -> Finding | Abstain:
    """Our bound ended the record. Bytes alone prove nothing where the request sets no limit."""
    limit, size = limit_of(reading), len(reading.body)
    if limit is None or size < _BYTES_A_TOKEN * limit * (reading.n or 1):
        return Abstain("not-seen", "our bound was reached before the end")
    said = f"no end after {size} bytes, where the request allows {limit} tokens"
    return Finding("Z08", said, _end(reading))


@outlined
def stream_not_closed(reading: Reading) -> Findings:
    """Z22: after the sentinel the body ends within a second."""
    if reading.outcome is not Outcome.COMPLETE:
        yield Abstain("not-seen", "no complete stream")
        return
    end = reading.capture.end
    if end.how is How.CLOCK:
        yield Finding("Z22", "the body did not end after the sentinel", _end(reading))
        return
    late = _seconds_after_done(reading)
    if late is not None and late > 1:
        yield Finding("Z22", f"the body ended {late:.1f} s after the sentinel", _end(reading))


def _seconds_after_done(reading: Reading) -> float | None:
    end = reading.capture.end
    done = next((c for c in reading.chunks if c.kind is Kind.DONE), None)
    if done is None or end.at is None or end.how not in (How.FRAMED, How.CLOSED):
        return None
    reads, offset = reading.capture.reads, reading.place(done.event.end - 1)
    first = bisect_right(reads, offset, key=attrgetter("end"))
    at = reads[first].at if first < len(reads) else None
    return None if at is None else end.at - at


def _only_wreckage(reading: Reading) -> bool:
    """Events came, none readable, and then the body ended."""
    return reading.outcome is Outcome.EMPTY and bool(reading.chunks)


def _after_done(reading: Reading) -> list[Chunk]:
    chunks = list(reading.chunks)
    at = next((i for i, c in enumerate(chunks) if c.kind is Kind.DONE), len(chunks))
    return chunks[at + 1 :]


def _end(reading: Reading) -> int | None:
    return reading.place(len(reading.body)) if reading.body else None
