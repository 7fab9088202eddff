"""Is a run what it says? `valid`, or the reasons why not, each with the figure that tells. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loadgen.measure import Row
from loadgen.outcome import Fate
from loadgen.quantiles import least, quantile
from loadgen.slo import Judged, Met

LATE_AT_MOST = 0.010  # seconds, or
LATE_SHARE = 0.05  # of the median TTFT, whichever is more
RATE_OFF = 0.01
MISMATCH_SHARE = 0.01
HALF_AT_LEAST = 20  # requests in either half of a steady run
STEADY_Z = 3.29  # two halves of one distribution differ that much once in a thousand
STEADY_RATIO = 1.25

REASONS = {
    "client_limited": "requests were dropped by a limit of ours, or p99 of how late the client's "
    "own timer woke is above max(10 ms, 5 % of the median ttft@sent)",
    "rate_not_achieved": "the time from the first to the last send is off the schedule's by more "
    "than 1 % and 10 ms, or requests were dropped",
    "schedule_late": "p99 of lateness (its maximum below 100 requests) is above max(10 ms, 5 % of "
    "the median ttft@sent)",
    "too_few_samples": "no request lies in the window, or an objective asks for a percentile that "
    "the sample cannot tell",
    "not_steady": "at a steady load ttft differs between the first and the second half of the "
    "window: Mann-Whitney z beyond ±3.29 and medians apart by more than a quarter",
    "token_mismatch": "in more than 1 % of the succeeded requests usage says more tokens than were "
    "allowed, or fewer than there are chunks with text",
    "interrupted": "the schedule was not played to its end",
    "worker_lost": "one of the workers died, failed or said nothing for too long; what it has not "
    "told is in no figure",
}
# The load was not what was asked for, and the server has no part in it.
CLIENTS = frozenset({"client_limited", "rate_not_achieved", "schedule_late"})


@dataclass(frozen=True, slots=True)
class Doubt:
    """`reason`: a member of REASONS; `detail`: the figure, in words."""

    reason: str
    detail: str

    @property
    def is_of_client(self) -> bool:
        """Was our own client the limit?"""
        return self.reason in CLIENTS


def doubts(
    rows: Sequence[Row], lags: Sequence[float], judged: Iterable[Judged], *, steady: bool
) -> tuple[Doubt, ...]:
    """`rows`: those of the window. `lags`: seconds by which the client's timer woke late.

    `steady`: the load was meant to be the same all the time.
    """
    allowed = _allowed(rows)
    found = (
        _client(rows, lags, allowed),
        _rate(rows),
        _schedule(rows, allowed),
        _samples(rows, judged),
        _steadiness(rows) if steady else None,
        _tokens(rows),
    )
    return tuple(doubt for doubt in found if doubt is not None)


def _allowed(rows: Sequence[Row]) -> float:
    pairs = [(row.sent, row.first_token) for row in rows]
    served = [token - sent for sent, token in pairs if token is not None and sent is not None]
    return max(LATE_AT_MOST, LATE_SHARE * statistics.median(served)) if served else LATE_AT_MOST


def _client(rows: Sequence[Row], lags: Sequence[float], allowed: float) -> Doubt | None:
    dropped = sum(row.fate is Fate.DROPPED for row in rows)
    if dropped:
        return Doubt("client_limited", f"{dropped} requests dropped by a limit of ours")
    return _above("client_limited", "the client's timer woke late", lags, allowed)


def _schedule(rows: Sequence[Row], allowed: float) -> Doubt | None:
    late = [row.lateness for row in rows if row.lateness is not None]
    return _above("schedule_late", "sends were late", late, allowed)


def _above(reason: str, words: str, values: Sequence[float], allowed: float) -> Doubt | None:
    if not values:
        return None
    tail = quantile(sorted(values), 0.99).value
    name = f"p99 {_ms(tail)}" if tail is not None else f"at most {_ms(max(values))}"
    if (max(values) if tail is None else tail) <= allowed:
        return None
    return Doubt(reason, f"{words}: {name}, allowed {_ms(allowed)}")


def _rate(rows: Sequence[Row]) -> Doubt | None:
    dropped = sum(row.fate is Fate.DROPPED for row in rows)
    due = sorted(row.intended for row in rows if row.lateness is not None)
    went = sorted(row.intended + row.lateness for row in rows if row.lateness is not None)
    if dropped:
        return Doubt("rate_not_achieved", f"{dropped} of {len(rows)} requests were not sent")
    if len(due) < 2:
        return None
    wanted, took = due[-1] - due[0], went[-1] - went[0]
    if abs(took - wanted) <= max(RATE_OFF * wanted, LATE_AT_MOST):
        return None
    return Doubt("rate_not_achieved", f"{len(due)} sends took {took:.3f} s, meant {wanted:.3f} s")


def _samples(rows: Sequence[Row], judged: Iterable[Judged]) -> Doubt | None:
    if not rows:
        return Doubt("too_few_samples", "no request lies in the window")
    for each in judged:
        if each.met is Met.UNDECIDED:
            q = each.slo.q
            need = f", {least(q)} are needed" if q is not None else ""
            return Doubt("too_few_samples", f"{each.slo.text}: {each.n} values{need}")
    return None


def _steadiness(rows: Sequence[Row]) -> Doubt | None:
    # Later turns have longer prompts, and there are more of them later on.
    ordinary = [row for row in rows if row.success and row.client is None and not row.turn]
    known = [row for row in ordinary if row.first_token is not None]
    ordered = sorted(known, key=lambda row: row.intended)
    waits = [row.first_token - row.intended for row in ordered if row.first_token is not None]
    half = len(waits) // 2
    if half < HALF_AT_LEAST:
        return None
    first, second = waits[:half], waits[-half:]
    before, after = statistics.median(first), statistics.median(second)
    apart = max(before, after) > STEADY_RATIO * min(before, after)
    if not apart or abs(mann_whitney(first, second)) <= STEADY_Z:
        return None
    return Doubt("not_steady", f"median ttft {_ms(before)} in the first half, then {_ms(after)}")


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float:
    """The z of U for `second` against `first`, ties at their mean rank; positive: greater."""
    values = sorted([*((v, 0) for v in first), *((v, 1) for v in second)])
    total, tied, at = 0.0, 0.0, 0
    while at < len(values):
        end = at
        while end < len(values) and values[end][0] == values[at][0]:
            end += 1
        rank = (at + 1 + end) / 2
        total += rank * sum(side for _, side in values[at:end])
        tied += (end - at) ** 3 - (end - at)
        at = end
    n, m = len(first), len(second)
    size = n + m
    variance = n * m / 12 * (size + 1 - tied / (size * (size - 1)))
    u = total - m * (m + 1) / 2
    return (u - n * m / 2) / math.sqrt(variance) if variance > 0 else 0.0


def _tokens(rows: Sequence[Row]) -> Doubt | None:
    counted = [row for row in rows if row.success and row.completion_tokens is not None]
    wrong = sum(_mismatched(row) for row in counted)
    if wrong <= MISMATCH_SHARE * len(counted):
        return None
    return Doubt("token_mismatch", f"{wrong} of {len(counted)} requests with usage")


def _mismatched(row: Row) -> bool:
    counted = row.completion_tokens or 0
    over = row.output_asked is not None and counted > row.output_asked
    return over or counted < len(row.token_times)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
