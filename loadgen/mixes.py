"""A mix from its file: a YAML list of parts, each with a name, a weight and what it asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from conformance.errors import SpecError, UsageError
from conformance.plainyaml import Node, read_file, shown
from loadgen.lengths import parse_length
from loadgen.parts import (
    INPUT,
    NO_WAIT,
    OUTPUT,
    Part,
    parse_prefix,
    parse_share,
    parse_think,
    parse_turns,
)
from loadgen.prompts import has_answers, load_prompts

KNOWN = (
    *("name", "weight", "input_tokens", "output_tokens", "prompts", "prefix", "turns", "think"),
    *("stream", "plain"),
)
MOST_PARTS = 100
NAME_AT_MOST = 40


def load_mix(path: Path, api: str) -> tuple[Part, ...]:
    """The file's parts. Files named in it stand beside it. Raises SpecError and UsageError."""
    top = read_file(path)
    nodes = top.value if isinstance(top.value, tuple) else ()
    if not 1 <= len(nodes) <= MOST_PARTS:
        raise SpecError(str(path), top.line, "file", f"expected a list of 1 to {MOST_PARTS} parts")
    parts = tuple(_part(_Entry(path, node), api) for node in nodes)
    names = [part.name for part in parts]
    for part, node in zip(parts, nodes, strict=True):
        if names.count(part.name) > 1:
            raise SpecError(str(path), node.line, "name", f"{part.name}: expected once")
    return parts


@dataclass(frozen=True, slots=True)
class _Entry:
    """One mapping of the file."""

    path: Path
    node: Node

    @property
    def members(self) -> Mapping[str, Node]:
        return self.node.value if isinstance(self.node.value, dict) else {}

    def refuse(self, member: str, expected: str) -> SpecError:
        line = self.members[member].line if member in self.members else self.node.line
        return SpecError(str(self.path), line, member, expected)

    def text(self, member: str) -> str | None:
        """A text or a number as text; None where it is not there."""
        node = self.members.get(member)
        if node is None:
            return None
        known = isinstance(node.value, str | int | float) and not isinstance(node.value, bool)
        if not known or node.value == "":
            raise self.refuse(member, "expected a text or a number")
        return str(node.value)


def _part(entry: _Entry, api: str) -> Part:
    for key in entry.members:
        if key not in KNOWN:
            raise entry.refuse(key, f"expected one of {', '.join(KNOWN)}, got {shown(key)}")
    name = entry.text("name")
    if name is None or not 1 <= len(name) <= NAME_AT_MOST:
        raise entry.refuse("name", f"expected a name of 1 to {NAME_AT_MOST} characters")
    try:
        return _read(entry, name, api)
    except UsageError as error:
        raise SpecError(str(entry.path), entry.node.line, name, str(error)) from None


def _read(entry: _Entry, name: str, api: str) -> Part:
    given = {key: entry.text(key) for key in KNOWN if key not in ("name", "weight", "stream")}
    file = given["prompts"]
    prompts = load_prompts(entry.path.parent / file, api) if file else ()
    if prompts and given["input_tokens"]:
        raise entry.refuse("input_tokens", "expected none where the part has prompts of its own")
    if given["think"] and not given["turns"]:
        raise entry.refuse("think", "expected turns as well")
    turns, think, shared = given["turns"], given["think"], given["prefix"]
    return Part(
        name,
        _weight(entry),
        parse_length(given["input_tokens"] or str(INPUT), "input_tokens"),
        parse_length(given["output_tokens"] or str(OUTPUT), "output_tokens"),
        prompts,
        parse_prefix(shared, "prefix") if shared else None,
        parse_turns(turns, "turns") if turns else None,
        parse_think(think, "think") if think else NO_WAIT,
        _plain(entry, given["plain"]),
        not given["output_tokens"] and has_answers(prompts),
    )


def _weight(entry: _Entry) -> float:
    node = entry.members.get("weight")
    value = 1 if node is None else node.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e6:
        raise entry.refuse("weight", "expected a number above 0")
    return float(value)


def _plain(entry: _Entry, share: str | None) -> float:
    node = entry.members.get("stream")
    if node is None:
        return parse_share(share, "plain") if share else 0.0
    if not isinstance(node.value, bool) or share:
        raise entry.refuse("stream", "expected true or false, and no plain beside it")
    return 0.0 if node.value else 100.0
