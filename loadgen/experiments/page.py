"""An experiment as one self-contained HTML page, like that of a run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from conformance.capture import Json
from conformance.report.escape import html
from loadgen.experiments.figures import Shot
from loadgen.experiments.outcome import Outcome, bound, verdict
from loadgen.experiments.reports import REPORTS
from loadgen.experiments.table import texts
from loadgen.page import END, beginning, plotted, table

PLAYED = ("load", "round", "tries", "sent", "what became of them", "valid")


def parts(outcome: Outcome, shots: Sequence[Shot], url: str) -> Iterator[str]:
    """`shots`: what it was made of."""
    experiment, target = outcome.experiment, outcome.target
    who = url if target is None else f"{target.model} at {target.url} ({target.api})"
    yield beginning(f"loadgen experiment {experiment.name}: {who}")
    hue = "good" if outcome.exit == 0 else "bad"
    yield f'<p class="verdict {hue}">{html(verdict(outcome))}</p>\n'
    options = ", ".join(f"{name} {value}" for name, value in outcome.options.items())
    yield from map(_line, (experiment.title, options))
    columns = outcome.table.columns
    words = [number for number, column in enumerate(columns) if not column.unit]
    yield table([each.head for each in columns], list(texts(outcome.table)), words=words)
    yield from map(_line, _said(outcome))
    plots = "".join(REPORTS[experiment.report].draw(shots, outcome.table))
    yield plotted(plots) if plots else ""
    yield from _about(outcome)
    yield END


def _said(outcome: Outcome) -> Iterator[str]:
    yield from outcome.table.notes
    yield from outcome.times
    yield from (f"failed: {each}" for each in outcome.failures)
    yield from map(bound, outcome.verdicts)
    yield from (f"not valid: {each}" for each in outcome.doubts)


def _about(outcome: Outcome) -> Iterator[str]:
    """The columns' formulas, and what was played."""
    yield "<h2>Columns</h2>\n"
    formulas = [[column.head, column.formula] for column in outcome.table.columns]
    yield table(["column", "what it is"], formulas, words=(1,))
    yield "<h2>Loads</h2>\n" if outcome.loads else ""
    yield table(PLAYED, [_load(each) for each in outcome.loads], words=(4,))


def _load(load: Mapping[str, Json]) -> list[str]:
    name = " ".join(str(load[key]) for key in ("n", "load", "how") if load[key] is not None)
    outcomes = load["outcomes"]
    became = outcomes.items() if isinstance(outcomes, dict) else ()
    return [
        name,
        *(str(load[key]) for key in ("round", "tries", "sent")),
        ", ".join(f"{fate} {count}" for fate, count in became),
        "yes" if load["valid"] else "no",
    ]


def _line(text: str) -> str:
    return f"<p>{html(text)}</p>\n"
