"""Hang-ups: the work ends, and nobody else feels it (rules A01, A02, A03, A05).

What tells is in `conformance.work`; what nothing tells is inconclusive, never a pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from conformance import work
from conformance.arrivals import arrivals
from conformance.capture import How, Json
from conformance.checks import Findings, Trial
from conformance.checks.unharmed import unharmed
from conformance.findings import Abstain, Finding
from conformance.reading import Reading

# Seconds: a prompt that is in the model cannot be taken out by many servers (seen: 3.1 s).
PROMPT_STEP = 2.5


def abort_fin(trial: Trial) -> Findings:
    """A01: a close in mid-stream ends the work."""
    yield from _ends(trial, "A01")


def abort_rst(trial: Trial) -> Findings:
    """A02: a reset in mid-stream ends the work."""
    yield from _ends(trial, "A02")


def abort_before_headers(trial: Trial) -> Findings:
    """A03: a close before the answer began ends the work."""
    yield from _ends(trial, "A03")


def abort_neighbours(trial: Trial) -> Findings:
    """A05: who runs beside an answer that is hung up on gets its own, whole."""
    treated = _first(trial, "treated")
    control = _first(trial, "beside") or _first(trial, "pace")  # the one of the same request
    canary = _first(trial, "canary")
    if treated is None or control is None or canary is None:
        yield Abstain("not-seen", "nobody ran beside it")
        return
    left, end, sent = treated.capture.end, canary.capture.end.at, canary.capture.sent_at
    if left.how is not How.LEFT or left.at is None:
        yield Abstain("fast", "the answer was over before we hung up")
    elif end is None or sent is None or not sent <= left.at <= end:
        yield Abstain("fast", "nobody ran beside it when we hung up")
    else:
        yield from unharmed(control, canary, "A05", "canary")


@dataclass(frozen=True, slots=True)
class _Left:
    """The answer that we hung up on: `at` when, `natural` when it would have ended by itself."""

    reading: Reading
    at: float
    natural: float


def _ends(trial: Trial, rule: str) -> Iterator[Finding | Abstain]:
    left = _left(trial)
    if isinstance(left, Abstain):
        yield left
        return
    said = _by_metrics(trial, left, rule) or _by_contrast(trial, left, rule)
    if said is None and left.natural - left.at < work.SLACK:
        yield Abstain("fast", "the answer would have been over at once by itself")
    elif said is None:
        yield Abstain("oracle", "neither metrics nor a neighbour showed the work in the control")
    elif not isinstance(said, float):
        yield said


def _left(trial: Trial) -> _Left | Abstain:
    natural, treated = trial.dossier.picked.get("natural"), _first(trial, "treated")
    if trial.abstain is not None:
        return trial.abstain
    if treated is None or not isinstance(natural, float | int):
        return Abstain("not-seen", "no answer was hung up on")
    if treated.status is not None and treated.status >= 400:
        return Abstain("rate", f"the answer was refused with {treated.status}")
    end, sent = treated.capture.end, treated.capture.sent_at
    if end.how is not How.LEFT or end.at is None or sent is None:
        return Abstain("fast", "the answer was over before we hung up")
    if trial.dossier.parameters.get("when") == "before-headers" and treated.capture.received:
        return Abstain("fast", "the answer had begun before we hung up")
    return _Left(treated, end.at, sent + natural)


def _by_metrics(trial: Trial, left: _Left, rule: str) -> Finding | Abstain | float | None:
    """A float says that the work ended, and when; None that the metrics do not tell."""
    alive, samples = _names(trial.dossier.picked.get("alive")), trial.dossier.samples
    if not alive or not samples:
        return None
    begun = min((span[0] for span in _spans(trial)), default=0.0)
    base = work.baseline(samples, begun)
    if base is None or not base.steady:
        return Abstain("oracle", "the server was busy with something else")
    others = [
        work.other(one)
        for role, takes in trial.readings.items()
        if role != "treated"
        for one in takes
    ]
    each = trial.dossier.picked.get("each")
    level = each if isinstance(each, float | int) else 1.0
    seen = work.activity(samples, base, alive, others, left.at, level)
    stop = work.stopped_at(seen)
    if stop is None:
        return _never(trial, left, alive, rule)
    early = trial.dossier.parameters.get("when") == "before-headers"
    return _in_time(left, stop, rule, PROMPT_STEP if early else 0.0)


def _spans(trial: Trial) -> Iterator[work.Span]:
    """When the treated answer and the neighbour beside it ran."""
    for role in ("treated", "canary"):
        for each in trial.readings.get(role, ()):
            yield each.capture.connected_at or 0.0, each.capture.end.at or 0.0


def _in_time(left: _Left, stop: float, rule: str, step: float) -> Finding | Abstain | float:
    after, rest = stop - left.at, left.natural - left.at
    if after <= work.PATIENCE:
        if rest >= max(2 * after, after + work.SLACK / 2):
            return stop
        return Abstain("fast", f"the answer would have ended {max(rest, 0):.1f} s later by itself")
    if after < work.PATIENCE + work.SLACK:
        return Abstain("oracle", f"work ended after {after:.1f} s: too close to tell")
    if after < work.PATIENCE + work.SLACK + step and after < 0.7 * rest:
        said = f"work ended after {after:.1f} s: a prompt in the model may not be interruptible"
        return Abstain("oracle", said)
    if after > 1.5 * rest + work.PATIENCE:
        return Abstain("oracle", "work went on longer than the answer itself: not ours alone")
    return Finding(
        rule, f"the server worked on for {after:.1f} s after the hang-up", role="treated"
    )


def _never(trial: Trial, left: _Left, alive: tuple[str, ...], rule: str) -> Finding | Abstain:
    """Work that was never seen to end: a place that is held although nothing is generated is lost.

    Were tokens generated, they might be somebody else's.
    """
    probe, samples = _first(trial, "probe"), trial.dossier.samples
    if probe is None or probe.capture.end.at is None or work.COUNTER not in alive:
        return Abstain("oracle", "the metrics do not say when the work ended")
    later = [each for each in samples if each.at > probe.capture.end.at + work.EDGE]
    counts = {each.values.get(work.COUNTER) for each in later}
    if len(later) < 2 or len(counts) > 1:
        return Abstain("oracle", "the server was busy with something else")
    since = later[-1].at - left.at
    said = f"the server still counts the request as running {since:.1f} s after the hang-up"
    return Finding(rule, said, role="treated")


def _by_contrast(trial: Trial, left: _Left, rule: str) -> Finding | Abstain | float | None:
    picked, canary = trial.dossier.picked, _first(trial, "canary")
    gap = picked.get("gap")
    known = work.Contrast(picked.get("serial") is True, gap if isinstance(gap, float) else None)
    if canary is None or not (known.serial or known.gap):
        return None
    told = work.relieved(arrivals(canary), known, left.at, left.natural)
    if told is None:
        return Abstain("oracle", "the neighbour felt no clear difference")
    stopped, at = told
    if stopped:
        return at
    felt = "waited for its turn" if known.serial else "was still slowed down"
    said = f"a neighbour {felt} {at - left.at:.1f} s after the hang-up"
    return Finding(rule, said, role="treated")


def _first(trial: Trial, role: str) -> Reading | None:
    takes = trial.readings.get(role, ())
    return takes[-1] if takes else None


def _names(value: Json) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()
