"""Stop strings chosen out of the server's own text: what comes is the text up to the first (S).

Each run is judged by the most particular check; what passes a stop string over or shows it is told
by `stop.ignored` and `stop.included`, which look at every answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from conformance.checks import Findings, Trial
from conformance.checks.cutruns import Run, controls, finding, honoured, run_of, runs, shown
from conformance.checks.usage import usages
from conformance.cuts.fates import Fate
from conformance.cuts.places import Place, place_at
from conformance.findings import Abstain, Finding

_LEAST_DELTAS = 3
_BECAME = {
    Fate.SHOWN: "ends the text, and is shown",
    Fate.PASSED: "is in the text, and what follows it too",
    Fate.WENT_ON: "is taken out, and the text goes on behind it",
}
_IDLE = Abstain("not-seen", "stop strings do nothing here")


def stop_accepted(trial: Trial) -> Findings:
    """S01: `stop` is "oneOf" a string and a list of one to four strings."""
    forms = {"a string": "cut", "a list of strings": "several"}
    statuses = {
        words: reading.status
        for words, role in forms.items()
        for reading in trial.readings.get(role, ())
    }
    refused = [words for words, status in statuses.items() if _is_refusal(status)]
    taken = [words for words, status in statuses.items() if status is not None and status < 400]
    if refused and taken:
        said = f"`stop` as {refused[0]} is answered {statuses[refused[0]]}, as {taken[0]} accepted"
        yield Finding("S01", said, role=forms[refused[0]])
    elif len(taken) < 2:
        yield from _reasons(trial, "cut", "several")
    elif not honoured(trial):
        yield _IDLE


def _is_refusal(status: int | None) -> bool:
    """Of what the request says, not for want of time or rights."""
    return status in (400, 415, 422)


def _reasons(trial: Trial, *roles: str) -> Iterator[Abstain]:
    """Why nothing can be said; one reason will do."""
    found = [run for run in runs(trial, *roles) if isinstance(run, Abstain)]
    yield next(iter(found), Abstain("not-seen", "no answer under a stop string"))


def stop_exact_prefix(trial: Trial) -> Findings:
    """S03: the text is the control's up to the stop string, character for character."""
    run = run_of(trial, "cut")
    if isinstance(run, Abstain):
        yield run
    elif run.fate is Fate.LOST and run.cut:
        missing = run.cut[0] - len(run.said.text)
        yield finding(run, "S03", f"the last {missing} characters before the stop string are lost")
    elif run.fate is Fate.WENT_ON:
        yield finding(run, "S03", f"the text goes on behind the stop string {_stop(run)}")
    elif run.fate is not Fate.EXACT:
        yield finding(
            run, "S03", f"the text does not end where the stop string {_stop(run)} begins"
        )


def stop_tail_leak(trial: Trial) -> Findings:
    """S04: no beginning of a stop string that came in several deltas remains at the end."""
    decided = False
    for run in runs(trial, "cut", "several"):
        if isinstance(run, Abstain) or run.cut is None or run.fate is Fate.PASSED:
            continue
        if run.fate is Fate.LEAKED:
            tail = run.said.text[run.cut[0] :]
            said = f"the text ends with the beginning {shown(tail)} of the stop string {_stop(run)}"
            yield finding(run, "S04", said)
            return
        decided |= _place(trial, run).spans >= 3
    if not decided:
        yield _first_reason(trial, "cut", "several", "no stop string spans three deltas")


def stop_finish(trial: Trial) -> Findings:
    """S05: finish_reason is "stop" if the model hit "a provided stop sequence"."""
    decided = False
    for run in runs(trial, "cut", "several"):
        if isinstance(run, Abstain) or run.fate is not Fate.EXACT:
            continue
        decided = True
        if run.said.finish != "stop":
            said = f"a stop string ended the text and finish_reason is {run.said.finish!r:.40}"
            yield finding(run, "S05", said)
            return
    if not decided:
        yield _first_reason(trial, "cut", "several", "no text was cut")


