"""A stored run back into what it was: reports can be rendered again and runs compared. Pure.

The rows are the record; distributions, objectives and failures are computed from them again. What
only the run itself could know (the reasons not to trust it, what the checks said) is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from conformance.errors import UsageError
from conformance.findings import Level, Verdict
from loadgen import crew
from loadgen.bounds import is_by_reads
from loadgen.crosstalk import Crossing, Solo
from loadgen.export import SCHEMA, TOOL
from loadgen.looking import Breach, Tally, Told
from loadgen.measure import Row
from loadgen.outcome import Fate
from loadgen.recovered import Recovery
from loadgen.result import Result, Target, failures
from loadgen.server_metrics import Histogram, Sample, Served
from loadgen.slo import parse_slo
from loadgen.summary import Window, summarise
from loadgen.trust import REASONS, Doubt
from loadgen.verdict import judged_slos

FILE_AT_MOST = 1 << 30  # bytes
Document = Mapping[str, Any]
_FLAWS = (
    *(LookupError, TypeError, ValueError, ArithmeticError),
    *(AttributeError, RecursionError, StopIteration),
)


def load(path: Path) -> tuple[Result, ...]:
    """The runs of one JSON report, at least one. Raises UsageError."""
    return runs_of(document_at(path), str(path))


def loads(text: str, name: str) -> tuple[Result, ...]:
    """The same from text; `name` is what errors call it."""
    return runs_of(document_of(text, name), name)


def document_at(path: Path) -> Document:
    """What `run --json` wrote there, as JSON. Raises UsageError."""
    try:
        if path.stat().st_size > FILE_AT_MOST:
            raise UsageError(f"{path}: expected at most {FILE_AT_MOST >> 20} MiB")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: expected a JSON report of loadgen run") from None
    return document_of(text, str(path))


def document_of(text: str, name: str) -> Document:
    with reading_report(name):
        found: Document = json.loads(
            text, parse_int=_whole, parse_float=_finite, parse_constant=_finite
        )
        if found["tool"]["name"] != TOOL or found["command"] != "run":
            raise KeyError("command")
        if found["schema"] != SCHEMA:
            raise UsageError(f"{name}: schema {found['schema']}, this loadgen reads {SCHEMA}")
        return found


def runs_of(document: Document, name: str) -> tuple[Result, ...]:
    with reading_report(name):
        if "against" in document:
            raise UsageError(f"{name}: two endpoints in one run; `loadgen report` compares them")
        runs = document["runs"] if "repeat" in document else [document]
        if not isinstance(runs, list) or not runs:
            raise TypeError("runs")
        return tuple(map(result_from, runs))


@contextmanager
def reading_report(name: str) -> Iterator[None]:
    """Whatever is missing or of another kind there is a UsageError in one line."""
    try:
        yield
    except _FLAWS as error:
        what = f" ({type(error).__name__}: {error})"[:80]
        raise UsageError(f"{name}: expected a JSON report of loadgen run{what}") from None


def result_from(run: Document) -> Result:
    """One run's object. Raises what `reading_report` knows."""
    rows = tuple(_row(each) for each in run["rows"])
    window = Window(float(run["window"]["start"]), float(run["window"]["end"]))
    slos = [parse_slo(each["objective"]) for each in run["slo"]]
    tally = _tally(run["checks"])
    broken = frozenset(tally.broken)
    summary = summarise(rows, window, slos, broken, is_by_reads=is_by_reads(run["load"]))
    measured = [row for row in rows if window.holds(row.intended)]
    target = run["target"]
    return Result(
        target=Target(str(target["url"]), str(target["api"]), str(target["model"])),
        load=dict(run["load"]),
        complete=bool(run["complete"]),
        rows=rows,
        summary=summary,
        judged=judged_slos(slos, measured, summary, broken),
        doubts=tuple(map(_doubt, run["reasons"])),
        failures=tuple(failures(rows)),
        tally=tally,
        gates=tuple(str(gate) for gate in run["checks"]["gates"]),
        failed=int(run["failed"]["count"]),
        too_many=not run["failed"]["met"],
        allowed=str(run["failed"]["allowed"]),
        served=None if run.get("server") is None else _served(run["server"]),
        solo=None if run.get("solo") is None else _solo(run["solo"]),
        selftest=run.get("selftest"),
        crew=None if run.get("workers") is None else crew.loaded(run["workers"]),
        recovery=None if run.get("recovery") is None else _recovery(run["recovery"]),
    )


