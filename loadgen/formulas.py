"""The metrics of a request, each with the formula that reports print beside it. Pure.

A latency has two origins: `ttft` counts from the intended start, what a user waits who comes when
the load says; `ttft@sent` from the last byte of the request, what the server is to answer for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from loadgen.measure import Row

Values = Callable[[Row], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Metric:
    """`values`: seconds that one request gives; none where it has none.

    `pooled`: a request gives several. `between`: it needs two chunks with text, so that a request
    with fewer has nothing to be missed. `clients`: it is the client's own, and says nothing of what
    became of the request. `streams`: a plain answer has no such thing.
    """

    name: str
    formula: str
    values: Values
    pooled: bool = False
    between: bool = False
    clients: bool = False
    streams: bool = False

    @property
    def adjusts(self) -> bool:
        """Does a failed request count as infinitely slow in it?"""
        return not (self.pooled or self.clients)


def _instant(name: str, origin: str, of: str) -> Values:
    start, end = attrgetter(origin), attrgetter(of)

    def values(row: Row) -> tuple[float, ...]:
        begun, ended = start(row), end(row)
        return () if begun is None or ended is None else (ended - begun,)

    return values


def _single(of: str) -> Values:
    value = attrgetter(of)
    return lambda row: () if value(row) is None else (value(row),)


# Name → the attribute of a row with the instant, and in words what that instant is.
_INSTANTS = {
    "ttfb": ("first_byte", "first byte of the answer"),
    "first-event": ("first_event", "first event with data, whatever it holds"),
    "ttft": ("first_token", "first chunk with non-empty content, reasoning, refusal or tool call"),
    "first-answer": ("first_answer", "first chunk with non-empty content, refusal or tool call"),
    "e2e": (
        "last_event",
        "last event of the stream, the sentinel included, or last byte of a plain answer",
    ),
}
_OF_ANY_ANSWER = ("ttfb", "e2e")
_ORIGINS = {"intended": ("", "intended start"), "sent": ("@sent", "last byte of the request sent")}


def _latencies() -> list[Metric]:
    return [
        Metric(
            name + suffix,
            f"read of the {words} − {said}",
            _instant(name, origin, attribute),
            streams=name not in _OF_ANY_ANSWER,
        )
        for name, (attribute, words) in _INSTANTS.items()
        for origin, (suffix, said) in _ORIGINS.items()
    ]


_TPOT = (
    "(last − first chunk with text) / (completion_tokens of usage − tokens of that first chunk, "
    "1 where the server does not say how many it held)"
)
METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        *_latencies(),
        Metric(
            "ttft@first",
            f"read of the {_INSTANTS['ttft'][1]} − intended start of the first try",
            _instant("ttft@first", "first_wanted", "first_token"),
            streams=True,
        ),
        Metric("tpot", _TPOT, _single("tpot"), between=True, streams=True),
        Metric(
            "gap",
            "time between neighbouring chunks with text, of all requests; 0 within one read",
            attrgetter("gaps"),
            pooled=True,
            between=True,
            streams=True,
        ),
        Metric(
            "stall", "the longest gap of a request", _single("stall"), between=True, streams=True
        ),
        Metric(
            "connect",
            "connected − taken up, of new connections",
            _single("connecting"),
            clients=True,
        ),
        Metric("lateness", "sent − intended start − connect", _single("lateness"), clients=True),
    )
}
