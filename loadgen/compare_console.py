"""A comparison for a terminal and as data. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tabulate import tabulate

from conformance.capture import Json
from conformance.report.escape import terminal
from loadgen.blocks import Units
from loadgen.compare import LEVEL, POINTS, Change, Difference
from loadgen.export import SCHEMA, TOOL
from loadgen.result import Result

BY_READS = "times are when reads returned (clock user): on both sides ttft and e2e are at most that"


@dataclass(frozen=True, slots=True)
class Comparison:
    """`units` None: the runs are too short. `threshold`: in parts of the first side's value."""

    names: tuple[str, str]
    first: Sequence[Result]
    second: Sequence[Result]
    units: Units | None
    found: Sequence[Difference]
    threshold: float
    seed: int

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not valid; empty: it is."""
        sides = zip(self.names, (self.first, self.second), strict=True)
        out = [
            f"{name}: {', '.join(doubt.reason for doubt in run.doubts)}"
            for name, runs in sides
            for run in runs
            if run.doubts
        ]
        if self.units is None:
            out.append("too few independent blocks: load longer, or --repeat 6 and more")
        return tuple(dict.fromkeys(out))

    @property
    def by_reads(self) -> str:
        """Of both sides, or of neither: runs by different clocks are not compared."""
        is_so = any(run.summary.is_by_reads for run in (*self.first, *self.second))
        return BY_READS if is_so else ""

    @property
    def exit(self) -> int:
        """3: not valid. 1: something is worse. 0: neither."""
        if self.reasons:
            return 3
        return int(any(each.change is Change.WORSE for each in self.found))


def render(comparison: Comparison) -> str:
    """Ends with one line: what is worse, and the exit code."""
    lines = [f"{tag} {_named(comparison, side)}" for side, tag in enumerate(("A", "B"))]
    if comparison.units is not None:
        lines += [_units(comparison.units), "", _table(comparison.found)]
        lines += [*legend(comparison.found), ""]
    lines += [comparison.by_reads] if comparison.by_reads else []
    lines += [f"not valid: {terminal(reason)}" for reason in comparison.reasons]
    return "\n".join([*lines, _last(comparison)]) + "\n"


def _named(comparison: Comparison, side: int) -> str:
    runs = (comparison.first, comparison.second)[side]
    target = runs[0].target
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    return terminal(f"{comparison.names[side]}: {target.model} at {target.url}, {count}")


def _units(units: Units) -> str:
    how = "runs" if units.seconds is None else f"blocks of about {units.seconds:.3g} s"
    alike = "" if units.alike is None else f", neighbours correlated by {units.alike:.2f}"
    return f"units: {len(units.first)} and {len(units.second)} {how}{alike}"


def legend(found: Sequence[Difference]) -> list[str]:
    """What the columns say, and why some are empty."""
    out = [
        "noise: 95 % of the random splits of these units into two sides differ by less; p: the "
        "share that differs at least as much, corrected for the number of measures"
    ]
    few = any(each.change is Change.UNKNOWN for each in found)
    return [*out, "unknown: too few values on a side"] if few else out


def _table(found: Sequence[Difference]) -> str:
    head = ["", "A", "B", "difference", "noise", "p", ""]
    rows = [shown_row(each) for each in found]
    align = ("left", *("right",) * 5, "left")
    return tabulate(rows, headers=head, colalign=align, disable_numparse=True)


def shown_row(each: Difference) -> list[str]:
    points = each.measure.is_share
    values = [_value(value, each.measure.unit) for value in (each.first, each.second)]
    return [
        each.measure.name,
        *values,
        _apart(each.difference, points, "+"),
        "–" if each.noise is None else "±" + _apart(each.noise, points, ""),
        "–" if each.p is None else f"{each.p:.4f}",
        each.change.value,
    ]


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    if unit == "s":
        return f"{value * 1e3:.2f} ms"
    return f"{value:.2%}" if unit == "share" else f"{value:.4g}"


def _apart(value: float | None, points: bool, sign: str) -> str:
    if value is None:
        return "–"
    return f"{value * 100:{sign}.2f} pt" if points else f"{value:{sign}.1%}"


def _last(comparison: Comparison) -> str:
    if comparison.units is None:
        return f"not compared · exit {comparison.exit}"
    of_a, points = 100 * comparison.threshold, 100 * POINTS
    rule = f"p ≤ {LEVEL:g} and more than {of_a:.3g} % of A, of a share {points:g} pt"
    changed = [
        f"{each.measure.name} {each.change.value}"
        for each in comparison.found
        if each.change in (Change.WORSE, Change.BETTER)
    ]
    told = ", ".join(changed) or "no difference"
    return f"{told} (what counts: {rule}) · exit {comparison.exit}"


def document(comparison: Comparison, version: str) -> dict[str, Json]:
    """The comparison as data; differences in parts of A, those of shares in points of 1."""
    units = comparison.units
    return {
        "schema": SCHEMA,
        "tool": {"name": TOOL, "version": version},
        "command": "compare",
        "files": list(comparison.names),
        "valid": not comparison.reasons,
        "reasons": list(comparison.reasons),
        "exit": comparison.exit,
        "threshold": comparison.threshold,
        "level": LEVEL,
        "seed": comparison.seed,
        "units": None
        if units is None
        else {
            "kind": units.kind,
            "seconds": units.seconds,
            "a": len(units.first),
            "b": len(units.second),
            "correlation": units.alike,
        },
        "measures": [_measure(each) for each in comparison.found],
    }


def _measure(each: Difference) -> dict[str, Json]:
    return {
        "measure": each.measure.name,
        "unit": each.measure.unit,
        "a": each.first,
        "b": each.second,
        "difference": each.difference,
        "noise": each.noise,
        "p": each.p,
        "change": each.change.value,
    }
