"""What a scenario is: what it declares for the plan, and the function that provokes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

from conformance.capture import Json
from conformance.dossier import APIS, Dossier
from conformance.scenarios.asks import Ask
from conformance.scenarios.driver import Driver
from conformance.target import Endpoint

MANNERS = ("polite", "heavy", "hostile")  # each allows what stands before it


class Phase(IntEnum):
    """When a scenario runs; a phase begins when the one before is over."""

    DISCOVERY = 0
    QUIET = 1  # nothing of ours disturbs the server
    CROWD = 2
    INVALID = 3
    ABORTS = 4


@dataclass(frozen=True, slots=True)
class Choice:
    """A value of a parameter. `needs`: capabilities without which it makes no sense."""

    needs: tuple[str, ...] = ()
    apis: tuple[str, ...] = APIS


# The values that a case may write, the default first.
Parameter: TypeAlias = Mapping[str | int, Choice]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way to provoke. `asks` is the whole of what `drive` may send, in order.

    A case that names no parameters gets every value of `spread`, the default of the others.
    """

    name: str
    title: str
    asks: Callable[[Endpoint, Mapping[str, Json]], tuple[Ask, ...]]
    drive: Callable[[Driver, tuple[Ask, ...]], Awaitable[Dossier]]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    spread: str | None = None
    phase: Phase = Phase.QUIET
    manners: str = "polite"
    alone: bool = False

    def problem(self, given: Mapping[str, Json]) -> tuple[str, str] | None:
        """(parameter, what was expected) for the first one that cannot be, else None."""
        for name, value in given.items():
            known = self.parameters.get(name)
            if known is None:
                names = ", ".join(self.parameters) or "it has none"
                return name, f"expected a parameter of scenario {self.name} ({names})"
            if not isinstance(value, str | int) or value not in known:
                return name, f"expected one of {', '.join(str(each) for each in known)}"
        return None

    def variants(self, given: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
        """Full parameter sets for what a case wrote."""
        defaults: dict[str, Json] = {name: next(iter(v)) for name, v in self.parameters.items()}
        if self.spread is None or self.spread in given:
            yield {**defaults, **given}
            return
        for value in self.parameters[self.spread]:
            yield {**defaults, **given, self.spread: value}

    def fits(self, api: str, parameters: Mapping[str, Json]) -> bool:
        """Does this API know these parameters?"""
        return all(api in choice.apis for choice in self._choices(parameters))

    def needs(self, parameters: Mapping[str, Json]) -> tuple[str, ...]:
        """Capabilities that these parameters cannot do without."""
        return tuple(need for choice in self._choices(parameters) for need in choice.needs)

    def _choices(self, parameters: Mapping[str, Json]) -> Iterator[Choice]:
        for name, value in parameters.items():
            if isinstance(value, str | int):
                yield self.parameters[name][value]