def _finite(text: str) -> float:
    """JSON has no other numbers. Raises ValueError."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is no number")
    return value


def _whole(text: str) -> int:
    """One that any sum can hold as a float too."""
    _finite(text)
    return int(text)


def _doubt(stored: Document) -> Doubt:
    """Raises KeyError for a reason that no report has."""
    REASONS[stored["reason"]]
    return Doubt(stored["reason"], str(stored["detail"]))


def _served(stored: Document) -> Served:
    samples = tuple(
        Sample(_number(each["at"]), {k: _number(v) for k, v in each.items() if k != "at"})
        for each in stored["samples"]
    )
    own = stored["first_token"]
    tokens = _known(stored["tokens"]["generated"])
    return Served(str(stored["names"]), samples, tokens, None if own is None else _histogram(own))


def _histogram(stored: Document) -> Histogram:
    buckets = tuple(
        (math.inf if b is None else _number(b), _number(n)) for b, n in stored["buckets"]
    )
    return Histogram(buckets, _number(stored["sum"]), _number(stored["count"]))


def _solo(stored: Document) -> Solo:
    differs = tuple(int(index) for index in stored["differs"])
    return Solo(int(stored["asked"]), int(stored["repeats"]), differs)


def _recovery(stored: Document) -> Recovery:
    numbers = (_known(stored[each]) for each in ("took", "within", "probe_before", "probe_after"))
    before, after = (_gauges(stored[each]) for each in ("gauges_before", "gauges_after"))
    return Recovery(before, after, *numbers)


def _gauges(stored: Document | None) -> dict[str, float] | None:
    return None if stored is None else {name: _number(value) for name, value in stored.items()}


_NEEDED = {field.name for field in fields(Row) if field.default is MISSING}
_KNOWN = {field.name for field in fields(Row)}
_LISTS = ("token_times", "earliest")
_TEXT = ("prompt_hash", "finish", "detail", "client", "answer_hash", "part")


def _row(stored: Document) -> Row:
    """Members that a later version added are left out."""
    values = {name: _value(name, stored[name]) for name in _KNOWN & set(stored) | _NEEDED}
    return Row(**values)


def _value(name: str, value: Any) -> Any:
    if name == "fate":
        return Fate(value)
    if name == "told":
        return value.encode("latin-1")
    if name in _LISTS:
        return tuple(map(_number, value))
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) is not (name in _TEXT):
        raise TypeError(f"{name}: {value!r:.40}")
    return value if isinstance(value, str) else _number(value)


def _known(value: Any) -> Any:
    return None if value is None else _number(value)


def _number(value: Any) -> Any:
    """As it is; raises TypeError for anything else, and for numbers that are none."""
    if type(value) not in (int, float) or value != value or abs(value) > 1e15:
        raise TypeError(f"{value!r:.40}")
    return value


def _tally(checks: Document) -> Tally:
    told = {str(each["id"]): _told(each) for each in checks["results"]}
    broken = {int(index) for index in checks["requests"]}
    crossed = [Crossing(int(each["request"]), int(each["of"])) for each in checks["cross_talk"]]
    return Tally(int(checks["judged"]), int(checks["unjudged"]), broken, told, crossed)


def _told(each: Document) -> Told:
    first = each["first"]
    level, verdict = Level(each["level"]), Verdict(each["verdict"])
    breach = Breach(str(each["id"]), level, verdict, str(first["message"]))
    return Told(breach, int(first["request"]), int(each["bad"]))