def stop_mid_token(trial: Trial) -> Findings:
    """S06: where a stop string begins and ends is a matter of text, not of tokens.

    That one is passed over or cut too much is put down to tokens only if a stop string that begins
    with a delta works here.
    """
    run = run_of(trial, "cut")
    if isinstance(run, Abstain):
        yield run
        return
    if run.cut is None or not _is_inside(trial, run):
        yield Abstain("mat", "no place begins and ends in the middle of a delta")
        return
    other = run_of(trial, "several")
    contrast = isinstance(other, Run) and other.fate is Fate.EXACT
    if contrast and (run.fate is Fate.PASSED or _lost_with_delta(trial, run)):
        said = f"{_stop(run)} begins and ends inside of deltas and is not matched rightly"
        yield finding(run, "S06", said)
    elif run.fate is not Fate.EXACT:
        yield Abstain("not-seen", "stop strings are not cut rightly anywhere")


def _is_inside(trial: Trial, run: Run) -> bool:
    """In the middle of deltas that are about as long as tokens: not of two halves of a text."""
    control = controls(trial)
    assert not isinstance(control, Abstain)
    return len(control.first.pieces) >= _LEAST_DELTAS and _place(trial, run).middle


def _lost_with_delta(trial: Trial, run: Run) -> bool:
    """Does the text end where the delta begins in which the stop string does?"""
    control = controls(trial)
    assert not isinstance(control, Abstain)
    assert run.cut is not None
    edges = accumulate(map(len, control.first.pieces), initial=0)
    begin = max(edge for edge in edges if edge <= run.cut[0])
    return run.fate is Fate.LOST and len(run.said.text) == begin


def stop_multi_byte(trial: Trial) -> Findings:
    """S07: a stop string of characters that are several bytes, and several tokens.

    Behind it in the text stands a second one of letters: that this one works is the contrast.
    """
    run = run_of(trial, "cut")
    if isinstance(run, Abstain):
        yield run
    elif run.cut is None or _stop_text(run).isascii():
        yield Abstain("mat", "no characters of several bytes came")
    elif run.fate is Fate.PASSED and not _ends_early(trial, run):
        yield _IDLE
    elif run.fate is not Fate.EXACT:
        became = _BECAME.get(run.fate, f"is cut wrongly ({run.fate.value})")
        yield finding(run, "S07", f"the stop string {_stop(run)} {became}")


def _ends_early(trial: Trial, run: Run) -> bool:
    """Did something end the text, although nothing did without stop strings?"""
    control = controls(trial)
    assert not isinstance(control, Abstain)
    text, own = control.first.text, run.said.text
    return text.startswith(own) and len(own) < len(text)


def stop_near_miss(trial: Trial) -> Findings:
    """S08, S09: what is withheld because a stop string may begin there comes, once, in order."""
    run = run_of(trial, "near")
    if isinstance(run, Abstain):
        yield run
        return
    if not honoured(trial):
        yield _IDLE
        return
    words = {
        Fate.LOST: ("S08", "the end of the text looks like a stop string's beginning and is lost"),
        Fate.DROPPED: ("S09", "text that looks like a stop string's beginning is lost"),
        Fate.DOUBLED: ("S09", "text that looks like a stop string's beginning comes twice"),
        Fate.DISORDERED: ("S09", "text that looks like a stop string's beginning comes too late"),
    }
    if run.fate in words:
        rule, said = words[run.fate]
        yield finding(run, rule, f"{said} (finish {run.said.finish!r:.40})")


def stop_several(trial: Trial) -> Findings:
    """S10: of several stop strings the one that stands first in the text decides."""
    run, single = run_of(trial, "several"), run_of(trial, "cut")
    if isinstance(run, Abstain):
        yield run
    elif not isinstance(single, Run) or single.fate is not Fate.EXACT:
        yield Abstain("not-seen", "not even one stop string is cut rightly")
    elif run.fate is not Fate.EXACT:
        listed = ", ".join(map(shown, run.stops))
        yield finding(run, "S10", f"with {listed} the text does not end before the first of them")


