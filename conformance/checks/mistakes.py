"""Requests that are wrong: each is refused with a 4xx, streamed or not, and costs nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from conformance.capture import How
from conformance.checks import Findings, Trial
from conformance.checks.place import EXCERPT
from conformance.chunks import Kind, member
from conformance.findings import Abstain, Finding, Level
from conformance.lifecycle import Outcome
from conformance.reading import Form, Reading

FORMS = ("refused-stream", "refused-plain")
CONTROLS = ("control", "recovery")
MALFORMED, UNKNOWN_MODEL, TOO_LONG = "json-cut", "unknown-model", "context-exceeded"
WRONG_KEY = "wrong-key"
MISSING = ("messages-missing", "prompt-missing", "role-missing")
NOT_WRONG_TYPES = (MALFORMED, UNKNOWN_MODEL, TOO_LONG, WRONG_KEY, *MISSING)

# The OpenAPI document gives the chat route's limit no minimum: llama.cpp's "no limit" is no lie.
_OPEN = {("chat", "limit-negative")}
# Members that a server may not know: who passes one over breaks less than who misreads it.
_OPTIONAL = (
    "penalty-range", "seed-text", "suffix-number", "echo-text", "stream-options-text",
    "top-logprobs-range", "logprobs-range", "logprobs-text", "tools-text",
)  # fmt: skip

# Authentication, timeouts, rate limits, overload: these say nothing about the request.
BUSY = (401, 403, 407, 408, 425, 429, 503)
_BUT_A_KEY = tuple(status for status in BUSY if status not in (401, 403))
_ANSWER = (Form.STREAM, Form.PLAIN)
_DEAD = (Outcome.STALLED, Outcome.EMPTY)


@dataclass(frozen=True, slots=True)
class Bad:
    """One bad request and what became of it: `role` and `take` are its place in the dossier."""

    name: str
    role: str
    take: int
    reading: Reading

    @property
    def accepted(self) -> bool:
        return self.reading.form in _ANSWER

    @property
    def form(self) -> str:
        return "streamed" if self.role == FORMS[0] else "plain"

    def finding(self, rule: str, said: str, level: Level | None = None) -> Finding:
        """At the first byte of the answer's body, or of its head where there is none."""
        place = self.reading.place(0) if self.reading.body else 0
        excerpt = self.reading.body[:EXCERPT]
        message = f"{self.name} ({self.form}): {said}"
        return Finding(rule, message, place, None, excerpt, level, role=self.role, take=self.take)


def bad_requests(trial: Trial, *names: str) -> Iterator[Bad]:
    """The trial's bad requests of these names, of all names if none is given."""
    listed = trial.dossier.picked.get("mistakes")
    known = [str(name) for name in listed] if isinstance(listed, list) else []
    for role in FORMS:
        for take, reading in enumerate(trial.readings.get(role, ())):
            if take < len(known) and (not names or known[take] in names):
                yield Bad(known[take], role, take, reading)


def _fair(trial: Trial, *names: str) -> tuple[list[Bad], list[Abstain]]:
    """Those whose answer is about the request, and what to say of the others."""
    bads = [bad for bad in bad_requests(trial, *names) if bad.name != WRONG_KEY]  # X04 tells
    fair = [bad for bad in bads if bad.reading.status not in (None, *BUSY)]
    busy = sorted({str(bad.reading.status) for bad in bads if bad.reading.status in BUSY})
    why = [Abstain("rate", f"status {', '.join(busy)}")] if busy else []
    why += [Abstain("net", "no answer")] if any(b.reading.status is None for b in bads) else []
    return fair, why if bads else [Abstain("not-seen")]


def _accepted(trial: Trial, rule: str, *names: str) -> Findings:
    """A finding for each of these that was not refused."""
    fair, why = _fair(trial, *names)
    yield from why
    for bad in fair:
        if bad.accepted:
            yield bad.finding(rule, f"accepted with status {bad.reading.status}")


def _status(trial: Trial, rule: str, wanted: tuple[int, ...], *names: str) -> Findings:
    """Refused, and with one of these statuses: another 4xx still tells the client enough."""
    yield from _accepted(trial, rule, *names)
    for bad in _fair(trial, *names)[0]:
        status = bad.reading.status
        if status is not None and 400 <= status < 500 and status not in wanted:
            said = f"refused with {status}, expected {' or '.join(map(str, wanted))}"
            yield bad.finding(rule, said, Level.SHOULD)


def err_malformed_json(trial: Trial) -> Findings:
    """X01: a body that is no JSON is a 400."""
    yield from _status(trial, "X01", (400, 422), MALFORMED)


def err_missing_field(trial: Trial) -> Findings:
    """X02: what the schema requires is missing: 400, or 422."""
    yield from _status(trial, "X02", (400, 422), *MISSING)


def err_unknown_model(trial: Trial) -> Findings:
    """X03: a model that does not exist answers nothing.

    Where one model is all that is listed and the answer names it, nobody was deceived.
    """
    for said in _status(trial, "X03", (404, 400, 422), UNKNOWN_MODEL):
        served = _served(trial, said) if isinstance(said, Finding) and not said.level else None
        if isinstance(said, Finding) and served is not None:
            message = f"{said.message}; the one model that is listed, {served}, answered"
            yield replace(said, message=message, level=Level.MAY)
        else:
            yield said


def _served(trial: Trial, finding: Finding) -> str | None:
    """The listed model, if there is one alone and the answer says that it speaks."""
    models = trial.dossier.picked.get("models")
    if not isinstance(models, list) or len(models) != 1:
        return None
    reading = trial.readings[finding.role][finding.take]
    documents = [chunk.get("model") for chunk in reading.chunks if chunk.kind is Kind.CHUNK]
    documents += [member(reading.document.value, "model")] if reading.document else []
    names = {str(name) for name in documents if isinstance(name, str) and name}
    return str(models[0]) if names == {str(models[0])} else None


