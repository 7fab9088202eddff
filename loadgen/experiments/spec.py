"""An experiment as data: the YAML under `specs/load`, read into frozen records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from conformance.errors import SpecError, UsageError
from conformance.plainyaml import Node, read_file
from conformance.schema import did_you_mean, load_schema, validate
from conformance.specs import specs_dir

Amount: TypeAlias = "int | str"  # a number, or the option that holds it
ORDINARY_ROLE = "stream"  # its requests are ordinary clients, whose figures a run reports
CONTROL = "control"  # the load whose pace the others go by
CONTEXT = "context"  # of `input`: as long as the endpoint takes
DOUBLED = "n"
SUFFIXES = (".yaml", ".yml")
MOST = 1_000_000  # of any option


@dataclass(frozen=True, slots=True)
class Leaves:
    """When a client hangs up; `by` None: as the load says. `output`, `time`: percent, see Part."""

    by: str | None = None
    events: tuple[int, int] | None = None
    output: int | None = None
    time: int | None = None


@dataclass(frozen=True, slots=True)
class Stalls:
    """After so many events nothing is read: for percent of the control's time, and for seconds."""

    events: int
    time: int = 0
    seconds: Amount = 0


@dataclass(frozen=True, slots=True)
class Part:
    """Requests alike. `at`, `apart`: percent of the time that a stream of the control takes."""

    role: str
    count: Amount
    input: Amount
    output: Amount
    percent: int = 100
    at: int = 0
    apart: int = 0
    leaves: Leaves | None = None
    stalls: Stalls | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """`clients`: of a closed loop; None: each request has its time."""

    name: str
    parts: tuple[Part, ...]
    hows: tuple[str, ...] = ()
    clients: Amount | None = None
    watch: Amount = 0
    solo: Amount = 0

    @property
    def needs_pace(self) -> bool:
        """Does it go by what the control took?"""
        return any(
            part.at
            or part.apart
            or (part.leaves is not None and part.leaves.time is not None)
            or (part.stalls is not None and part.stalls.time)
            for part in self.parts
        )


@dataclass(frozen=True, slots=True)
class Experiment:
    """`options`: what can be set, with the defaults. See `experiment.schema.json`."""

    name: str
    title: str
    report: str
    options: Mapping[str, int]
    loads: tuple[Load, ...]
    bounds: tuple[str, ...] = ()
    doubling: str | None = None
    until_broken: bool = False
    alternate: bool = False
    same_prompts: bool = False
    file: str = field(default="", compare=False)


def folder() -> Path:
    return specs_dir() / "load"


def known() -> dict[str, Experiment]:
    """The published ones by name. Raises SpecError."""
    found = [read(path) for path in sorted(folder().iterdir()) if path.suffix in SUFFIXES]
    return {each.name: each for each in found}


def find(name: str) -> Experiment:
    """A published one, or that of a file that is named. Raises UsageError and SpecError."""
    if name.endswith(SUFFIXES):
        return read(Path(name))
    published = known()
    if name not in published:
        words = ", ".join(published)
        raise UsageError(
            f"no experiment is named {name}{did_you_mean(name, published)}; there are {words}, "
            "or name a .yaml file"
        )
    return published[name]


def read(path: Path) -> Experiment:
    """Raises SpecError, also where an option is used that there is not."""
    return experiment_of(read_file(path), str(path))


def experiment_of(node: Node, file: str) -> Experiment:
    """One document."""
    validate(node, load_schema(specs_dir() / "experiment.schema.json"), file)
    values: Any = node.plain()
    made = Experiment(
        name=values["experiment"],
        title=values["title"],
        report=values["report"],
        options=values["options"],
        loads=tuple(_load(each) for each in _whole_numbers(values["loads"])),
        bounds=tuple(values.get("bounds", ())),
        doubling=values.get("doubling"),
        until_broken=values.get("until-broken", False),
        alternate=values.get("alternate", False),
        same_prompts=values.get("same-prompts", False),
        file=file,
    )
    _whole(made, node)
    return made


def _load(values: Mapping[str, Any]) -> Load:
    return Load(
        values["load"],
        tuple(_part(each) for each in values["parts"]),
        tuple(values.get("hows", ())),
        values.get("clients"),
        values.get("watch", 0),
        values.get("solo", 0),
    )


def _part(values: Mapping[str, Any]) -> Part:
    leaves, stalls = values.get("leaves"), values.get("stalls")
    plain = {key: value for key, value in values.items() if key not in ("leaves", "stalls")}
    return Part(
        **plain,
        leaves=None if leaves is None else _leaves(leaves),
        stalls=None if stalls is None else Stalls(**stalls),
    )


def _leaves(values: Mapping[str, Any]) -> Leaves:
    events = values.get("events")
    both = (events, events) if isinstance(events, int) else events and (events[0], events[1])
    return Leaves(values.get("by"), both, values.get("output"), values.get("time"))


def _whole_numbers(value: Any) -> Any:
    """To the schema 2.0 is a whole number, to `range` it is none."""
    if isinstance(value, dict):
        return {key: _whole_numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(each) for each in value]
    return int(value) if isinstance(value, float) else value


def _whole(made: Experiment, node: Node) -> None:
    """What the schema cannot say: options are small numbers, and every amount is one of them."""
    lines = _lines(node)
    for name, value in made.options.items():
        if type(value) is not int or not 0 <= value <= MOST:
            expected = f"expected a whole number up to {MOST}"
            raise SpecError(made.file, lines["options"], f"options.{name}", expected)
    if made.doubling is not None and made.doubling not in made.options:
        raise SpecError(made.file, lines["doubling"], "doubling", "expected an option's name")
    words = {*made.options, *((DOUBLED,) if made.doubling else ())}
    for amount in _amounts(made):
        if isinstance(amount, str) and amount not in words:
            hint = did_you_mean(amount, words)
            raise SpecError(made.file, lines["loads"], amount, f"expected an option{hint}")
    if any(load.needs_pace for load in made.loads) and made.loads[0].name != CONTROL:
        words_ = f"expected a load named {CONTROL} first: others go by its time"
        raise SpecError(made.file, lines["loads"], "loads", words_)
    for part in (part for load in made.loads for part in load.parts):
        if part.role == ORDINARY_ROLE and (part.leaves or part.stalls):
            expected = "expected another role for who leaves or stalls"
            raise SpecError(made.file, lines["loads"], ORDINARY_ROLE, expected)
        events = part.leaves.events if part.leaves is not None else None
        if events is not None and events[0] > events[1]:
            expected = "expected the smaller number first"
            raise SpecError(made.file, lines["loads"], "events", expected)


def _lines(node: Node) -> dict[str, int]:
    assert isinstance(node.value, dict)  # the schema says so
    return {key: child.line for key, child in node.value.items()}


def _amounts(made: Experiment) -> list[Amount]:
    found: list[Amount] = []
    for load in made.loads:
        found += [load.watch, load.solo, *(() if load.clients is None else (load.clients,))]
        for part in load.parts:
            inputs = () if part.input == CONTEXT else (part.input,)
            stalls = () if part.stalls is None else (part.stalls.seconds,)
            found += [part.count, part.output, *inputs, *stalls]
    return found
