"""The server's own numbers beside ours: tokens reconciled, its TTFT histogram next to what clients
saw. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conformance.metrics import Row as Line
from loadgen.formulas import METRICS
from loadgen.measure import Row
from loadgen.summary import described

# Server (a name of conformance.metrics.MAPS) → its histogram of the time to the first token.
FIRST_TOKEN: Mapping[str, str] = {
    "streamproof": "streamproof:time_to_first_token_seconds",
    "vllm": "vllm:time_to_first_token_seconds",
    "sglang": "sglang:time_to_first_token_seconds",
}
MEANS = (
    "ttft@sent − the server's own: network, HTTP and whatever the server does before its clock "
    "starts, and from its first token until our read"
)


@dataclass(frozen=True, slots=True)
class Histogram:
    """`buckets`: (upper bound, values up to it), ascending; seconds."""

    buckets: tuple[tuple[float, float], ...]
    sum: float
    count: float

    @property
    def mean(self) -> float | None:
        return self.sum / self.count if self.count > 0 else None

    def within(self, q: float) -> tuple[float, float] | None:
        """The bounds of the bucket that the quantile lies in."""
        low = 0.0
        for bound, below in self.buckets:
            if self.count > 0 and below >= q * self.count:
                return low, bound
            low = bound
        return None

    def since(self, before: Histogram | None) -> Histogram:
        """What was added; all of it where there was none, or the server began anew."""
        if before is None or before.count > self.count:
            return self
        was = dict(before.buckets)
        buckets = tuple((bound, n - was.get(bound, 0.0)) for bound, n in self.buckets)
        return Histogram(buckets, self.sum - before.sum, self.count - before.count)


def histogram_from(rows: Sequence[Line], name: str) -> Histogram | None:
    """Summed over its labels; None where it is not there whole."""
    below: dict[float, float] = {}
    for row in rows:
        if row.name == f"{name}_bucket" and "le" in row.labels:
            try:
                bound = float(row.labels["le"])
            except ValueError:
                return None
            below[bound] = below.get(bound, 0.0) + row.value
    sums = [row.value for row in rows if row.name == f"{name}_sum"]
    counts = [row.value for row in rows if row.name == f"{name}_count"]
    if not below or not sums or not counts or not all(map(math.isfinite, (*sums, *counts))):
        return None
    return Histogram(tuple(sorted(below.items())), sum(sums), sum(counts))


@dataclass(frozen=True, slots=True)
class Sample:
    """One scrape; `at` on the clock of the rows, in seconds. `values`: role → number."""

    at: float
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Served:
    """What the server said of a load. `server`: whose names it uses.

    `tokens`: by how much its counter of generated tokens grew, None: it has none, or began anew.
    `first_token`: its histogram of the same time.
    """

    server: str
    samples: tuple[Sample, ...]
    tokens: float | None
    first_token: Histogram | None


@dataclass(frozen=True, slots=True)
class Reconciled:
    """`usage`: the tokens that usage says; `unsaid`: sent requests without it."""

    tokens: float | None
    usage: int
    unsaid: int
    client_mean: float | None
    server_mean: float | None
    server_within: tuple[float, float] | None  # of the median
    client_median: float | None

    @property
    def difference(self) -> float | None:
        return None if self.tokens is None else self.tokens - self.usage

    @property
    def agrees(self) -> bool | None:
        """None where somebody did not say."""
        if self.difference is None:
            return None
        if self.unsaid:
            return False if self.difference < 0 else None
        return self.difference == 0


def reconcile(served: Served, rows: Sequence[Row]) -> Reconciled:
    """`rows`: all of the run."""
    sent = [row for row in rows if row.was_sent]
    counts = [row.completion_tokens for row in sent if row.completion_tokens is not None]
    waits = [value for row in sent for value in METRICS["ttft@sent"].values(row)]
    client = described(waits)
    own = served.first_token
    return Reconciled(
        tokens=served.tokens,
        usage=sum(counts),
        unsaid=len(sent) - len(counts),
        client_mean=client.mean,
        server_mean=None if own is None else own.mean,
        server_within=None if own is None else own.within(0.5),
        client_median=client.quantiles[0].value,
    )


def told(served: Served, rows: Sequence[Row], sign: str = "") -> list[str]:
    """In lines for a terminal. `sign`: what the client's own times are, where these are bounds."""
    found = reconcile(served, rows)
    lines = [f"server's own metrics ({served.server}): {len(served.samples)} scrapes"]
    if found.tokens is not None:
        more = f", {found.unsaid} requests without usage" if found.unsaid else ""
        words = {True: "they agree", False: "they do NOT agree", None: "cannot be told"}
        lines.append(
            f"tokens: the server generated {found.tokens:g}, usage says {found.usage}{more}: "
            f"{words[found.agrees]}"
        )
    if found.server_mean is not None and found.client_mean is not None:
        apart = (found.client_mean - found.server_mean) * 1e3
        lines.append(
            f"mean ttft@sent {sign}{found.client_mean * 1e3:.2f} ms, the server's own "
            f"{found.server_mean * 1e3:.2f} ms, {sign}{apart:+.2f} ms: network, HTTP, and what "
            "lies outside its clock"
        )
    return lines