def err_wrong_types(trial: Trial) -> Findings:
    """X05: a value that the OpenAPI document excludes is refused, and before the stream begins."""
    names = {bad.name for bad in bad_requests(trial)} - set(NOT_WRONG_TYPES)
    if not names:
        yield Abstain("not-seen")
        return
    for said in _accepted(trial, "X05", *sorted(names)):
        name = said.message.split(" ")[0] if isinstance(said, Finding) else ""
        lesser = name in _OPTIONAL or (trial.dossier.api, name) in _OPEN
        yield replace(said, level=Level.SHOULD) if isinstance(said, Finding) and lesser else said


def err_wrong_key(trial: Trial) -> Findings:
    """X04: who has the wrong key is told so, and gets nothing."""
    bads = list(bad_requests(trial, WRONG_KEY))
    if not bads:
        yield Abstain("not-seen", "no key was given")
    for bad in bads:
        status = bad.reading.status
        if status is None:
            yield Abstain("net", "no answer")
        elif status in _BUT_A_KEY:
            yield Abstain("rate", f"status {status}")
        elif status not in (401, 403):
            refused = 400 <= status < 500
            said = f"a wrong key is answered with {status}, expected 401 or 403"
            yield bad.finding("X04", said, Level.SHOULD if refused else None)


def err_client_mistake_5xx(trial: Trial) -> Findings:
    """X11: "The 5xx (Server Error) class … the server is aware that it has erred"."""
    fair, why = _fair(trial)
    yield from why
    for bad in fair:
        status = bad.reading.status
        # 501 is an honest word on a feature that is not there.
        if status is not None and status >= 500 and status != 501:
            yield bad.finding("X11", f"answered with {status}")


def err_same_status(trial: Trial) -> Findings:
    """X10: a request is wrong in the same way whether a stream was asked for or not."""
    fair, why = _fair(trial)
    yield from why
    plain = {bad.name: bad for bad in fair if bad.role == FORMS[1]}
    pairs = [(bad, plain[bad.name]) for bad in fair if bad.role == FORMS[0] and bad.name in plain]
    for streamed, other in pairs:
        mine, theirs = streamed.reading.status, other.reading.status
        if mine != theirs:
            yield streamed.finding("X10", f"status {mine}, without a stream {theirs}")
        elif not streamed.accepted and _keys(streamed.reading) != _keys(other.reading):
            yield streamed.finding("X10", "the error has other members than without a stream")


def _keys(reading: Reading) -> tuple[str, ...]:
    """The names in an error's envelope."""
    value = reading.document.value if reading.document else None
    outer = sorted(value) if isinstance(value, dict) else []
    error = value.get("error") if isinstance(value, dict) else None
    return (*outer, *(sorted(error) if isinstance(error, dict) else ()))


def err_context(trial: Trial) -> Findings:
    """X06: a prompt that does not fit is refused; it is neither cut in silence nor answered."""
    skipped = trial.dossier.picked.get("skipped")
    if isinstance(skipped, str):
        yield Abstain("budget", skipped)
        return
    fair, why = _fair(trial, TOO_LONG)
    yield from why
    context = trial.dossier.picked.get("context")
    for bad in fair:
        if bad.accepted and isinstance(context, int):
            yield _overfilled(bad, context)


def _overfilled(bad: Bad, context: int) -> Finding:
    """Accepted; if the server counts the whole prompt, what was wrong is the length it lists."""
    counts = [chunk.get("usage") for chunk in bad.reading.chunks]
    counts += [member(bad.reading.document.value, "usage")] if bad.reading.document else []
    prompts = [member(count, "prompt_tokens") for count in counts if isinstance(count, dict)]
    most = max((count for count in prompts if type(count) is int), default=None)
    said = f"a prompt of more than {context} words is accepted with {bad.reading.status}"
    if most is not None and most > context:
        said += f" and counted as {most} tokens; the context is listed as {context}"
        return bad.finding("X06", said, Level.MAY)
    return bad.finding("X06", f"{said}; the context has {context} tokens")


def err_recovers(trial: Trial) -> Findings:
    """X12: after bad requests a good one is answered as before."""
    lived = any(bad.reading.status is not None for bad in bad_requests(trial))
    seen = False
    for role in CONTROLS:
        for take, reading in enumerate(trial.readings.get(role, ())):
            if _hung_up(reading):
                continue
            seen = True
            why = _unanswered(reading)
            if why is None:
                continue
            if reading.status in BUSY:
                yield Abstain("rate", f"status {reading.status}")
            elif reading.status is None and not lived:
                yield Abstain("net", why)
            else:
                said = f"a good request after bad ones: {why}"
                yield Finding("X12", said, 0, role=role, take=take)
    if not seen:
        yield Abstain("not-seen")


def _hung_up(reading: Reading) -> bool:
    """Was a kept connection closed instead of used again?

    RFC 9112 section 9.5: "A client, server, or proxy MAY close the transport connection at any
    time." That is no answer to the request; the scenario sends it again on a new connection.
    """
    capture = reading.capture
    ended = capture.end.how in (How.CLOSED, How.RESET)
    return ended and bool(capture.ordinal) and not capture.received


def _unanswered(reading: Reading) -> str | None:
    """How a good request failed."""
    if reading.status is None:
        return f"no answer ({reading.capture.end.how.value})"
    if reading.status >= 400:
        return f"status {reading.status}"
    if reading.outcome in _DEAD and reading.capture.end.how is How.CLOCK:
        return "it came to a halt"
    return None
