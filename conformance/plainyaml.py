"""YAML as plain data: the 1.2 core schema, read from the event stream, every value with its line.

What the loader's files may not hold is refused here in one line: anchors and aliases, tags, merges,
duplicate keys, several documents, other bytes than UTF-8, and anything larger or deeper than a
person would write. PyYAML resolves scalars as YAML 1.1 does (`yes` is true, `1:30` is 90), so its
resolver is not used: a plain scalar becomes what YAML 1.2.2 section 10.3.2 says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import yaml

from conformance.capture import Json
from conformance.errors import SpecError

MOST_BYTES = 1 << 20
MOST_NODES = 100_000
MOST_DEPTH = 32
MOST_DIGITS = 18

Value: TypeAlias = "str | int | float | bool | tuple[Node, ...] | dict[str, Node] | None"


@dataclass(frozen=True, slots=True)
class Node:
    """A value and the 1-based line it stands on; in a mapping, the line of its key."""

    value: Value
    line: int

    def plain(self) -> Json:
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, tuple):
            return [child.plain() for child in self.value]
        return self.value


def node_of(value: Json, line: int = 1) -> Node:
    """JSON that came from elsewhere as nodes, so that one validator reads both."""
    if isinstance(value, dict):
        return Node({key: node_of(child, line) for key, child in value.items()}, line)
    if isinstance(value, list):
        return Node(tuple(node_of(child, line) for child in value), line)
    return Node(value, line)


# YAML 1.2.2, 10.3.2 "Tag Resolution" of the core schema, in its order.
_NULL = re.compile(r"null|Null|NULL|~|")
_TRUE, _FALSE = re.compile(r"true|True|TRUE"), re.compile(r"false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL, _HEX = re.compile(r"0o[0-7]+"), re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN")


def read_file(path: Path) -> Node:
    """The one document of the file. Raises SpecError, also where the file cannot be read."""
    name = str(path)
    try:
        if not path.exists():
            raise SpecError(name, 1, "file", "expected an existing file, there is none")
        if not path.is_file():  # a FIFO or a device would block or never end
            raise SpecError(name, 1, "file", "expected a regular file")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise SpecError(name, 1, "file", f"cannot be read: {error.strerror}") from None
    return read_bytes(data, name)


def read_bytes(data: bytes, file: str) -> Node:
    """The one document in `data`; `file` is the name that errors carry."""
    if len(data) > MOST_BYTES:
        raise SpecError(file, 1, "file", f"expected at most {MOST_BYTES} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SpecError(file, line, "file", "expected UTF-8 text") from None
    try:
        return _Builder(file).build(text)
    except yaml.YAMLError as error:
        raise _syntax_error(error, text, file) from None


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _syntax_error(error: yaml.YAMLError, text: str, file: str) -> SpecError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        problem = getattr(error, "problem", None) or getattr(error, "context", None)
        line = mark.line + 1
    else:  # a character that YAML does not allow: the reader knows only its position
        problem = getattr(error, "reason", None)
        position = getattr(error, "position", 0)
        line = text.count("\n", 0, position if isinstance(position, int) else 0) + 1
    words = " ".join(str(problem or "not readable").split())
    return SpecError(file, line, "file", f"expected YAML: {words}")


class _Builder:
    """Events in, one Node out; no recursion, and no event is read past a refusal."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.nodes = 0

    def refuse(self, line: int, field: str, expected: str) -> SpecError:
        return SpecError(self.file, line, field, expected)

    def build(self, text: str) -> Node:
        stack: list[_Open] = []
        root: Node | None = None
        for event in self._content(text):
            line = _line(event)
            if isinstance(event, yaml.CollectionEndEvent):
                done = stack.pop().close()
            elif isinstance(event, yaml.CollectionStartEvent):
                if len(stack) == MOST_DEPTH:
                    raise self.refuse(line, "file", f"expected at most {MOST_DEPTH} levels")
                stack.append(_Open(isinstance(event, yaml.MappingStartEvent), line))
                continue
            else:
                done = Node(self._scalar(event, line), line)
            if stack:
                self._put(stack[-1], done)
            else:
                root = done
        if root is None:
            raise self.refuse(1, "file", "expected a document, got nothing")
        return root

    def _content(self, text: str) -> Iterator[yaml.NodeEvent | yaml.CollectionEndEvent]:
        """The events of the only document, those refused that a plain file never needs."""
        documents = 0
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        for event in yaml.parse(text, Loader=loader):
            line = _line(event)
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1 or event.tags or event.version not in (None, (1, 2)):
                    raise self.refuse(line, "file", "expected one document and no directives")
            elif isinstance(event, yaml.NodeEvent):
                self._plain_only(event, line)
                yield event
            elif isinstance(event, yaml.CollectionEndEvent):
                yield event

    def _plain_only(self, event: yaml.NodeEvent, line: int) -> None:
        if event.anchor is not None:
            raise self.refuse(line, "file", "expected no anchors and no aliases")
        if getattr(event, "tag", None) is not None:
            raise self.refuse(line, "file", "expected no tags")
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise self.refuse(line, "file", f"expected at most {MOST_NODES} values")

    def _put(self, parent: _Open, node: Node) -> None:
        if not parent.mapping:
            parent.items.append(node)
        elif parent.key is None:
            parent.key = self._key(node, parent)
        else:
            parent.fields[parent.key.value] = Node(node.value, parent.key.line)
            parent.key = None

    def _key(self, node: Node, parent: _Open) -> _Key:
        if not isinstance(node.value, str):
            raise self.refuse(node.line, "key", "expected text as the key (quote it)")
        if node.value == "<<":
            raise self.refuse(node.line, "<<", "expected no merges")
        if node.value in parent.fields:
            raise self.refuse(node.line, shown(node.value), "expected once, is a duplicate key")
        return _Key(node.value, node.line)

    def _scalar(self, event: yaml.NodeEvent, line: int) -> Value:
        assert isinstance(event, yaml.ScalarEvent)
        text = event.value
        try:
            text.encode()
        except UnicodeEncodeError:  # "\ud800" in double quotes
            raise self.refuse(line, "file", "expected no lone surrogates") from None
        if not event.implicit[0]:  # quoted or a block: always text
            return text
        return self._resolve(text, line)

    def _resolve(self, text: str, line: int) -> Value:
        if _NULL.fullmatch(text):
            return None
        if _TRUE.fullmatch(text):
            return True
        if _FALSE.fullmatch(text):
            return False
        for pattern, base in ((_INT, 10), (_OCTAL, 8), (_HEX, 16)):
            if pattern.fullmatch(text):
                if len(text.lstrip("+-")) > MOST_DIGITS:
                    raise self.refuse(line, "number", f"expected at most {MOST_DIGITS} digits")
                return int(text, base)
        if _FLOAT.fullmatch(text):
            return self._finite(float(text), line)
        if _NOT_FINITE.fullmatch(text):
            return self._finite(math.inf, line)
        return text

    def _finite(self, number: float, line: int) -> float:
        if math.isinf(number):
            raise self.refuse(line, "number", "expected a finite number")
        return number


@dataclass(frozen=True, slots=True)
class _Key:
    value: str
    line: int


class _Open:
    """A collection whose end has not come yet."""

    def __init__(self, mapping: bool, line: int) -> None:
        self.mapping = mapping
        self.line = line
        self.items: list[Node] = []
        self.fields: dict[str, Node] = {}
        self.key: _Key | None = None

    def close(self) -> Node:
        return Node(self.fields if self.mapping else tuple(self.items), self.line)


def shown(text: str, most: int = 40) -> str:
    """A piece of somebody else's text for an error line: quoted, escaped, short."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")
