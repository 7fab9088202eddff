"""One run under the definitions of other tools: what each of them calls TTFT, TPOT, ITL, E2E,
throughput, a success and a percentile. Pure.

The definitions are those of the tools' own sources; where a tool needs what a row does not hold
(its own tokenizer, its own clock) the nearest that a row holds stands in, and `notes` says so. All
of them look at the same requests, those of the window, and at the same instants: what differs
between the lines is the definitions alone.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from loadgen.measure import Row
from loadgen.outcome import Fate
from loadgen.quantiles import quantile
from loadgen.summary import counted_rows

Values = Callable[[Row], tuple[float, ...]]
Percentile = Callable[[Sequence[float], float], float | None]
QUANTITIES = ("ttft", "tpot", "itl", "e2e")
QS = (0.5, 0.99)


@dataclass(frozen=True, slots=True)
class Quantity:
    """Seconds that a request gives, and the formula in words."""

    formula: str
    values: Values


@dataclass(frozen=True, slots=True)
class Tool:
    """`success`, `throughput`, `percentile`: what it does, in words; None: it has no such figure.

    `seconds`: what it divides tokens by. `version`: which source was read.
    """

    name: str
    version: str
    quantities: Mapping[str, Quantity]
    succeeds: Callable[[Row], bool]
    success: str
    percentile_of: Percentile
    percentile: str
    seconds: Callable[[Sequence[Row]], float] | None
    throughput: str
    notes: str


@dataclass(frozen=True, slots=True)
class Line:
    """One tool's figures; `of`: quantity → its mean and the percentiles of QS, None: unknown."""

    tool: Tool
    succeeded: int
    counted: int
    n: Mapping[str, int]
    of: Mapping[str, tuple[float | None, ...]]
    tokens_a_second: float | None


# -- instants --------------------------------------------------------------------------------------


def _span(start: str, end: str) -> Values:
    def values(row: Row) -> tuple[float, ...]:
        a, b = getattr(row, start), getattr(row, end)
        return () if a is None or b is None else (b - a,)

    return values


def _last_token(row: Row) -> float | None:
    return row.token_times[-1] if row.token_times else None


def _to_last_token(start: str) -> Values:
    def values(row: Row) -> tuple[float, ...]:
        begun, last = getattr(row, start), _last_token(row)
        return () if begun is None or last is None else (last - begun,)

    return values


def _each(e2e: Values, ttft: Values, less: Callable[[Row], int]) -> Values:
    """(E2E − TTFT) / (n − less), of requests with more tokens than that."""

    def values(row: Row) -> tuple[float, ...]:
        whole, first = e2e(row), ttft(row)
        after = (row.completion_tokens or 0) - less(row)
        return ((whole[0] - first[0]) / after,) if whole and first and after > 0 else ()

    return values


def _one(row: Row) -> int:
    return 1


def _first_chunk(row: Row) -> int:
    return row.first_chunk_tokens or 1


def _choice_gaps(row: Row) -> tuple[float, ...]:
    """Between chunks with choices: the role's and the finish's chunk as well as those with text."""
    ends = [at for at in (row.first_choice, row.last_choice) if at is not None]
    extra = [at for at in ends if at not in (row.first_token, _last_token(row))]
    return tuple(b - a for a, b in pairwise(sorted([*row.token_times, *extra])))


def _zero_filled(row: Row) -> tuple[float, ...]:
    """The gap once for each chunk, and 0 for each further token in it."""
    more = max(0, (row.completion_tokens or 0) - len(row.token_times))
    return (*row.gaps, *(0.0 for _ in range(more)))


def _per_token(row: Row) -> tuple[float, ...]:
    tokens = row.completion_tokens or len(row.token_times)
    last = _last_token(row)
    if not tokens or last is None or row.started is None:
        return ()
    return ((last - row.started) / tokens,)


def _mean_gap(row: Row) -> tuple[float, ...]:
    tokens = row.completion_tokens or len(row.token_times)
    if tokens < 2 or not row.token_times:
        return ()
    return ((row.token_times[-1] - row.token_times[0]) / (tokens - 1),)


def _only_several(values: Values) -> Values:
    return lambda row: values(row) if (row.completion_tokens or 0) > 1 else ()


# -- successes, percentiles, durations -------------------------------------------------------------

