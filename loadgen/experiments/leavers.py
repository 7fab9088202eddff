"""Reports of experiments whose clients hang up. Pure: shots → a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loadgen.bounds import AS_READ, AT_MOST
from loadgen.experiments.figures import (
    GAUGES,
    Shot,
    Sizes,
    gaps,
    level,
    middle,
    of,
    over,
    role,
    time_of,
    waits,
)
from loadgen.experiments.spec import CONTROL
from loadgen.experiments.table import Cell, Column, Table, millis, number, ratio, requests, seconds
from loadgen.measure import Row
from loadgen.outcome import Fate
from loadgen.server_metrics import Sample

EDGE = 0.15  # seconds around the coming and going of others in which a sample says nothing
ROUNDING = 1e-6

HANG_UPS = (
    Column("they hang up", "when, and how"),
    Column("left", "that hung up, of those that were to"),
    Column("got", "chunks with text that each of them had got; mean", "chunks", "", 1),
    Column(
        "made",
        "tokens made for each of them: growth of the server's counter − completion_tokens of all "
        "others; median of rounds", "tokens", "tokens", 0,
    ),
    seconds(
        "back",
        "from the last hang-up to the first look at the server's gauges from which on they show "
        "no more requests than others have; the worst of the rounds that came back",
    ),
    requests("stuck", "rounds in which they did not come back while they were watched"),
    millis("probe", "median ttft of a request that comes later", AT_MOST),
    millis(
        "stall", "worst gap of the neighbours, from the first hang-up on; median of rounds", AS_READ
    ),
    requests("lost", "others that did not come whole"),
)  # fmt: skip


def hang_ups(shots: Sequence[Shot], options: Sizes) -> Table:
    """A line for each moment and way; two before them in which nobody hangs up."""
    lines: list[Mapping[str, Cell]] = []
    for name in dict.fromkeys(shot.turn.name for shot in shots):
        lines.append(_hang_up(name, [shot for shot in shots if shot.turn.name == name]))
    notes = ["stuck and back are by the server's own gauges"] if _gauged(shots) else [
        "the server shows no gauges: whether its work ended is to be seen by contrast, in the "
        "probe's wait beside that of `nobody leaves`"
    ]  # fmt: skip
    waiting = [shot for shot in shots if shot.turn.load.name == "waiting"]
    if waiting and _gauged(waiting) and not any(_waited(shot) for shot in waiting):
        notes.append("nobody had to wait: with --set crowd=N more come before them")
    return Table(HANG_UPS, tuple(lines), tuple(notes))


def _gauged(shots: Sequence[Shot]) -> bool:
    return any(s.values for shot in shots for s in _samples(shot) if level(s) is not None)


def _waited(shot: Shot) -> bool:
    return any(sample.values.get("waiting", 0.0) > 0 for sample in _samples(shot))


def _samples(shot: Shot) -> Sequence[Sample]:
    return shot.result.served.samples if shot.result.served is not None else ()


def _hang_up(name: str, shots: Sequence[Shot]) -> dict[str, Cell]:
    leavers = [row for shot in shots for row in role(shot.result.rows, "leaver")]
    left = [row for row in leavers if row.fate is Fate.LEFT]
    others = [row for shot in shots for row in shot.result.rows if row.client != "leaver"]
    probes = [row for row in others if row.client == "probe"]
    line: dict[str, Cell] = {
        "they hang up": "never: neighbours alone" if name == CONTROL else name,
        "probe": middle(waits(probes)),
        "stall": middle(_stall(shot) for shot in shots),
        "lost": sum(not row.success for row in others),
    }
    if leavers:
        line["got"] = sum(len(row.token_times) for row in leavers) / len(leavers)
        line["made"] = middle(_made(shot) for shot in shots)
    if not left:
        return line
    back = [back_after(shot.result.rows, _samples(shot)) for shot in shots]
    known = [each for each in back if each is not None]
    line["left"] = f"{len(left)} of {len(leavers)}"
    if known:
        came = [each for each in known if each is not False]
        line["back"] = max(came, default=None)
        line["stuck"] = len(known) - len(came)
    return line


def _stall(shot: Shot) -> float | None:
    leavers = [row for row in role(shot.result.rows, "leaver") if row.fate is Fate.LEFT]
    ends = [row.ended for row in leavers if row.ended is not None]
    return max(gaps(role(shot.result.rows), min(ends, default=None)), default=None)


def _made(shot: Shot) -> float | None:
    """None without a counter, and where one of the others did not say its tokens."""
    served = shot.result.served
    leavers = role(shot.result.rows, "leaver")
    others = [row for row in shot.result.rows if row.client != "leaver"]
    counts = [row.completion_tokens for row in others if row.completion_tokens is not None]
    if served is None or served.tokens is None or len(counts) < len(others) or not leavers:
        return None
    return max(0.0, served.tokens - sum(counts)) / len(leavers)


def back_after(rows: Sequence[Row], samples: Sequence[Sample]) -> float | bool | None:
    """Seconds from the last hang-up until the gauges show nobody more than is there.

    False: they did not come back as long as they were watched. None: nobody can tell, as there are
    no gauges, or every look at them fell into the coming and going of others.
    """
    ends = [row.ended for row in rows if row.fate is Fate.LEFT and row.ended is not None]
    levels = [(sample.at, shown) for sample in samples if (shown := level(sample)) is not None]
    if not ends or not levels:
        return None
    gone, others = max(ends), [row for row in rows if row.fate is not Fate.LEFT]
    first = min((row.sent for row in rows if row.sent is not None), default=gone)
    base = min((shown for at, shown in levels if at <= first), default=0.0)
    back: float | bool = False
    seen = False
    for at, shown in levels:
        there = _there(others, at) if at >= gone else None
        if there is None:
            continue
        seen = True
        if shown > base + there + ROUNDING:
            back = False
        elif back is False:
            back = at - gone
    return back if seen else None


def _there(others: Sequence[Row], at: float) -> int | None:
    """How many of them the server has; None while one is coming or going."""
    count = 0
    for row in others:
        start = row.started if row.started is not None else row.sent
        if start is None or row.ended is None:
            continue
        if abs(at - start) < EDGE or abs(at - row.ended) < EDGE:
            return None
        count += start < at < row.ended
    return count


# -- many of them ----------------------------------------------------------------------------------

LEAKS = (
    Column("clients", "who"),
    requests("sent", "requests"),
    requests("whole", "that came whole"),
    requests("left", "that we hung up on"),
    requests("lost", "that read to the end and did not come whole"),
    millis("ttft-p50", "first chunk with text − last byte of the request sent", AT_MOST),
    millis("e2e-p50", "last event − last byte of the request sent", AT_MOST),
    requests(
        "changed",
        "of the requests alone whose answers before were the same twice: those answered otherwise "
        "after",
    ),
    requests("running", "by the server's gauge at the end"),
    requests("waiting", "the same"),
    Column("blocks", "share of its cache that is in use, the same", "x", "", 3),
    requests("more", "running and waiting, after − before"),
    Column("blocks-more", "blocks, after − before", "x", "", 3),
    ratio("slower", "e2e-p50 of the requests alone, after / before", AS_READ),
)
_ALONE = {"before": "alone, before", "after": "alone, after"}


def leaks(shots: Sequence[Shot], options: Sizes) -> Table:
    """Requests alone before and after; between them the mixture, a line for each kind."""
    before, after = of(shots, "before"), of(shots, "after")
    lines = [_alone("before", before)] if before else []
    mixed = [row for shot in of(shots, "mixed") for row in shot.result.rows]
    for name in dict.fromkeys(row.client for row in mixed):
        mine = [row for row in mixed if row.client == name]
        lines.append(_kind(name or "read to the end", mine, reads=name is None))
    if before and after:
        was, now = lines[0], _alone("after", after)
        now["more"] = _difference(now, was, GAUGES)
        now["blocks-more"] = _difference(now, was, ("blocks",))
        now["changed"] = _changed(of(shots, CONTROL), before, after)
        now["slower"] = over(number(now["e2e-p50"]), number(was["e2e-p50"]))
        lines.append(now)
    return Table(LEAKS, tuple(lines))


def _changed(first: Sequence[Shot], before: Sequence[Shot], after: Sequence[Shot]) -> int | None:
    """None where no answer repeated itself."""
    once, twice, again = (_answers(shots) for shots in (first, before, after))
    repeat = [key for key, answer in twice.items() if once.get(key) == answer]
    return sum(key in again and again[key] != twice[key] for key in repeat) if repeat else None


def _answers(shots: Sequence[Shot]) -> dict[tuple[int, str], str]:
    """Round and prompt → the answer's hash."""
    return {
        (shot.turn.round, row.prompt_hash): row.answer_hash
        for shot in shots
        for row in shot.result.rows
        if row.success and row.answer_hash is not None
    }


def _alone(load: str, shots: Sequence[Shot]) -> dict[str, Cell]:
    rows = [row for shot in shots for row in shot.result.rows]
    line = _kind(_ALONE[load], rows, reads=True)
    last = [samples[-1] for shot in shots if (samples := _samples(shot))]
    for name in (*GAUGES, "blocks"):
        values = [sample.values[name] for sample in last if name in sample.values]
        line[name] = max(values, default=None)
    return line


def _kind(name: str, rows: Sequence[Row], *, reads: bool) -> dict[str, Cell]:
    whole = sum(row.success for row in rows)
    return {
        "clients": name,
        "sent": sum(row.was_sent for row in rows),
        "whole": whole,
        "left": sum(row.fate is Fate.LEFT for row in rows),
        "lost": len(rows) - whole if reads else None,
        "ttft-p50": middle(waits(rows)),
        "e2e-p50": middle(time_of(row) for row in rows if row.success),
    }


def _difference(
    after: Mapping[str, Cell], before: Mapping[str, Cell], names: Sequence[str]
) -> float | None:
    pairs = [(number(after.get(name)), number(before.get(name))) for name in names]
    known = [a - b for a, b in pairs if a is not None and b is not None]
    return sum(known) if known else None
