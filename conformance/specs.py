"""Checks as data: the cases and profiles under `specs/`, read into frozen records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from conformance.capture import Json
from conformance.errors import SpecError, UsageError
from conformance.findings import Level
from conformance.plainyaml import Node, read_bytes, read_file, shown
from conformance.schema import did_you_mean, load_schema, validate

ON = ("stream", "plain", "answer", "refusal", "any", "dossier")
GATES = ("wire", "shape", "behaviour")

Fields: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a rule stands: a standard or documented API, and public reports of the bug."""

    standard: str
    section: str
    quote: str | None = None
    reports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Harm:
    """A client known to break on what the rule forbids or advises against, and how it breaks."""

    client: str
    how: str


@dataclass(frozen=True, slots=True)
class Case:
    """One check as data. `check` names the check function, the case's own id unless given."""

    id: str
    title: str
    level: Level
    gate: str  # a member of GATES
    rules: tuple[str, ...]
    sources: tuple[Source, ...]
    api: tuple[str, ...]
    scenario: str
    on: str  # a member of ON
    advice: str
    check: str
    parameters: Mapping[str, Json] = field(default_factory=dict)  # `provoke.with`
    needs: tuple[str, ...] = ()
    inconclusive_when: tuple[str, ...] = ()
    trials: int = 1
    harms: tuple[Harm, ...] = ()
    after: tuple[str, ...] = ()
    file: str = ""
    line: int = 0


def specs_dir() -> Path:
    """The folder of the published specs: package data in a wheel, else the repository's own."""
    here = Path(__file__).resolve().parent
    packaged = here / "specs"
    return packaged if packaged.is_dir() else here.parent / "specs"


def known_cases(extra: Sequence[Path] = ()) -> tuple[Case, ...]:
    """The published cases and those of the user's own folders.

    Raises SpecError also where `after` names an id that no case has: it would do nothing.
    """
    return _known(tuple(extra)) if extra else _published()


@cache
def _published() -> tuple[Case, ...]:
    """Read once: a process that sets up many runs asks for them each time."""
    return _known(())


def _known(extra: tuple[Path, ...]) -> tuple[Case, ...]:
    cases = load_cases([specs_dir() / "cases", *extra])
    ids = {case.id for case in cases}
    for case in cases:
        for other in case.after:
            if other not in ids:
                words = f"expected a known id, got {shown(other)}{did_you_mean(other, ids)}"
                raise SpecError(case.file, case.line, "after", words)
    return cases


def load_cases(dirs: Sequence[Path]) -> tuple[Case, ...]:
    """Every case of every `*.yaml` and `*.yml` directly in the folders, ordered by id.

    Raises SpecError for the first file that breaks the schema or repeats an id.
    """
    seen: dict[str, Case] = {}
    for folder in dirs:
        for path in _yaml_files(folder):
            for case in cases_of(read_file(path), str(path)):
                if case.id in seen:
                    first = seen[case.id]
                    raise SpecError(
                        case.file, case.line, "id",
                        f"expected a new id, {case.id} stands in {first.file}:{first.line}",
                    )  # fmt: skip
                seen[case.id] = case
    return tuple(sorted(seen.values(), key=lambda case: case.id))


def read_cases(data: bytes, file: str) -> tuple[Case, ...]:
    """The cases of one file's bytes, in file order."""
    return cases_of(read_bytes(data, file), file)


def cases_of(node: Node, file: str) -> tuple[Case, ...]:
    """The cases of one document, in file order."""
    validate(node, load_schema(specs_dir() / "case.schema.json"), file)
    assert isinstance(node.value, tuple)  # the schema says so
    return tuple(_case(child, file) for child in node.value)


def _yaml_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise SpecError(str(folder), 1, "folder", "expected a folder of YAML files")
    found = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml"))
    if not found:
        raise SpecError(str(folder), 1, "folder", "expected at least one YAML file in it")
    return found


def _case(node: Node, file: str) -> Case:
    fields: Any = node.plain()
    return Case(
        id=fields["id"],
        title=fields["title"],
        level=Level(fields["level"]),
        gate=fields["gate"],
        rules=tuple(fields["rules"]),
        sources=tuple(_source(each) for each in fields["sources"]),
        api=tuple(fields["api"]),
        scenario=fields["provoke"]["scenario"],
        parameters=fields["provoke"].get("with", {}),
        on=fields["expect"]["on"],
        check=fields["expect"].get("check", fields["id"]),
        advice=fields["advice"],
        needs=tuple(fields.get("needs", ())),
        inconclusive_when=tuple(fields.get("inconclusive_when", ())),
        trials=int(fields.get("trials", 1)),
        harms=tuple(Harm(each["client"], each["how"]) for each in fields.get("harms", ())),
        after=tuple(fields.get("after", ())),
        file=file,
        line=node.line,
    )


def _source(fields: Fields) -> Source:
    reports = tuple(fields.get("reports", ()))
    return Source(fields["standard"], fields["section"], fields.get("quote"), reports)


@dataclass(frozen=True, slots=True)
class Profile:
    """A frozen set of ids. Within it musts gate; what it requires may not be unsupported."""

    name: str
    revision: int
    api: str
    requires: tuple[str, ...]
    ids: tuple[str, ...]


def is_published(case: Case) -> bool:
    """Is it one of ours, and not from a folder of the user's (`--specs`)?"""
    return Path(case.file).parent == specs_dir() / "cases"


@cache
def load_profile(name: str) -> Profile:
    """A published profile by its name. Raises UsageError for an unknown name."""
    folder = specs_dir() / "profiles"
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in known:
        hint = did_you_mean(name, known) or f"; known are {', '.join(known) or 'none'}"
        raise UsageError(f"--profile {name}: not known{hint}")
    return read_profile((folder / f"{name}.yaml").read_bytes(), f"{name}.yaml")


def read_profile(data: bytes, file: str) -> Profile:
    """The profile in one file's bytes. Raises SpecError."""
    node = read_bytes(data, file)
    validate(node, load_schema(specs_dir() / "profile.schema.json"), file)
    fields: Any = node.plain()
    return Profile(
        name=fields["name"],
        revision=int(fields["revision"]),
        api=fields["api"],
        requires=tuple(fields["requires"]),
        ids=tuple(fields["ids"]),
    )
