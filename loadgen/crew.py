"""Who played a load that was divided among workers, and who was lost. Pure.

What a lost worker has not told is in no row and in no figure. It is counted by itself, and the run
is not valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from conformance.capture import Json
from conformance.report.escape import terminal
from loadgen.quantiles import quantile
from loadgen.trust import Doubt

LOST = "worker_lost"


@dataclass(frozen=True, slots=True)
class Member:
    """One worker. `lost`: why, None where it told everything.

    `scheduled`: units of its share, None where time alone ended it. `sent`: requests; of a lost one
    by its last snapshot. `missing`: units that it has not told of, of an unknown share those sent.
    `lag`, `late`: p99 of how late its timer woke and its sends left, in seconds; None for too few.
    """

    number: int
    place: str
    scheduled: int | None
    sent: int
    missing: int = 0
    lost: str | None = None
    lag: float | None = None
    late: float | None = None

    @property
    def name(self) -> str:
        return f"worker {self.number} ({self.place})"


@dataclass(frozen=True, slots=True)
class Crew:
    """`apart`: seconds between the first start and the last, at least and at most: of those that
    share no clock only the way of the messages is known. None where nobody began."""

    members: tuple[Member, ...]
    apart: tuple[float, float] | None = None

    @property
    def lost(self) -> tuple[Member, ...]:
        return tuple(each for each in self.members if each.lost is not None)

    @property
    def missing(self) -> int:
        return sum(each.missing for each in self.members)

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        if not self.lost:
            return ()
        who = "; ".join(f"{each.name}: {each.lost}" for each in self.lost)
        return (Doubt(LOST, f"{who}; {self.missing} requests are in no figure"),)


def apart(starts: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """`starts`: of each worker that began, not before and not after, on one clock."""
    if not starts:
        return None
    earliest, latest = [early for early, _ in starts], [late for _, late in starts]
    return max(0.0, max(earliest) - min(latest)), max(latest) - min(earliest)


def tail(values: Sequence[float]) -> float | None:
    """p99; None for fewer values than tell it."""
    return quantile(sorted(values), 0.99).value


def worst(lags: Sequence[Sequence[float]]) -> Sequence[float]:
    """Of the worker whose timer woke latest: one that cannot keep up is not averaged away."""
    return max(lags, key=_lateness, default=())


def _lateness(values: Sequence[float]) -> float:
    known = tail(values)
    return max(values, default=0.0) if known is None else known


def document(crew: Crew) -> dict[str, Json]:
    """As a report has it; seconds."""
    return {
        "count": len(crew.members),
        "lost": len(crew.lost),
        "missing": crew.missing,
        "starts_apart": None if crew.apart is None else list(crew.apart),
        "each": [{**asdict(each), "alive": each.lost is None} for each in crew.members],
    }


def loaded(stored: Mapping[str, Any]) -> Crew:
    """Raises KeyError, TypeError and ValueError for what no report has."""
    members = tuple(_member(each) for each in stored["each"])
    span = stored["starts_apart"]
    return Crew(members, None if span is None else (float(span[0]), float(span[1])))


def _member(stored: Mapping[str, Any]) -> Member:
    lag, late = (None if stored[name] is None else float(stored[name]) for name in ("lag", "late"))
    share, lost = stored["scheduled"], stored["lost"]
    return Member(
        number=int(stored["number"]),
        place=str(stored["place"]),
        scheduled=None if share is None else int(share),
        sent=int(stored["sent"]),
        missing=int(stored["missing"]),
        lost=None if lost is None else str(lost),
        lag=lag,
        late=late,
    )


def lines(crew: Crew) -> Iterator[str]:
    """For a terminal."""
    late = [each.lag for each in crew.members if each.lag is not None]
    slow = f", the slowest timer p99 {max(late) * 1e3:.2f} ms late" if late else ""
    yield f"{len(crew.members)} workers, starts {_span(crew.apart)} apart{slow}"
    for each in crew.lost:
        of = "" if each.scheduled is None else f" of {each.scheduled}"
        known = f"{each.missing}{of} requests are in no figure, at least {each.sent} were sent"
        yield terminal(f"lost: {each.name}: {each.lost}; {known}")


def _span(found: tuple[float, float] | None) -> str:
    if found is None:
        return "an unknown time"
    least, most = (f"{1e3 * each:.2f}" for each in found)
    return f"{most} ms" if least == most else f"{least} to {most} ms"
