"""How far the prompts' tokens that were asked for are from those that usage says. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance.capture import Json
from conformance.report.escape import terminal
from loadgen.measure import Row
from loadgen.quantiles import quantile

FORMULA = (
    "prompt_tokens of usage − tokens asked for, of succeeded requests that are no later turn; "
    "p95 and max of its size"
)


@dataclass(frozen=True, slots=True)
class Lengths:
    """`median`: of what usage says less what was asked for; `p95`, `most`: of the size of that,
    None where there are too few to tell."""

    n: int
    exact: int
    median: float
    p95: float | None
    most: int


def lengths(rows: Sequence[Row]) -> Lengths | None:
    """None where nothing was asked for or usage says nothing."""
    off = [
        row.prompt_tokens - row.input_asked
        for row in rows
        if row.success and not row.turn
        if row.prompt_tokens is not None and row.input_asked is not None
    ]
    if not off:
        return None
    sizes = sorted(abs(each) for each in off)
    p95 = quantile(sizes, 0.95).value
    return Lengths(len(off), off.count(0), statistics.median(off), p95, sizes[-1])


def lines(found: Lengths | None, by: Json) -> Iterator[str]:
    """For a terminal. `by`: how a prompt came to its tokens."""
    if found is None:
        return
    p95 = "–" if found.p95 is None else f"{found.p95:g}"
    off = f"{found.median:+g} (median), {p95} (p95), {found.most} (max) off what was asked for"
    exact = f"{found.exact} of {found.n} exactly that"
    yield f"prompt tokens: {off}, {exact}; {terminal(str(by))}"


def document(found: Lengths | None, by: Json) -> dict[str, Json] | None:
    if found is None:
        return None
    return {
        "by": by,
        "n": found.n,
        "exact": found.exact,
        "median_off": found.median,
        "p95_off": found.p95,
        "max_off": found.most,
        "formula": FORMULA,
    }