_ERRORS = (Fate.ERROR_BEFORE_TOKEN, Fate.ERROR_AFTER_TOKEN)


def _ended_in_order(row: Row) -> bool:
    """A 2xx whose HTTP message was whole, whatever the stream in it said."""
    good = row.status is not None and 200 <= row.status < 300
    return row.success or (good and row.detail == "framed")


def _any_choice(row: Row) -> bool:
    return _ended_in_order(row) and row.first_choice is not None


def _no_error_told(row: Row) -> bool:
    return _ended_in_order(row) and row.fate not in _ERRORS


def linear(ordered: Sequence[float], q: float) -> float | None:
    """numpy.percentile's default: between the two neighbours of position q·(n − 1)."""
    if not ordered:
        return None
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def truncated(ordered: Sequence[float], q: float) -> float | None:
    """The value at index ⌊q·n⌋, counted from 0."""
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else None


def inverse(ordered: Sequence[float], q: float) -> float | None:
    """The least value that a share of q does not exceed."""
    return ordered[max(0, math.ceil(q * len(ordered) - 1e-9) - 1)] if ordered else None


def _ours(ordered: Sequence[float], q: float) -> float | None:
    return quantile(ordered, q).value


def _from_start_to_end(rows: Sequence[Row]) -> float:
    starts = [row.started for row in rows if row.started is not None]
    ends = [row.ended for row in rows if row.ended is not None]
    return max(ends) - min(starts) if starts and ends else 0.0


def _from_schedule_to_end(rows: Sequence[Row]) -> float:
    ends = [row.ended for row in rows if row.ended is not None]
    return max(ends) - min(row.intended for row in rows) if ends else 0.0


# -- the tools -------------------------------------------------------------------------------------

_NUMPY = "numpy.percentile, linear between neighbours, of successes"
_TOKENS = "its tokens are a local tokenizer's; here the server's usage stands in"
_DURATION = "output tokens of successes / (last end − first start)"
_TEXT = "first chunk with content, reasoning or a tool call"
_CHOICE = Quantity("first chunk with choices, a role-only one too − start of the request",
                   _span("started", "first_choice"))  # fmt: skip
_FIRST = Quantity(f"{_TEXT} − start of the request", _span("started", "first_token"))
_ANSWER = Quantity(
    "first chunk with content, reasoning ignored − start; only with more than one token",
    _only_several(_span("started", "first_answer")),
)
_SCHEDULED = Quantity("first token − scheduled time", _span("intended", "first_token"))
_TO_CHOICE = Quantity("last chunk with choices − start of the request",
                      _span("started", "last_choice"))  # fmt: skip
_TO_CLOSE = Quantity("stream closed − start of the request", _span("started", "ended"))
_TO_TEXT = Quantity("last chunk with content − start of the request", _to_last_token("started"))
_AFTER_ALL = Quantity("last token − scheduled time", _to_last_token("intended"))
_AFTER_ONE = "(E2E − TTFT) / (tokens − 1)"
_GUIDED = Quantity("mean of a request: (last − first token) / (tokens − 1)", _mean_gap)
_AIMED = Quantity(
    "(E2E − TTFT) / (tokens − those of the first chunk, or 1)",
    _each(_TO_TEXT.values, _FIRST.values, _first_chunk),
)

