"""Reports of experiments with clients that do not read. Pure: shots → a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conformance.capture import Capture
from loadgen.bounds import AS_READ, AT_MOST
from loadgen.experiments.figures import (
    Shot,
    Sizes,
    gaps,
    middle,
    of,
    over,
    pooled,
    role,
    time_of,
    took,
)
from loadgen.experiments.spec import CONTROL
from loadgen.experiments.table import Cell, Column, Table, millis, number, ratio, requests, seconds
from loadgen.measure import Row

READER = "reader"
STILL = 1.0  # seconds
AT_ONCE = 0.05  # of the time that the answer takes

SLOW = (
    Column("the other one", "how the eighth stream is read"),
    seconds("took", "of the healthy: last event of any − first send; median of rounds", AT_MOST),
    ratio("longer", "took / that of the control of the same round; median of rounds", AS_READ),
    millis("gap-p50", "between neighbouring chunks with text of the healthy, all rounds", AS_READ),
    millis("gap-p99", "the same", AS_READ),
    ratio("gap-longer", "gap-p99 / that of the control", AS_READ),
    Column("whole", "of the healthy, all rounds"),
    requests("lost", "of the healthy that did not come whole"),
    Column("its end", "what became of the other one"),
    seconds("its-time", "its last event − its send; median of rounds", AT_MOST),
)


def slow_readers(shots: Sequence[Shot], options: Sizes) -> Table:
    """The control, and with one that stops reading for twice as long as an answer takes."""
    control, slow = of(shots, CONTROL), of(shots, "slow")
    base = {shot.turn.round: took(role(shot.result.rows)) for shot in control}
    longer = [over(took(role(s.result.rows)), base.get(s.turn.round)) for s in slow]
    lines = [_slow_line("read at once", control, 1.0 if control else None)]
    lines.append(_slow_line("not read for a while", slow, middle(longer)))
    for line in lines:
        line["gap-longer"] = over(number(line["gap-p99"]), number(lines[0]["gap-p99"]))
    return Table(SLOW, tuple(lines))


def _slow_line(name: str, shots: Sequence[Shot], longer: float | None) -> dict[str, Cell]:
    rows = [row for shot in shots for row in role(shot.result.rows)]
    others = [row for shot in shots for row in role(shot.result.rows, READER)]
    whole = sum(row.success for row in rows)
    return {
        "the other one": name,
        "took": middle(took(role(shot.result.rows)) for shot in shots),
        "longer": longer,
        "gap-p50": pooled(gaps(rows), 0.5),
        "gap-p99": pooled(gaps(rows), 0.99),
        "whole": f"{whole} of {len(rows)}",
        "lost": len(rows) - whole,
        "its end": ", ".join(sorted({row.fate.value for row in others})) or None,
        "its-time": middle(time_of(row) for row in others),
    }


BUFFERS = (
    Column("reader", "how the answer is read"),
    Column("bytes", "of the answer, head and framing included", "bytes", "", 0),
    Column("tokens", "completion_tokens of usage", "tokens", "", 0),
    Column(
        "absorbed",
        "bytes read within a twentieth of the control's time after reading began: what was there, "
        "and what the server made meanwhile",
        "bytes", "bytes", 0,
    ),
    ratio("share", "absorbed / bytes"),
    Column(
        "made",
        "tokens that the server's counter had grown by when reading began",
        "tokens", "tokens", 0,
    ),
    Column(
        "stopped",
        "did the server stop making tokens, by that counter? Without one by contrast: what it had "
        "not made takes its time to come once reading began",
    ),
    Column("its end", "what became of it"),
)  # fmt: skip


STOPPED, NEVER, NOT_YET = "yes", "never", "not yet"
MEANS = {
    STOPPED: "the server stopped: while nobody read, {absorbed} were under way",
    NEVER: "the server never stopped: the whole answer, {absorbed}, was made while nobody read "
    "(--output-tokens N asks for a longer one)",
    NOT_YET: "the server was still at work when reading began, and {absorbed} were under way "
    "(--set wait=SECONDS gives it longer)",
}


def buffers(shots: Sequence[Shot], options: Sizes) -> Table:
    """The control, read at once; then one that nobody reads, and all of it at the end."""
    control, never = of(shots, CONTROL), of(shots, "never")
    span = middle(time_of(row) for shot in control for row in shot.result.rows)
    held = [_absorbing(shot, span, reads=False) for shot in never]
    lines = [*(_absorbing(shot, span, reads=True) for shot in control), *held]
    return Table(BUFFERS, tuple(lines), tuple(dict.fromkeys(map(_means, filter(_is_told, held)))))


def _is_told(line: Mapping[str, Cell]) -> bool:
    return line.get("stopped") is not None


def _means(line: Mapping[str, Cell]) -> str:
    said = MEANS[str(line["stopped"])].format(absorbed=f"{line['absorbed']:,} bytes")
    return said if line["made"] is not None else f"{said}; by contrast, as it shows no counter"


def _absorbing(shot: Shot, span: float | None, *, reads: bool) -> dict[str, Cell]:
    row = next(iter(shot.result.rows), None)
    capture = next(iter(shot.captures.values()), None)
    if row is None or capture is None:
        return {"reader": "nobody"}
    size = len(capture.received)
    line: dict[str, Cell] = {
        "reader": "at once" if reads else "not before the answer should be over",
        "bytes": size,
        "tokens": row.completion_tokens,
        "its end": row.fate.value,
    }
    if reads:
        return line
    there, made = absorbed(capture, span), _made(shot, capture)
    line |= {"absorbed": there, "share": over(there, size), "made": made}
    if there is not None and (row.success or made is not None):
        line["stopped"] = _stopped(shot, capture, row, whole=there == size)
    return line


def _stopped(shot: Shot, capture: Capture, row: Row, *, whole: bool) -> str | None:
    """`whole`: all of it was there when reading began."""
    made, asked = _made(shot, capture), row.completion_tokens
    if made is None:
        return NEVER if whole else STOPPED
    if asked is None:
        return None
    if made >= asked:
        return NEVER
    # Not all was made when reading began. Did it stand still for the last second then?
    return STOPPED if made == _made(shot, capture, STILL) else NOT_YET


def absorbed(capture: Capture, span: float | None) -> int | None:
    """Bytes that came within AT_ONCE of `span` seconds from the first read on."""
    times = [read.at for read in capture.reads]
    if not times or times[0] is None or span is None:
        return None
    until = times[0] + AT_ONCE * span
    return max(read.end for read in capture.reads if read.at is not None and read.at <= until)


def _made(shot: Shot, capture: Capture, earlier: float = 0.0) -> float | None:
    """By the counter, from before the load until the first byte was read, or seconds earlier."""
    first = capture.reads[0].at if capture.reads else None
    served = shot.result.served
    if served is None or first is None:
        return None
    began = first - earlier
    known = [s for s in served.samples if "generated_tokens" in s.values]
    before = [sample for sample in known if sample.at <= began]
    if not known or not before:
        return None
    return before[-1].values["generated_tokens"] - before[0].values["generated_tokens"]
