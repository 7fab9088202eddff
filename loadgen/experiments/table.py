"""What an experiment comes to: a table of numbers with their formulas, and bounds on it. Pure."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from conformance.errors import UsageError
from loadgen.bounds import AS_READ, AT_MOST

AT_LEAST = "≥"
Cell: TypeAlias = "float | int | str | None"
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
SIGNS = {AT_MOST: "at most", AT_LEAST: "at least", AS_READ: "as read"}
_UNITS = {"": 1.0, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "x": 1.0, "%": 0.01}
_FORM = re.compile(r"\s*([a-z][a-z0-9-]*)\s*(<=|>=|<|>)\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zµ%]*)\s*")


@dataclass(frozen=True, slots=True)
class Column:
    """`unit`: of the numbers in documents; `shown`: how people read it, e.g. seconds in ms.

    `by_reads`: what its numbers are where every time is when a read returned, a sign of SIGNS.
    """

    name: str
    formula: str
    unit: str = ""
    shown: str = ""
    digits: int = 0
    by_reads: str = ""

    def text(self, value: Cell) -> str:
        """A dash where nobody knows."""
        if value is None:
            return "–"
        if isinstance(value, str):
            return value
        if math.isinf(value):
            return "∞"
        scale = 1e3 if (self.unit, self.shown) == ("s", "ms") else 1.0
        return f"{value * scale:,.{self.digits}f}"

    @property
    def head(self) -> str:
        return f"{self.name}, {self.shown}" if self.shown else self.name


def seconds(name: str, formula: str, by_reads: str = "") -> Column:
    return Column(name, formula, "s", "s", 2, by_reads)


def millis(name: str, formula: str, by_reads: str = "") -> Column:
    """Seconds that are shown in ms."""
    return Column(name, formula, "s", "ms", 1, by_reads)


def requests(name: str, formula: str) -> Column:
    """A number of them."""
    return Column(name, formula, "requests")


def ratio(name: str, formula: str, by_reads: str = "") -> Column:
    return Column(name, formula, "x", "×", 2, by_reads)


@dataclass(frozen=True, slots=True)
class Table:
    """`rows`: column's name → cell; the first column names the line. `notes`: said below.

    `is_by_reads`: the times of what was played are when reads returned.
    """

    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Cell], ...]
    notes: tuple[str, ...] = ()
    is_by_reads: bool = False

    def text(self, column: Column, row: Mapping[str, Cell]) -> str:
        """A cell as people read it."""
        value = row.get(column.name)
        is_bound = self.is_by_reads and isinstance(value, int | float) and math.isfinite(value)
        sign = column.by_reads if is_bound else ""
        return f"{sign} {column.text(value)}".lstrip()


@dataclass(frozen=True, slots=True)
class Bound:
    """`COLUMN OP VALUE` on every line that has a number there; `value` in the column's unit."""

    text: str
    column: str
    op: str
    value: float

    def holds(self, value: float) -> bool:
        return _OPERATORS[self.op](value, self.value)


class Held(Enum):
    """How a bound fared over the table."""

    YES = "met"
    NO = "missed"
    UNKNOWN = "undecided"  # no line has a number there


@dataclass(frozen=True, slots=True)
class Verdict:
    """`where`: the lines that miss it, each with its number, in words."""

    bound: Bound
    held: Held
    where: tuple[str, ...] = ()


def parse_bound(text: str) -> Bound:
    """Raises UsageError."""
    found = _FORM.fullmatch(text)
    if found is None or found[4] not in _UNITS:
        raise UsageError(f"--slo {text}: expected COLUMN OP VALUE, e.g. gap-p99<50ms")
    return Bound(text.strip(), found[1], found[2], float(found[3]) * _UNITS[found[4]])


def known_columns(bounds: Sequence[Bound], columns: Sequence[Column]) -> None:
    """Raises UsageError for a bound on a column that the table does not have."""
    names = [column.name for column in columns[1:]]
    for bound in bounds:
        if bound.column not in names:
            words = ", ".join(names)
            raise UsageError(f"--slo {bound.text}: no column {bound.column}; there are {words}")


def judged(table: Table, bounds: Sequence[Bound]) -> tuple[Verdict, ...]:
    """Each bound over all lines."""
    return tuple(_judged(table, bound) for bound in bounds)


def _judged(table: Table, bound: Bound) -> Verdict:
    values = [(row, row.get(bound.column)) for row in table.rows]
    known = [(row, v) for row, v in values if isinstance(v, int | float)]
    missed = tuple(_where(table, bound, row) for row, v in known if not bound.holds(v))
    if missed:
        return Verdict(bound, Held.NO, missed)
    return Verdict(bound, Held.YES if known else Held.UNKNOWN)


def _where(table: Table, bound: Bound, row: Mapping[str, Cell]) -> str:
    column = next(each for each in table.columns if each.name == bound.column)
    first = table.columns[0]
    shown = f"{table.text(column, row)} {column.shown}".rstrip()
    return f"{table.text(first, row)}: {shown}"


def number(cell: Cell) -> float | None:
    return cell if isinstance(cell, int | float) else None


def texts(table: Table) -> Iterator[list[str]]:
    """The cells as people read them."""
    for row in table.rows:
        yield [table.text(column, row) for column in table.columns]


def markdown(table: Table) -> str:
    """For a README: the table, then the notes."""
    head = " | ".join(column.head for column in table.columns)
    rule = "|".join("---:" if column.unit else "---" for column in table.columns)
    lines = [f"| {head} |", f"|{rule}|"]
    lines += [f"| {' | '.join(cells)} |" for cells in texts(table)]
    return "\n".join([*lines, *(f"\n{note}" for note in table.notes)]) + "\n"
