"""Reports of experiments in which everybody reads to the end. Pure: shots → a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from conformance.report.escape import excerpt
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
    throughput,
    tokens_each,
    waits,
)
from loadgen.experiments.spec import CONTROL
from loadgen.experiments.table import AT_LEAST, Cell, Column, Table, millis, ratio, requests
from loadgen.measure import Row
from loadgen.outcome import Fate
from loadgen.trust import LATE_SHARE, Doubt

OVERLAP = (
    Column("streams", "requests sent at once", "requests"),
    Column(
        "tokens-s",
        "completion_tokens of usage of all / (last chunk with text − first send); median of rounds",
        "1/s", "1/s", 0, AT_LEAST,
    ),
    ratio("gain", "tokens-s / tokens-s of the first line", AS_READ),
    millis("gap-p50", "between neighbouring chunks with text, all streams and rounds", AS_READ),
    millis("gap-p99", "the same", AS_READ),
    millis("ttft-p50", "first chunk with text − last byte of the request sent", AT_MOST),
    Column("tokens", "mean completion_tokens of a stream", "tokens", "", 0),
    Column(
        "identical",
        "answers equal to those of the same requests asked alone, of those that repeat themselves "
        "when asked alone twice",
    ),
    requests("differ", "those that are not"),
)  # fmt: skip


def overlap(shots: Sequence[Shot], options: Sizes) -> Table:
    """A line for each number of streams at once."""
    lines: list[Mapping[str, Cell]] = []
    base: float | None = None
    for n in dict.fromkeys(shot.turn.n for shot in shots):
        mine = [shot for shot in shots if shot.turn.n == n]
        rows = [row for shot in mine for row in shot.result.rows if row.success]
        rate = middle(throughput(shot.result.rows) for shot in mine)
        base = rate if base is None else base
        lines.append(
            {
                "streams": n,
                "tokens-s": rate,
                "gain": over(rate, base),
                "gap-p50": pooled(gaps(rows), 0.5),
                "gap-p99": pooled(gaps(rows), 0.99),
                "ttft-p50": middle(waits(rows)),
                "tokens": tokens_each(rows),
                **_identity(mine),
            }
        )
    return Table(OVERLAP, tuple(lines))


def _identity(shots: Sequence[Shot]) -> dict[str, Cell]:
    found = [shot.result.solo for shot in shots if shot.result.solo is not None]
    asked, repeats = sum(each.asked for each in found), sum(each.repeats for each in found)
    differ = sum(len(each.differs) for each in found)
    if not found or not repeats:
        return {"identical": f"none of {asked} repeats itself" if asked else None, "differ": None}
    return {"identical": f"{repeats - differ} of {repeats}", "differ": differ}


# -- others come while some run ------------------------------------------------------------------

ARRIVALS = (
    Column(
        "running streams",
        "when: alone; then, with the others: gaps that ended before, that overlap a wait for a "
        "first token, that began after the last wait",
    ),
    millis("gap-p50", "between neighbouring chunks with text of the running streams", AS_READ),
    millis("gap-p99", "the same", AS_READ),
    millis("gap-max", "the worst of them", AS_READ),
    millis(
        "ttft-p50",
        "of those that came then: first chunk with text − last byte of the request",
        AT_MOST,
    ),
    millis("ttft-max", "the same, the worst", AT_MOST),
    Column("prompt", "median prompt_tokens of usage of those that came then", "tokens", "", 0),
    requests("lost", "requests that did not come whole"),
)


def joiners(shots: Sequence[Shot], options: Sizes) -> Table:
    """Before the first of them, while one waits for its first token, and when all have it."""
    return _arrivals(shots, "joined", "joiner")


def long_prompt(shots: Sequence[Shot], options: Sizes) -> Table:
    """The same for one that takes long to be read."""
    return _arrivals(shots, "long", "long")


def _arrivals(shots: Sequence[Shot], load: str, name: str) -> Table:
    alone, joined = of(shots, CONTROL), of(shots, load)
    found: dict[str, list[list[float]]] = {moment: [] for moment in _MOMENTS}
    for shot in joined:
        running, come = role(shot.result.rows), role(shot.result.rows, name)
        for moment, values in _split(running, come).items():
            found[moment].append(values)
    came = [row for shot in joined for row in role(shot.result.rows, name)]
    lines = [_line("alone", [gaps(shot.result.rows) for shot in alone])]
    lines[0].update(_came([row for shot in alone for row in shot.result.rows]))
    lines += [_line(moment, values) for moment, values in found.items()]
    lines[2].update(_came(came))
    lost = [row for shot in joined for row in role(shot.result.rows) if not row.success]
    lines[3]["lost"] = len(lost)
    return Table(ARRIVALS, tuple(lines))


_MOMENTS = ("before they come", "while one waits", "when all have come")


def _split(running: Sequence[Row], come: Sequence[Row]) -> dict[str, list[float]]:
    """The gaps of the running streams; one that lies between two waits is in none."""
    spans = [(row.sent, row.first_token) for row in come]
    known = [(start, end) for start, end in spans if start is not None and end is not None]
    out: dict[str, list[float]] = {moment: [] for moment in _MOMENTS}
    if not known:
        return out
    first, last = min(start for start, _ in known), max(end for _, end in known)
    for row in running:
        for a, b in pairwise(row.token_times):
            if b <= first:
                out[_MOMENTS[0]].append(b - a)
            elif any(a < end and b > start for start, end in known):
                out[_MOMENTS[1]].append(b - a)
            elif a >= last:
                out[_MOMENTS[2]].append(b - a)
    return out


def _line(name: str, rounds: Sequence[Sequence[float]]) -> dict[str, Cell]:
    values = [gap for each in rounds for gap in each]
    return {
        "running streams": name,
        "gap-p50": pooled(values, 0.5),
        "gap-p99": pooled(values, 0.99),
        "gap-max": max(values, default=None),
    }


def _came(rows: Sequence[Row]) -> dict[str, Cell]:
    prompts = [row.prompt_tokens for row in rows if row.prompt_tokens is not None]
    return {
        "ttft-p50": middle(waits(rows)),
        "ttft-max": max(waits(rows), default=None),
        "prompt": middle(prompts),
        "lost": sum(not row.success for row in rows),
    }


# -- more and more ---------------------------------------------------------------------------------

MANY = (
    Column("streams", "requests sent at once", "requests"),
    requests("whole", "that came whole"),
    requests("refused", "that were refused by a status"),
    requests("failed", "that failed otherwise, or broke a MUST"),
    Column("tokens-s", "as for overlap", "1/s", "1/s", 0, AT_LEAST),
    millis("ttft-p50", "first chunk with text − last byte of the request sent", AT_MOST),
    millis("ttft-max", "the same, the worst", AT_MOST),
    Column("broke", "what went wrong first"),
)
NOTHING = "nothing"
SAID = 60  # characters of a refusal


def many_streams(shots: Sequence[Shot], options: Sizes) -> Table:
    """A line for each number, the last one with what broke."""
    lines = tuple(_many(shot, options) for shot in shots)
    is_whole = bool(lines) and all(line["broke"] == NOTHING for line in lines)
    notes = [_unbroken(shots[-1])] if is_whole else []
    late = [(shot, doubt) for shot in shots if not broke(shot, options) for doubt in _ours(shot)]
    notes += [_late(*each) for each in late[:1]]
    return Table(MANY, lines, tuple(notes))


def _unbroken(last: Shot) -> str:
    limit, n = last.result.load.get("streams_at_most"), last.turn.n
    if n == limit:
        why = "more files than that may not be open here (ulimit -n)"
    else:
        why = "more were not asked for (--streams N)"
    return f"nothing broke up to {n} streams, and {why}"


def _ours(shot: Shot) -> list[Doubt]:
    return [doubt for doubt in shot.result.doubts if doubt.is_of_client]


def _late(shot: Shot, doubt: Doubt) -> str:
    return (
        f"from {shot.turn.n} streams on our own client was late ({doubt.detail}): they were not "
        "sent quite at once; waits count from each send, and the kernel times what comes"
    )


def _many(shot: Shot, options: Sizes) -> dict[str, Cell]:
    rows = shot.result.rows
    refused = sum(row.fate is Fate.REFUSED for row in rows)
    return {
        "streams": shot.turn.n,
        "whole": sum(row.success for row in rows),
        "refused": refused,
        "failed": shot.result.failed - refused,
        "tokens-s": throughput([row for row in rows if row.success]),
        "ttft-p50": middle(waits(rows)),
        "ttft-max": max(waits(rows), default=None),
        "broke": broke(shot, options) or NOTHING,
    }


def broke(shot: Shot, options: Sizes) -> str | None:
    """In words; the server's limits before our own client's."""
    result, n = shot.result, shot.turn.n
    for failure in result.failures:
        if failure.fate is Fate.REFUSED:
            said = f"{failure.status} {excerpt(failure.told)[:SAID]}".strip()
            return f"the server refused {failure.count} of {n} ({said})"
        why = " ".join(str(each) for each in (failure.status, failure.detail) if each is not None)
        return f"{failure.count} of {n} {failure.fate.value}" + (f" ({why})" if why else "")
    if result.failed:
        return f"{result.failed} of {n} answers break a MUST"
    for name, found, words in (
        ("ttft", waits(result.rows), "a first token took"),
        ("gap", gaps(result.rows), "a stream stood still for"),
    ):
        worst = max(found, default=0.0)
        if worst > options.get(name, math.inf):
            return f"{words} {worst:.1f} s ({name} {options[name]})"
    return _ours_broke(shot, options)


def _ours_broke(shot: Shot, options: Sizes) -> str | None:
    """Did our own client, by a part of what is looked for? Where its own reads are the clock it is
    the limit as soon as it is late at all."""
    result = shot.result
    if result.summary.books.dropped:
        return f"our own client: {result.summary.books.dropped} of {shot.turn.n} were not sent"
    late = max((row.lateness for row in result.rows if row.lateness is not None), default=0.0)
    if late > LATE_SHARE * options.get("ttft", math.inf):
        return f"our own client: sends were up to {late:.1f} s late"
    ours = _ours(shot) if result.summary.is_by_reads else []
    return f"our own client: {ours[0].detail}" if ours else None
