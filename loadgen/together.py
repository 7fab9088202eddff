"""Several runs of one load for a terminal: how much the figures differ between runs. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from tabulate import tabulate

from loadgen import console, definitions_console
from loadgen.bounds import AS_READ, AT_MOST
from loadgen.definitions import lines
from loadgen.quantiles import label
from loadgen.result import Result, exit_of
from loadgen.summary import UNITS

SHOWN = (("ttft", 0.5), ("ttft", 0.99), ("tpot", 0.5), ("gap", 0.99), ("e2e", 0.5), ("e2e", 0.99))
RATES = ("succeeded", "output-tokens", "in-flight")


def render(results: Sequence[Result], *, definitions: bool = False) -> str:
    """One run as `console` has it; several as a table over the runs and a line for each.

    `definitions`: before it, each run by the definitions of other tools.
    """
    tables = [definitions_console.render(lines(each.measured)) for each in results if definitions]
    return "\n".join([*tables, _figures_of(results)])


def _figures_of(results: Sequence[Result]) -> str:
    if len(results) == 1:
        return console.render(results[0])
    head = ["of each run", "n", "least", "median", "most", "deviation / mean"]
    rows = [_spread(name, values) for name, values in _figures(results)]
    align = ("left", *("right",) * (len(head) - 1))
    table = tabulate(rows, headers=head, colalign=align, disable_numparse=True)
    if any(row[1] != str(len(results)) for row in rows):
        table += "\nn: runs that have enough values to tell it"
    each_run = [f"run {n}: {console.verdict(each)}" for n, each in enumerate(results, 1)]
    valid = sum(result.valid for result in results)
    last = f"{valid} of {len(results)} runs valid · exit {exit_of(results)}"
    return "\n".join([console.head(results[0]), "", table, "", *each_run, "", last]) + "\n"


def _figures(results: Sequence[Result]) -> Iterator[tuple[str, list[float | None]]]:
    """Name → a value of each run; latencies in ms, rates a second."""
    for name, q in SHOWN:
        found = [_told(result, name, label(q)) for result in results]
        signs = "".join(dict.fromkeys(sign for sign, _ in found if sign))
        unit = f"{signs} ms".lstrip()
        yield f"{name} {label(q)}, {unit}", [None if v is None else v * 1e3 for _, v in found]
    for name in RATES:
        yield f"{name}, {UNITS[name]}", [result.summary.rates[name] for result in results]


def _told(result: Result, metric: str, statistic: str) -> tuple[str, float | None]:
    """As `console.cell` has it: a sign, and seconds."""
    limits = result.summary.between.get(metric, {}).get(statistic)
    if limits is not None and math.isfinite(limits[1]):
        return AT_MOST, limits[1]
    value = result.summary.metrics[metric].statistics[statistic]
    return ("" if limits is None else AS_READ), value


def _spread(name: str, values: Sequence[float | None]) -> list[str]:
    known = [value for value in values if value is not None]
    if not known:
        return [name, "0", "–", "–", "–", "–"]
    three = (min(known), statistics.median(known), max(known))
    mean = statistics.fmean(known)
    apart = statistics.stdev(known) / mean if len(known) > 1 and mean else None
    return [
        name,
        str(len(known)),
        *(f"{value:.2f}" for value in three),
        "–" if apart is None else f"{apart:.1%}",
    ]
