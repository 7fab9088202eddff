"""What an answer costs: each choice its own tokens, the prompt its tokens once, and nothing that a
stop string has spared (rules Z19, S19).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from conformance.capture import Json
from conformance.checks import Findings, Trial
from conformance.checks.cutruns import finding, run_of, shown
from conformance.checks.cutruns import said as said_of
from conformance.checks.fin import limit_of
from conformance.checks.live import ENDED, expected, finish_of
from conformance.checks.place import at_body, at_chunk
from conformance.checks.usage import SMALL_CONTEXT, SMALL_LIMIT, costs, final_usages
from conformance.chunks import Chunk, member
from conformance.findings import Abstain, Finding
from conformance.reading import Form, Reading

_TELLING = 32  # tokens of a control; less may be a step or two of a server that drafts ahead
_PART = 0.7  # of the control's text; what remains is more than is generated ahead


@dataclass(frozen=True, slots=True)
class _Bill:
    """The last usage object; `chunk`: where it stands in a stream."""

    usage: Mapping[str, Json]
    chunk: Chunk | None = None

    def count(self, name: str) -> int | None:
        """One of the counts; None: it is no integer."""
        value = self.usage.get(name)
        return value if type(value) is int else None


def usage_choices(reading: Reading) -> Findings:
    """Z19: "Number of tokens in the generated completion.", in all of its choices."""
    if (reading.n or 1) < 2:
        yield Abstain("mat", "one choice")
        return
    bill = _bill(reading)
    used = bill.count("completion_tokens") if bill else None
    if bill is None or used is None or reading.asked("echo") is True:
        yield Abstain("not-recorded", "no final usage")
        return
    each = [cost for cost in _least(reading, bill) if cost]
    if len(each) < 2:
        yield Abstain("mat", "no two choices that say anything")
    elif used < sum(each):
        said = f"{len(each)} choices took {sum(each)} tokens at least"
        said += f" and completion_tokens is {used}"
        place = at_body(reading, 0, "Z19", said)
        yield at_chunk(reading, bill.chunk, "Z19", said) if bill.chunk else place


def usage_prompt_once(trial: Trial) -> Findings:
    """Z19: "Number of tokens in the prompt.": however many choices have it in common.

    Only a count that is the prompt's length as often as there are choices is held against it.
    """
    alone, several = (_first(trial, role) for role in ("limited", "stream"))
    if alone is None or several is None or not _same_prompt(alone, several):
        yield Abstain("not-seen", "no two answers to one prompt")
        return
    once, count = (_prompt_tokens(each) for each in (alone, several))
    n = several.n or 1
    if n < 2 or not once or count is None:
        yield Abstain("not-recorded", "the prompt's tokens of one or several choices are not known")
    elif count == n * once:
        said = f"a prompt of {once} tokens is counted as {count} for {n} choices"
        yield Finding("Z19", said, role="stream")


def stop_cost(trial: Trial) -> Findings:
    """S19: "the API will stop generating further tokens", and what is not generated costs nothing.

    How many tokens a text has is not known here. An answer that was cut well before its control,
    which its limit ended, and cost as much was not ended by the stop string.
    """
    control = _first(trial, "control")
    whole, ended = _used(control), said_of(control) if control else None
    if control is None or ended is None or whole is None:
        yield Abstain("not-recorded", "the tokens of a whole control are not known")
        return
    if ended.finish != "length" or whole < _TELLING:
        yield Abstain("mat", "the control is short, or ended before its limit")
        return
    decided = False
    for run in (run_of(trial, role) for role in ("cut", "white", "first")):
        if isinstance(run, Abstain) or run.cut is None or not run.is_exact:
            continue
        used = _used(run.reading)
        early = run.cut[1] <= len(control.text) * _PART
        if used is not None and early and used >= whole:
            said = f"{shown(run.said.text)}, where a stop string ended it, cost {used} tokens"
            yield finding(run, "S19", f"{said}, and {whole} without it")
            return
        decided |= used is not None and early
    if not decided:
        yield Abstain("mat", "no answer that a stop string ended early, with its usage")


def _used(reading: Reading | None) -> int | None:
    """The completion tokens of an answer."""
    bill = _bill(reading) if reading else None
    return bill.count("completion_tokens") if bill else None


def _bill(reading: Reading) -> _Bill | None:
    """The last one there is; None: there is none, or the answer is not whole."""
    if reading.form is Form.PLAIN and reading.document is not None:
        usage = member(reading.document.value, "usage")
        return _Bill(usage) if isinstance(usage, dict) else None
    found = final_usages(reading) if reading.outcome in ENDED else []
    return _Bill(found[-1][2], found[-1][1]) if found else None


def _least(reading: Reading, bill: _Bill) -> Iterator[int]:
    """The fewest tokens that each choice can have cost: all of a small limit that cut it, or one.

    A full context may cut it earlier; no context is as short as these prompts.
    """
    limit, prompt = limit_of(reading), bill.count("prompt_tokens")
    small = limit is not None and limit <= SMALL_LIMIT
    roomy = prompt is not None and prompt < SMALL_CONTEXT - SMALL_LIMIT
    for says, reason in _said(reading):
        whole = limit if small and roomy and reason == "length" else None
        yield int(says) if whole is None else whole


def _said(reading: Reading) -> Iterator[tuple[bool, Json]]:
    """Of each choice: does it say anything, and why did it end?"""
    if reading.form is Form.PLAIN:
        for choice in reading.plain_choices:
            reason = choice.finish_reason
            yield costs(choice), reason if isinstance(reason, str) else None
        return
    for life in expected(reading):
        yield any(costs(choice) for _, choice in life.pieces), finish_of(life)


def _first(trial: Trial, role: str) -> Reading | None:
    return next(iter(trial.readings.get(role, ())), None)


def _same_prompt(a: Reading, b: Reading) -> bool:
    return all(a.asked(name) == b.asked(name) for name in ("messages", "prompt", "tools"))


def _prompt_tokens(reading: Reading) -> int | None:
    bill = _bill(reading)
    return bill.count("prompt_tokens") if bill else None
