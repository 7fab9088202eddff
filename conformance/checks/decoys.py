"""Stop strings that do not stand in the text: what ends it none the less was searched wrongly.

They are sent along with others, so an answer is accused only where it ends exactly as this mistake
would end it, with the reason of a stop string, and its control goes on.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.checks import Findings, Trial
from conformance.checks.cutruns import Run, Said, controls, finding, honoured, run_of, runs, shown
from conformance.checks.fin import completion_tokens
from conformance.checks.live import ASKING, expected
from conformance.cuts.decoys import Decoy, Kind, decoys
from conformance.findings import Abstain
from conformance.reading import Reading
from conformance.strictjson import strings_in

_ROLES = ("near", "cut")
# Deltas and characters: a prompt that is searched ends the answer before there are more.
_AT_ONCE, _AT_MOST = 2, 24
_FEW = 8  # tokens to a delta; where there are more, some may have been kept back


def stop_literal(trial: Trial) -> Findings:
    """S15: what the text must not contain is this sequence of characters, not one like it."""
    decided = False
    for run in _runs(trial, *_ROLES):
        control = _control(trial).text
        for decoy in _decoys(run, control, Kind.PATTERN, Kind.CASE):
            if _ends(run, control, decoy):
                taken = shown(control[decoy.start : decoy.end])
                said = f"{taken} ends the text for the stop string {shown(decoy.stop)}"
                yield finding(run, "S15", f"{said}, which is taken for {decoy.kind.value}")
                return
            decided |= run.said.text.startswith(control[: decoy.end])
    yield from _open(trial, decided, *_ROLES)


def stop_prompt(trial: Trial) -> Findings:
    """S17: stop strings stop "generating further tokens", and the prompt is not generated.

    A thought may say what the prompt says, and whether stop strings end thoughts is open.
    """
    decided = False
    for run in _runs(trial, "near"):
        control, text = _control(trial).text, run.said.text
        at_once = "".join(_control(trial).pieces[:_AT_ONCE])[:_AT_MOST]
        for decoy in _decoys(run, control, Kind.PROMPT):
            stopped = _is_cut(run, control) and at_once.startswith(text)
            if stopped and _keeps_back(run.reading):
                yield Abstain("reason", "a thought that is not told may hold the word")
                return
            if stopped and not _explained(run, control):
                said = f"the stop string {shown(decoy.stop)} stands in the prompt alone"
                yield finding(run, "S17", f"{said}, and the text ends at once: {shown(text)}")
                return
            decided |= text.startswith(at_once) and text != at_once
    yield from _open(trial, decided, "near")


def _runs(trial: Trial, *roles: str) -> Iterator[Run]:
    found = (run_of(trial, role, elsewhere=True) for role in roles)
    return (run for run in found if isinstance(run, Run))


def _open(trial: Trial, decided: bool, *roles: str) -> Iterator[Abstain]:
    """Why there is no verdict, unless there is one."""
    if not decided:
        reasons = (run for run in runs(trial, *roles) if isinstance(run, Abstain))
        yield next(reasons, Abstain("mat", "the text left no room for such a stop string"))
    elif not honoured(trial):
        yield Abstain("not-seen", "stop strings do nothing here")


def _ends(run: Run, control: str, decoy: Decoy) -> bool:
    """Is the text the control's up to what is taken for the decoy, or with it?"""
    ends = (control[: decoy.start], control[: decoy.end])
    return _is_cut(run, control) and run.said.text in ends


def _is_cut(run: Run, control: str) -> bool:
    """Did something stop the text before its control's end, and before any of its stop strings?"""
    text, most = run.said.text, len(control) if run.cut is None else run.cut[0]
    return run.said.finish == "stop" and control.startswith(text) and len(text) < most


def _explained(run: Run, control: str) -> bool:
    """Is it another decoy that ends there?"""
    return any(_ends(run, control, d) for d in _decoys(run, control, Kind.PATTERN, Kind.CASE))


def _keeps_back(reading: Reading) -> bool:
    """Did more tokens come than its deltas can have brought?"""
    deltas = sum(len(life.pieces) for life in expected(reading))
    used = completion_tokens(reading)
    return used is not None and used > _FEW * max(1, deltas)


def _decoys(run: Run, control: str, *kinds: Kind) -> Iterator[Decoy]:
    found = decoys(run.stops, control, tuple(_prompts(run.reading)))
    return (decoy for decoy in found if decoy.kind in kinds)


def _prompts(reading: Reading) -> Iterator[str]:
    """Every string in the members that say what is wanted."""
    return strings_in([reading.asked(member) for member in ASKING])


def _control(trial: Trial) -> Said:
    control = controls(trial)
    assert not isinstance(control, Abstain)
    return control.first
