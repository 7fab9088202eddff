"""The baseline file: YAML or JSON, a closed schema, errors as `file:line: field: expected …`."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from conformance.baseline import Baseline, Entry
from conformance.errors import SpecError
from conformance.plainyaml import Node, read_file
from conformance.schema import did_you_mean, load_schema, validate
from conformance.specs import Case, specs_dir

VERSION = 1
LISTS = ("expected", "flaky")
_PLAIN = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9.-]*[a-z0-9]")  # a check's id: no YAML word has a dot


def today() -> date:
    """The day in UTC, so that machines in different places agree on what has expired."""
    return datetime.now(UTC).date()


def from_option(name: str | None, cases: Iterable[Case]) -> Baseline | None:
    """What `--baseline` names, None without it."""
    return None if name is None else load(Path(name), {case.id for case in cases})


def load(path: Path, checks: Collection[str]) -> Baseline:
    """The file's entries. Raises SpecError, also for a check that is not among `checks`."""
    file = str(path)
    node = read_file(path)
    validate(node, load_schema(specs_dir() / "baseline.schema.json"), file)
    seen: dict[tuple[str, str, str | None], int] = {}
    lists = {
        name: tuple(_entry(child, f"{name}[{index}]", file, checks, seen)
                    for index, child in enumerate(_children(node, name)))
        for name in LISTS
    }  # fmt: skip
    return Baseline(lists["expected"], lists["flaky"], file)


def _children(node: Node, name: str) -> tuple[Node, ...]:
    assert isinstance(node.value, dict)  # the schema says so
    child = node.value.get(name)
    return child.value if child is not None and isinstance(child.value, tuple) else ()


def _entry(
    node: Node,
    path: str,
    file: str,
    checks: Collection[str],
    seen: dict[tuple[str, str, str | None], int],
) -> Entry:
    fields: Any = node.plain()
    entry = Entry(
        fields["check"], fields["api"], fields["reason"], fields.get("rule"), fields.get("issue"),
        _date(node, path, file, fields.get("until")),
    )  # fmt: skip
    if entry.check not in checks:
        hint = did_you_mean(entry.check, checks)
        raise SpecError(file, node.line, f"{path}.check", f"expected a known check{hint}")
    if entry.key in seen:
        words = f"expected each entry once, {entry.name} stands in line {seen[entry.key]}"
        raise SpecError(file, node.line, path, words)
    seen[entry.key] = node.line
    return entry


def _date(node: Node, path: str, file: str, text: str | None) -> date | None:
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:  # the schema settled the form; this is 2026-02-30
        raise SpecError(file, node.line, f"{path}.until", "expected a day that exists") from None


def to_json(entry: Entry) -> dict[str, str]:
    """The fields that the entry has, in the order of the file."""
    fields: Mapping[str, str | None] = {
        "check": entry.check,
        "api": entry.api,
        "rule": entry.rule,
        "reason": entry.reason,
        "issue": entry.issue,
        "until": entry.until.isoformat() if entry.until else None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def dumps(baseline: Baseline, form: str) -> str:
    """The file as `yaml` or `json`; what `load` reads back."""
    lists = {"expected": baseline.expected, "flaky": baseline.flaky}
    if form == "json":
        whole = {name: [to_json(each) for each in entries] for name, entries in lists.items()}
        return json.dumps({"baseline": VERSION, **whole}, indent=2, ensure_ascii=False) + "\n"
    return "\n".join([f"baseline: {VERSION}", *_yaml(lists)]) + "\n"


def _yaml(lists: Mapping[str, Sequence[Entry]]) -> Iterator[str]:
    for name, entries in lists.items():
        yield f"{name}:" if entries else f"{name}: []"
        for entry in entries:
            mark = "-"
            for field, value in to_json(entry).items():
                yield f"  {mark} {field}: {_scalar(value)}"
                mark = " "


def _scalar(text: str) -> str:
    """A JSON string of printable text is a double-quoted scalar of YAML as well."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