def stop_per_choice(trial: Trial) -> Findings:
    """S16: each of several choices ends before the stop strings, for itself.

    They are of one likeliest text, so the first is what the others are measured by.
    """
    first = run_of(trial, "several")
    if isinstance(first, Abstain):
        yield first
        return
    count = first.reading.n or 1
    if count < 2:
        yield Abstain("not-seen", "several choices of one likeliest text were not to be had")
        return
    if not first.is_exact:
        yield Abstain("not-seen", "not even the first choice is cut rightly")
        return
    for index in range(1, count):
        run = run_of(trial, "several", index)
        if isinstance(run, Abstain):
            yield run
        elif not run.is_exact:
            said = f"choice {index} is {run.fate.value}, finish {run.said.finish!r:.40}"
            yield finding(run, "S16", f"{said}; choice 0 ends where the stop string begins")


def stop_first_text(trial: Trial) -> Findings:
    """S11: stopped at once, an answer has no text, and is as complete as any other."""
    run, single = run_of(trial, "first"), run_of(trial, "cut")
    if isinstance(run, Abstain):
        yield run
    elif run.cut is None or run.cut[0] > 0:
        yield Abstain("mat", "the control does not begin with the text that it began with")
    elif not isinstance(single, Run) or not single.is_exact:
        yield Abstain("not-seen", "a stop string inside the text is not cut rightly either")
    elif run.fate is not Fate.EXACT:
        yield finding(run, "S11", f"the text begins with the stop string {_stop(run)} and is there")
    elif run.said.finish != "stop":
        yield finding(run, "S11", f"stopped at once, and finish_reason is {run.said.finish!r:.40}")
    elif _lacks_usage(trial, run):
        yield finding(run, "S11", "stopped at once, and the usage that was asked for is missing")


def _lacks_usage(trial: Trial, run: Run) -> bool:
    control = trial.readings["control"][0]
    return run.reading.wants_usage and bool(usages(control)) and not usages(run.reading)


def stop_parity(trial: Trial) -> Findings:
    """S18: streamed or plain, the same text and finish under the same stop string."""
    streamed, plain = runs(trial, "cut", "cut-plain")
    for run in (streamed, plain):
        if isinstance(run, Abstain):
            yield run
            return
    assert isinstance(streamed, Run)
    assert isinstance(plain, Run)
    wrong = plain if streamed.fate is Fate.EXACT else streamed
    if not honoured(trial) and plain.fate is Fate.PASSED:
        yield _IDLE
    elif streamed.said.text != plain.said.text:
        yield finding(wrong, "S18", _difference(streamed, plain))
    elif streamed.said.finish != plain.said.finish:
        said = f"finish_reason is {streamed.said.finish!r:.40} streamed"
        yield finding(wrong, "S18", f"{said}, {plain.said.finish!r:.40} plain")


def _difference(streamed: Run, plain: Run) -> str:
    said = "under the same stop string the texts differ:"
    return f"{said} streamed {streamed.fate.value}, plain {plain.fate.value}"


def _place(trial: Trial, run: Run) -> Place:
    control = controls(trial)
    assert not isinstance(control, Abstain)
    assert run.cut is not None
    return place_at(control.first.pieces, *run.cut)


def _stop_text(run: Run) -> str:
    """The stop string that stands first in the control's text."""
    assert run.cut is not None
    size = run.cut[1] - run.cut[0]
    return next(stop for stop in run.stops if len(stop) == size)


def _stop(run: Run) -> str:
    return shown(_stop_text(run))


def _first_reason(trial: Trial, *words: str) -> Abstain:
    *roles, otherwise = words
    found = [run for run in runs(trial, *roles) if isinstance(run, Abstain)]
    return found[0] if found else Abstain("mat", otherwise)
