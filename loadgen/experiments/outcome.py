"""An experiment that was played, with everything that gates it, and its document. Pure."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tabulate import tabulate

from conformance.capture import Json
from conformance.report.escape import excerpt, terminal
from loadgen import console
from loadgen.experiments.figures import Shot
from loadgen.experiments.reports import REPORTS, Report
from loadgen.experiments.spec import Experiment
from loadgen.experiments.table import (
    AT_LEAST,
    SIGNS,
    Bound,
    Cell,
    Held,
    Table,
    Verdict,
    judged,
)
from loadgen.export import SCHEMA, TOOL
from loadgen.looking import judged_failures
from loadgen.provenance import BY_READS
from loadgen.result import Result, Target

DOUBTS_SHOWN = 6
TOLD = 100  # characters
CHUNKS, BOUNDS = "chunks", "chunk_times_that_are_bounds"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`doubts`: why the figures are not to be trusted. `failed`: requests, of those that gate."""

    experiment: Experiment
    options: Mapping[str, int]
    target: Target | None
    table: Table
    verdicts: tuple[Verdict, ...]
    doubts: tuple[str, ...]
    failures: tuple[str, ...]
    failed: int
    allowed: str
    too_many: bool
    complete: bool
    loads: tuple[Mapping[str, Json], ...]

    @property
    def times(self) -> tuple[str, ...]:
        """How they were made, in a line; none where nothing was played."""
        if not self.loads:
            return ()
        clocks = ", ".join(dict.fromkeys(str(load["clock"] or "not said") for load in self.loads))
        if self.table.is_by_reads:
            return (f"times: clock {clocks}; {BY_READS}; {AT_LEAST} that or more",)
        said = f"{self._sum(BOUNDS)} of {self._sum(CHUNKS)} chunks' times are bounds"
        return (f"times: clock {clocks}; {said}: such a chunk came then or before",)

    def _sum(self, of: str) -> int:
        return sum(count for load in self.loads if isinstance(count := load[of], int))

    @property
    def exit(self) -> int:
        """3: not valid. 1: a bound is missed, or too many failed. 0: none of these."""
        if self.doubts or not self.complete:
            return 3
        return int(self.too_many or any(each.held is Held.NO for each in self.verdicts))


@dataclass(frozen=True, slots=True)
class Gates:
    """`own`: bounds that the experiment brings; `asked`: those of --slo. `most`: failures."""

    own: tuple[Bound, ...]
    asked: tuple[Bound, ...]
    allowed: str
    most: float | None = None
    share: float | None = None

    def too_many(self, failed: int, sent: int) -> bool:
        return failed > (math.floor((self.share or 0) * sent) if self.most is None else self.most)


def outcome_of(
    experiment: Experiment,
    options: Mapping[str, int],
    shots: Sequence[Shot],
    gates: Gates,
    *,
    complete: bool,
) -> Outcome:
    """`shots`: the loads that were played to their end."""
    report = REPORTS[experiment.report]
    is_by_reads = any(shot.result.summary.is_by_reads for shot in shots)
    table = replace(report.make(shots, options), is_by_reads=is_by_reads)
    verdicts = judged(table, (*gates.own, *gates.asked))
    counted = [shot for shot in shots if report.broke is None or not report.broke(shot, options)]
    failed = sum(shot.result.failed for shot in counted)
    sent = sum(shot.result.summary.books.sent for shot in counted)
    return Outcome(
        experiment=experiment,
        options=options,
        target=shots[0].result.target if shots else None,
        table=table,
        verdicts=verdicts,
        doubts=(*_doubts(counted, report), *_undecided(verdicts, gates.asked)),
        failures=tuple(_failures(shots)),
        failed=failed,
        allowed=gates.allowed,
        too_many=gates.too_many(failed, sent),
        complete=complete,
        loads=tuple(_load(shot) for shot in shots),
    )


def _doubts(shots: Sequence[Shot], report: Report) -> Iterator[str]:
    """Whether our own client was the limit is a finding where that is looked for."""
    for shot in shots:
        for doubt in shot.result.doubts if shot.result.rows else ():
            if doubt.is_of_client and report.broke is not None:
                continue
            yield f"{doubt.reason}: {shot.turn.name}: {doubt.detail}"


def _undecided(verdicts: Sequence[Verdict], asked: Sequence[Bound]) -> Iterator[str]:
    for each in verdicts:
        if each.held is Held.UNKNOWN and each.bound in asked:
            yield f"too_few_samples: {each.bound.text}: no line has a number there"


def _failures(shots: Sequence[Shot]) -> Iterator[str]:
    for shot in shots:
        for each in shot.result.failures:
            why = " · ".join(map(str, console.reasons(each)))
            told = f": {excerpt(each.told)[:TOLD]}" if each.told else ""
            told = f" ({why}){told}" if why else told
            yield f"{shot.turn.name}: {each.count} × {each.fate.value}{told}"
        for told_ in judged_failures(shot.result.tally):
            breach = told_.breach
            if breach.verdict.value == "fail":
                yield f"{shot.turn.name}: fail {breach.id} in {told_.bad}: {breach.message[:TOLD]}"