TOOLS: tuple[Tool, ...] = (
    Tool(
        name="vLLM bench",
        version="vllm bench serve, 2026-09",
        quantities={
            "ttft": _CHOICE,
            "tpot": Quantity(_AFTER_ONE, _each(_TO_CHOICE.values, _CHOICE.values, _one)),
            "itl": Quantity("gaps between chunks with choices, pooled", _choice_gaps),
            "e2e": _TO_CHOICE,
        },
        succeeds=_any_choice,
        success="HTTP 2xx, body whole, one chunk with choices; an error in the stream passes",
        percentile_of=linear,
        percentile=_NUMPY,
        seconds=_from_start_to_end,
        throughput=_DURATION,
        notes="only the first and the last chunk without text are known to a row",
    ),
    Tool(
        name="GuideLLM",
        version="guidellm, 2026-08",
        quantities={
            "ttft": _FIRST,
            "tpot": Quantity("(last token − start) / tokens: TTFT is in it", _per_token),
            "itl": _GUIDED,
            "e2e": _TO_CLOSE,
        },
        succeeds=_no_error_told,
        success="HTTP 2xx, body whole, no error in the stream; a missing finish passes",
        percentile_of=inverse,
        percentile="the least value that a share of q does not exceed, of successes",
        seconds=None,
        throughput="weighted by time, not computed here",
        notes="its clock is the wall clock",
    ),
    Tool(
        name="AIPerf",
        version="aiperf 0.13.0",
        quantities={"ttft": _FIRST, "tpot": _AIMED, "itl": _AIMED, "e2e": _TO_TEXT},
        succeeds=_ended_in_order,
        success="HTTP 2xx, body whole; an error as data of a plain event passes",
        percentile_of=linear,
        percentile=_NUMPY,
        seconds=_from_start_to_end,
        throughput=_DURATION,
        notes=_TOKENS,
    ),
    Tool(
        name="inference-perf",
        version="inference-perf, 2026-08",
        quantities={
            "ttft": _ANSWER,
            "tpot": Quantity("(last − first token) / (tokens − 1)", _mean_gap),
            "itl": Quantity(
                "the gap once a chunk, 0 for each further token in it; pooled", _zero_filled
            ),
            "e2e": _TO_CLOSE,
        },
        succeeds=_ended_in_order,
        success="HTTP 2xx, body whole; errors in the stream and streams without tokens pass",
        percentile_of=linear,
        percentile=_NUMPY,
        seconds=_from_start_to_end,
        throughput=_DURATION,
        notes=f"{_TOKENS}; its E2E has the time of its tokenizer in it",
    ),
    Tool(
        name="MLPerf",
        version="mlcommons loadgen, Server scenario, 2026-08",
        quantities={
            "ttft": _SCHEDULED,
            "tpot": Quantity(_AFTER_ONE, _each(_AFTER_ALL.values, _SCHEDULED.values, _one)),
            "e2e": _AFTER_ALL,
        },
        succeeds=lambda row: row.success,
        success="whatever the system under test reports as done; here ours",
        percentile_of=truncated,
        percentile="the value at index ⌊q·n⌋ of the sorted ones",
        seconds=_from_schedule_to_end,
        throughput="tokens / (last end − first scheduled time)",
        notes="its client is a library in the server's process",
    ),
)
OURS = Tool(
    name="streamproof",
    version="this run",
    quantities={
        "ttft": Quantity(
            "first chunk with text − intended start", _span("intended", "first_token")
        ),
        "tpot": Quantity(
            "(last − first chunk with text) / (tokens − those of the first chunk, or 1)",
            lambda row: () if row.tpot is None else (row.tpot,),
        ),
        "itl": Quantity("gaps between chunks with text, pooled", lambda row: row.gaps),
        "e2e": Quantity("last event − intended start", _span("intended", "last_event")),
    },
    succeeds=lambda row: row.success,
    success="finished in order with tokens, a finish reason and no error",
    percentile_of=_ours,
    percentile="the ⌈q·n⌉-th smallest, of successes; none where the sample is too small",
    seconds=_from_start_to_end,
    throughput=_DURATION,
    notes="throughput is computed the tools' way here, for comparison; see rates for ours",
)


def lines(rows: Sequence[Row]) -> tuple[Line, ...]:
    """Ours first. `rows`: those of the window."""
    sent = [row for row in counted_rows(rows) if row.was_sent]
    return tuple(_line(tool, sent) for tool in (OURS, *TOOLS))


def _line(tool: Tool, sent: Sequence[Row]) -> Line:
    good = [row for row in sent if tool.succeeds(row)]
    pools = {
        name: sorted(value for row in good for value in quantity.values(row))
        for name, quantity in tool.quantities.items()
    }
    seconds = tool.seconds(sent) if tool.seconds is not None and sent else 0.0
    counts = [row.completion_tokens for row in good if row.completion_tokens is not None]
    return Line(
        tool=tool,
        succeeded=len(good),
        counted=len(sent),
        n={name: len(pool) for name, pool in pools.items()},
        of={name: _figures(tool, pool) for name, pool in pools.items()},
        tokens_a_second=sum(counts) / seconds if seconds > 0 and counts else None,
    )


def _figures(tool: Tool, pool: Sequence[float]) -> tuple[float | None, ...]:
    mean = statistics.fmean(pool) if pool else None
    return (mean, *(tool.percentile_of(pool, q) for q in QS))
