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
Parameter: TypeAlias = Mapping[str | int | bool | None, Choice]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way to provoke. `asks` is all that `drive` may send, in order; a derived one at its most.

    `once`: what it sends besides, the first time that it runs on an API. `shares`: what it sends
    unless an earlier scenario has the answer already. `offers`: later ones may use its answers.

    A case that names no parameters gets each set in `spread`.
    """

    name: str
    title: str
    asks: Callable[[Endpoint, Mapping[str, Json]], tuple[Ask, ...]]
    drive: Callable[[Driver, tuple[Ask, ...]], Awaitable[Dossier]]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    spread: tuple[Mapping[str, Json], ...] = ({},)
    offers: bool = False
    phase: Phase = Phase.QUIET
    manners: str = "polite"
    alone: bool = False
    once: Callable[[Endpoint], tuple[Ask, ...]] = lambda endpoint: ()
    shares: Callable[[Endpoint, Mapping[str, Json]], tuple[Ask, ...]] = lambda endpoint, given: ()
    watches: bool = False  # looks at the server's own metrics, where it shows them
    again: bool = True  # attempt it once more when the network failed

    def problem(self, given: Mapping[str, Json]) -> tuple[str, str] | None:
        """(parameter, what was expected) for the first one that cannot be, else None."""
        for name, value in given.items():
            known = self.parameters.get(name)
            if known is None:
                names = ", ".join(self.parameters) or "it has none"
                return name, f"expected a parameter of scenario {self.name} ({names})"
            # True equals 1, but a number is not a switch.
            if not any(type(value) is type(each) and value == each for each in known):
                return name, f"expected one of {', '.join(map(_shown, known))}"
        return None

    def variants(self, given: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
        """Full parameter sets for what a case wrote."""
        for chosen in (given,) if given else self.spread:
            yield {
                name: chosen.get(name, default(self.parameters[name])) for name in self.parameters
            }

    def fits(self, api: str, parameters: Mapping[str, Json]) -> bool:
        """Does this API know these parameters?"""
        return all(api in choice.apis for choice in self._choices(parameters))

    def needs(self, parameters: Mapping[str, Json]) -> tuple[str, ...]:
        """Capabilities that these parameters cannot do without."""
        return tuple(need for choice in self._choices(parameters) for need in choice.needs)

    def _choices(self, parameters: Mapping[str, Json]) -> Iterator[Choice]:
        for name, value in parameters.items():
            if not isinstance(value, list | dict | float):
                yield self.parameters[name][value]


def default(parameter: Parameter) -> Json:
    """The value of a parameter that nobody named."""
    return next(iter(parameter))


def _shown(value: str | int | bool | None) -> str:
    """As YAML writes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value) or '""'