def _load(shot: Shot) -> dict[str, Json]:
    result: Result = shot.result
    books = result.summary.books
    return {
        "load": shot.turn.load.name,
        "round": shot.turn.round + 1,
        "n": shot.turn.n,
        "how": shot.turn.how,
        "tries": shot.tries,
        "sent": books.sent,
        "outcomes": {fate.value: count for fate, count in books.of.items()},
        "failed": result.failed,
        "valid": result.valid,
        "clock": result.load.get("clock"),
        CHUNKS: sum(len(row.token_times) for row in result.rows),
        BOUNDS: sum(row.bounds or 0 for row in result.rows),
    }


# -- how it is told --------------------------------------------------------------------------------


def document(outcome: Outcome, url: str, version: str) -> dict[str, Json]:
    """Numbers in the unit that their column names; null where nobody knows."""
    target = outcome.target
    return {
        "schema": SCHEMA,
        "tool": {"name": TOOL, "version": version},
        "command": "experiment",
        "experiment": outcome.experiment.name,
        "title": outcome.experiment.title,
        "url": url,
        "api": None if target is None else target.api,
        "model": None if target is None else target.model,
        "options": dict(outcome.options),
        "complete": outcome.complete,
        "valid": not outcome.doubts and outcome.complete,
        "doubts": list(outcome.doubts),
        "exit": outcome.exit,
        "failed": outcome.failed,
        "allowed": outcome.allowed,
        "failures": list(outcome.failures),
        "bounds": [
            {"bound": each.bound.text, "result": each.held.value, "where": list(each.where)}
            for each in outcome.verdicts
        ],
        "columns": [
            {
                "name": c.name,
                "unit": c.unit,
                "formula": c.formula,
                "bound": SIGNS.get(c.by_reads) if outcome.table.is_by_reads else None,
            }
            for c in outcome.table.columns
        ],
        "rows": [
            {c.name: _finite(row.get(c.name)) for c in outcome.table.columns}
            for row in outcome.table.rows
        ],
        "notes": list(outcome.table.notes),
        "loads": [dict(each) for each in outcome.loads],
    }


def _finite(value: Cell) -> Json:
    return None if isinstance(value, float) and math.isinf(value) else value


def dumps(outcome: Outcome, url: str, version: str) -> str:
    return json.dumps(document(outcome, url, version), indent=1, allow_nan=False) + "\n"


def csv_lines(table: Table) -> Iterator[str]:
    """A header, then a line for each of the table; an empty cell is unknown."""
    names = [column.name for column in table.columns]
    yield _csv(names)
    for row in table.rows:
        yield _csv(["" if _finite(row.get(name)) is None else str(row[name]) for name in names])


def _csv(cells: Sequence[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()


def render(outcome: Outcome) -> str:
    """For a terminal; ends with the verdict and the exit code."""
    target = outcome.target
    who = "" if target is None else f": {target.model} at {target.url} ({target.api})"
    options = ", ".join(f"{name} {value}" for name, value in outcome.options.items())
    lines = [f"{outcome.experiment.name}{who}", outcome.experiment.title, options, ""]
    lines += [_table(outcome.table), ""] if outcome.table.rows else []
    lines += [*outcome.table.notes, *outcome.times]
    lines += [f"failed: {each}" for each in outcome.failures[:DOUBTS_SHOWN]]
    lines += [_more(outcome.failures)] if len(outcome.failures) > DOUBTS_SHOWN else []
    lines += [bound(each) for each in outcome.verdicts]
    lines += [f"not valid: {each}" for each in outcome.doubts[:DOUBTS_SHOWN]]
    lines += [_more(outcome.doubts)] if len(outcome.doubts) > DOUBTS_SHOWN else []
    return "".join(f"{_lines(each)}\n" for each in (*lines, verdict(outcome)))


def _lines(text: str) -> str:
    return "\n".join(terminal(line) for line in text.split("\n"))


def _more(said: Sequence[str]) -> str:
    return f"  and {len(said) - DOUBTS_SHOWN} more (--json)"


def _table(table: Table) -> str:
    """Without the columns of which nothing is known: terminals are narrow."""
    known = [c for c in table.columns if any(row.get(c.name) is not None for row in table.rows)]
    rows = [[table.text(column, row) for column in known] for row in table.rows]
    align = ["right" if c.unit else "left" for c in known]
    heads = [column.head for column in known]
    text = tabulate(rows, headers=heads, colalign=align, disable_numparse=True)
    rest = ", ".join(c.name for c in table.columns if c not in known)
    return f"{text}\n\nnothing is known of {rest}" if rest else text


def bound(found: Verdict) -> str:
    """How it fared, in a line."""
    nothing = "no line has a number there" if found.held is Held.UNKNOWN else ""
    said = "; ".join(found.where) or nothing
    where = f" ({said})" if said else ""
    return f"bound {found.held.value}: {found.bound.text}{where}"


def verdict(outcome: Outcome) -> str:
    """One line: is it valid, how many failed, the exit code."""
    word = "not valid" if outcome.doubts else "valid"
    complete = "" if outcome.complete else " · not complete: interrupted"
    failed = f"{outcome.failed} failed, {outcome.allowed} allowed"
    return f"{word} · {failed}{complete} · exit {outcome.exit}"
