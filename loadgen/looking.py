"""After the load: each played request is read once, measured, and judged by the checks. Pure.

The checks are those of `conformance` that one recorded answer decides, gates wire and shape.
Verdicts, levels and what supersedes what are its judge's own: under load a stream is judged as it
is alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from conformance.checks import Trial
from conformance.dossier import Dossier
from conformance.errors import UsageError
from conformance.findings import Level, Result, Verdict
from conformance.judge import Bench
from conformance.reading import Reading, read
from conformance.specs import Case
from loadgen.crosstalk import Crossing, crossings, marks_in, text_of
from loadgen.measure import Row, row_from
from loadgen.played import Played
from loadgen.workload import Ask

GATES = ("wire", "shape")
NONE = "none"
_BAD = (Verdict.FAIL, Verdict.NON_STRICT, Verdict.HARNESS_ERROR)


@dataclass(frozen=True, slots=True)
class Breach:
    """One check that one answer did not pass."""

    id: str
    level: Level
    verdict: Verdict
    message: str


@dataclass(frozen=True, slots=True)
class Look:
    """One request, measured; `breaches` None: not judged.

    `mark`: its own; `marks`: what may be those of others in its answer. `said`: the answer of a
    session's turn, as later turns repeat it; None where nobody will ask them again.
    """

    row: Row
    breaches: tuple[Breach, ...] | None
    mark: str | None = None
    marks: tuple[str, ...] = ()
    said: str | None = None

    @property
    def is_broken(self) -> bool:
        """Does the answer break a MUST?"""
        return any(each.verdict is Verdict.FAIL for each in self.breaches or ())


@dataclass(frozen=True, slots=True)
class Checks:
    """`cases`: what is judged. `known`: all, for what supersedes what."""

    cases: tuple[Case, ...] = ()
    known: tuple[Case, ...] = ()
    bench: Bench = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bench", Bench(self.cases, self.known))


NO_CHECKS = Checks()


def parse_gates(text: str) -> tuple[str, ...]:
    """`wire,shape` or `none`. Raises UsageError."""
    names = tuple(name.strip() for name in text.split(","))
    if names == (NONE,):
        return ()
    for name in names:
        if name not in GATES:
            raise UsageError(f"--checks {text}: expected wire, shape, both with a comma, or none")
    return names


def checks_of(known: Sequence[Case], gates: Sequence[str], api: str) -> Checks:
    """The cases that one recorded answer decides."""
    chosen = [c for c in known if c.gate in gates and c.on != "dossier" and api in c.api]
    return Checks(tuple(chosen), tuple(known))


def look(
    played: Played, ask: Ask, api: str, checks: Checks = NO_CHECKS, *, again: bool = False
) -> Look:
    """Read, measure and judge one. `again`: requests of this load may be asked once more."""
    if played.capture is None:
        return Look(row_from(played, ask, api), None, ask.mark)
    reading = read(played.capture, api=api)
    row = row_from(played, ask, api, reading)
    connected = bool(played.capture.received)
    breaches = _breaches(reading, api, checks) if checks.cases and connected else None
    said = reading.text if again and ask.turn is not None and row.success else None
    return Look(row, breaches, ask.mark, marks_in(text_of(reading), ask.mark), said)


def _breaches(reading: Reading, api: str, checks: Checks) -> tuple[Breach, ...]:
    dossier = Dossier("load", {"stream": (reading.capture,)}, api=api)
    trial = Trial(dossier, {"stream": (reading,)})
    results = checks.bench.judge([trial], faultless=False)
    return tuple(_breach(result) for result in results if result.verdict in _BAD)


def _breach(result: Result) -> Breach:
    message = result.findings[0].message if result.findings else result.reason or ""
    return Breach(result.id, result.level, result.verdict, message)


@dataclass(slots=True)
class Told:
    """What is known of one check over a load: `bad` answers of those judged, and the first."""

    breach: Breach
    index: int
    bad: int = 1


@dataclass(slots=True)
class Tally:
    """The checks of a whole load; an answer with another's mark is broken too."""

    judged: int = 0
    unjudged: int = 0  # answers with bytes that were not looked at
    broken: set[int] = field(default_factory=set)
    told: dict[str, Told] = field(default_factory=dict)
    crossed: list[Crossing] = field(default_factory=list)

    def add(self, look: Look) -> None:
        if look.breaches is None:
            return
        self.judged += 1
        if look.is_broken:
            self.broken.add(look.row.index)
        for breach in look.breaches:
            known = self.told.get(breach.id)
            if known is None:
                self.told[breach.id] = Told(breach, look.row.index)
            else:
                known.bad += 1


def tally(looks: Iterable[Look]) -> tuple[list[Row], Tally]:
    """The rows in order of their index, and what the checks said."""
    rows, found = [], Tally()
    owner: dict[str, int] = {}
    seen: list[tuple[int, tuple[str, ...]]] = []
    for each in looks:
        rows.append(each.row)
        found.add(each)
        if each.mark is not None:
            owner[each.mark] = each.row.index
        if each.marks:
            seen.append((each.row.index, each.marks))
    found.crossed = sorted(crossings(seen, owner), key=lambda each: (each.index, each.other))
    found.broken |= {each.index for each in found.crossed}
    return sorted(rows, key=lambda row: row.index), found


def judged_failures(found: Tally) -> Iterator[Told]:
    """Worst first, then by id."""
    order = (Verdict.FAIL, Verdict.HARNESS_ERROR, Verdict.NON_STRICT)
    yield from sorted(
        found.told.values(), key=lambda told: (order.index(told.breach.verdict), told.breach.id)
    )
