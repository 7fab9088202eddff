"""What `stop` may hold besides words: white space, more strings than four, nothing (S12 to S14)."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.capture import Json
from conformance.checks import Findings, Trial
from conformance.checks.cutruns import Run, Said, finding, run_of, said, shown
from conformance.checks.stop import stop_strings
from conformance.cuts.fates import Fate
from conformance.findings import Abstain, Finding
from conformance.reading import Reading

_REFUSED = (400, 415, 422)  # for what the request says, not for want of time or rights
_MOST = 4  # "Up to 4 sequences"
_NOT_EXACT = Abstain("not-seen", "a stop string of other characters is not cut rightly either")


def stop_whitespace(trial: Trial) -> Findings:
    """S12: a stop string is text, white space too."""
    run = run_of(trial, "white")
    if isinstance(run, Abstain):
        unsent = (
            run.reason == "mat" and trial.readings.get("cut") and not trial.readings.get("white")
        )
        yield Abstain("not-seen", "not sent: the answer served otherwise") if unsent else run
        return
    at_once = run.cut is not None and run.cut[0] == 0
    single = run_of(trial, "first" if at_once else "cut")
    if run.cut is None:
        yield Abstain("mat", "no white space in the control")
    elif not isinstance(single, Run) or not single.is_exact:
        yield _NOT_EXACT
    elif not run.is_exact:
        became = f"the text is {run.fate.value}, finish {run.said.finish!r:.40}"
        yield finding(run, "S12", f"the stop string is {shown(run.stops[0])}, and {became}")


def stop_five(trial: Trial) -> Findings:
    """S14: "Up to 4 sequences": a fifth is refused or honoured, not passed over in silence."""
    five, alone = next(iter(trial.readings.get("five", ())), None), run_of(trial, "first")
    run = alone if five is None else run_of(trial, "five")
    if isinstance(alone, Abstain):
        yield alone
    elif alone.fate is not Fate.EXACT:
        yield Abstain("not-seen", "the fifth does not end the text alone either")
    elif five is not None and five.status in _REFUSED:
        return
    elif isinstance(run, Abstain):
        yield run
    elif len(run.stops) <= _MOST:
        yield Abstain("not-seen", "five were not sent")
    elif run.fate is Fate.PASSED:
        many = len(run.stops)
        yield finding(run, "S14", f"{many} stop strings are accepted, and the last is passed over")


def stop_none(trial: Trial) -> Findings:
    """S13: null, which the schema allows, and an empty array name no stop string.

    The array must have one string at least, so it may be refused; what is accepted stops nothing.
    """
    ones = trial.readings.get("limit", ())
    control = next((s for r in trial.readings.get("control", ()) if (s := said(r))), None)
    beside = [s for r in ones if "stop" not in (r.request or {}) and (s := said(r))]
    if control is None or not beside:
        yield Abstain("not-seen", "no whole answer without the member")
        return
    decided = False
    for take, reading in enumerate(ones):
        if "stop" not in (reading.request or {}) or stop_strings(reading):
            continue
        value = reading.asked("stop")
        wrong = _wrong(reading, value, control, beside)
        if wrong is not None:
            yield Finding("S13", f"`stop` is {_shown(value)} {wrong}", role="limit", take=take)
        decided |= wrong is None and (reading.status in _REFUSED or said(reading) is not None)
    if not decided:
        yield Abstain("not-seen", "no answer where `stop` names no string")
    elif not _do_stop(trial.readings.get("stop", ()), control):
        yield Abstain("not-seen", "where it names one, that stops nothing either")


def _wrong(reading: Reading, value: Json, control: Said, beside: list[Said]) -> str | None:
    """What is wrong with the answer where `stop` names no string, in words."""
    if value is None and reading.status in _REFUSED:
        return f"and the request is answered {reading.status}"
    mine = said(reading)
    if mine is None or mine.finish != "stop" or not _begins(mine, control):
        return None
    if not any(_begins(mine, other) for other in beside):
        return None
    return f"and something stops the text at once: {shown(mine.text)}"


def _do_stop(ones: Iterable[Reading], control: Said) -> bool:
    """Does a stop string that stands in the control's text end an answer?"""
    ended = ((said(one), stop_strings(one)) for one in ones)
    return any(s and stops and s.finish == "stop" and _begins(s, control) for s, stops in ended)


def _begins(mine: Said, other: Said) -> bool:
    """Does the other text go on where this one ends?"""
    return other.text.startswith(mine.text) and len(mine.text) < len(other.text)


def _shown(value: Json) -> str:
    return "null" if value is None else "an empty array"
