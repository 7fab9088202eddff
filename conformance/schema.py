"""The part of JSON Schema that our own files use, over YAML nodes, with errors people can act on.

The schemas under `specs/` are published for editors and other tools; the loader walks the same
files, so the two cannot drift. A keyword that is not implemented here is an error in the schema,
never silently ignored.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from conformance.errors import SpecError
from conformance.plainyaml import Node, shown

Schema: TypeAlias = Mapping[str, Any]

_WORDS = {
    "string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "array": "a list", "object": "a mapping", "null": "nothing",
}  # fmt: skip
_NOTES = frozenset({"$schema", "$id", "$defs", "title", "description", "default", "examples"})


def load_schema(path: Path) -> Schema:
    """One of our own schema files. It ships with the code, so a damaged one is a bug."""
    loaded: Schema = json.loads(path.read_bytes())
    return loaded


def validate(node: Node, schema: Schema, file: str) -> None:
    """Raise SpecError for the first place, in document order, that breaks the schema."""
    _Walk(schema, file).visit(node, schema, "")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean X?)` where something is close, else nothing."""
    close = difflib.get_close_matches(word[:80], list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""


def kind_of(node: Node) -> str:
    """JSON Schema's word for the node's type; to it 2.0 is an integer (draft 2020-12, 6.1.1)."""
    match node.value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if node.value.is_integer() else "number"
        case str():
            return "string"
        case tuple():
            return "array"
        case _:
            return "object"


class _Walk:
    def __init__(self, root: Schema, file: str) -> None:
        self.root = root
        self.file = file
        self.keywords: Mapping[str, Callable[[Node, Any, Schema, str], None]] = {
            "type": self._type,
            "enum": self._enum,
            "pattern": self._pattern,
            "minLength": self._min_length,
            "maxLength": self._max_length,
            "minimum": self._minimum,
            "maximum": self._maximum,
            "minItems": self._min_items,
            "maxItems": self._max_items,
            "uniqueItems": self._unique,
            "additionalProperties": self._additional,
            "required": self._required,
            "properties": self._properties,
            "items": self._items,
        }

    def visit(self, node: Node, schema: Schema, path: str) -> None:
        if "$ref" in schema:
            schema = self.root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
        unknown = schema.keys() - self.keywords.keys() - _NOTES
        if unknown:
            raise ValueError(f"{path}: schema keyword not implemented: {sorted(unknown)}")
        for keyword, check in self.keywords.items():  # fixed order: the type comes first
            if keyword in schema:
                check(node, schema[keyword], schema, path)

    def refuse(self, node: Node, path: str, expected: str) -> SpecError:
        return SpecError(self.file, node.line, path.lstrip(".") or "file", f"expected {expected}")

    def _type(self, node: Node, types: str | list[str], schema: Schema, path: str) -> None:
        allowed = [types] if isinstance(types, str) else types
        kind = kind_of(node)
        if kind in allowed or (kind == "integer" and "number" in allowed):
            return
        words = " or ".join(_WORDS[name] for name in allowed)
        hint = ""
        if "string" in allowed and kind in ("integer", "number", "boolean", "null"):
            hint = " (quote it)"
        raise self.refuse(node, path, f"{words}, got {_WORDS[kind]}{hint}")

    def _enum(self, node: Node, allowed: list[str], schema: Schema, path: str) -> None:
        if node.value in allowed:
            return
        got = shown(node.value) if isinstance(node.value, str) else _WORDS[kind_of(node)]
        hint = did_you_mean(node.value, allowed) if isinstance(node.value, str) else ""
        raise self.refuse(node, path, f"one of {', '.join(allowed)}; got {got}{hint}")

    def _pattern(self, node: Node, pattern: str, schema: Schema, path: str) -> None:
        # ECMA-262 22.2.2.4: without a flag `$` is the end; Python's also stands before a last \n.
        whole = re.sub(r"\$\Z", r"\\Z", pattern)
        if isinstance(node.value, str) and not re.search(whole, node.value):
            form = schema.get("description", f"text like {pattern}")
            raise self.refuse(node, path, f"{form}; got {shown(node.value)}")

    def _min_length(self, node: Node, least: int, schema: Schema, path: str) -> None:
        if isinstance(node.value, str) and len(node.value) < least:
            raise self.refuse(node, path, f"at least {least} characters")

    def _max_length(self, node: Node, most: int, schema: Schema, path: str) -> None:
        if isinstance(node.value, str) and len(node.value) > most:
            raise self.refuse(node, path, f"at most {most} characters, got {len(node.value)}")

    def _minimum(self, node: Node, least: float, schema: Schema, path: str) -> None:
        if isinstance(node.value, int | float) and node.value < least:
            raise self.refuse(node, path, f"at least {least}, got {node.value}")

    def _maximum(self, node: Node, most: float, schema: Schema, path: str) -> None:
        if isinstance(node.value, int | float) and node.value > most:
            raise self.refuse(node, path, f"at most {most}, got {node.value}")

    def _min_items(self, node: Node, least: int, schema: Schema, path: str) -> None:
        if isinstance(node.value, tuple) and len(node.value) < least:
            raise self.refuse(node, path, f"at least {least} entry")

    def _max_items(self, node: Node, most: int, schema: Schema, path: str) -> None:
        if isinstance(node.value, tuple) and len(node.value) > most:
            raise self.refuse(node, path, f"at most {most} entries")

    def _unique(self, node: Node, unique: bool, schema: Schema, path: str) -> None:
        if not (unique and isinstance(node.value, tuple)):
            return
        seen: set[str] = set()
        for index, child in enumerate(node.value):
            text = json.dumps(child.plain(), sort_keys=True)
            if text in seen:
                raise self.refuse(child, f"{path}[{index}]", "each entry once, this one repeats")
            seen.add(text)

    def _additional(self, node: Node, allowed: bool, schema: Schema, path: str) -> None:
        if allowed or not isinstance(node.value, dict):
            return
        known = schema.get("properties", {})
        for name, child in node.value.items():
            if name not in known:
                hint = did_you_mean(name, known) or f"; known are {', '.join(known)}"
                where = f"{path}.{name if name.isidentifier() else shown(name)}"
                raise self.refuse(child, where, f"no such field{hint}")

    def _required(self, node: Node, names: list[str], schema: Schema, path: str) -> None:
        if isinstance(node.value, dict):
            for name in names:
                if name not in node.value:
                    raise self.refuse(node, f"{path}.{name}", "this field, it is missing")

    def _properties(self, node: Node, known: Mapping[str, Schema], _: Schema, path: str) -> None:
        if isinstance(node.value, dict):
            for name, child in node.value.items():
                if name in known:
                    self.visit(child, known[name], f"{path}.{name}")

    def _items(self, node: Node, schema: Schema, _: Schema, path: str) -> None:
        if isinstance(node.value, tuple):
            for index, child in enumerate(node.value):
                self.visit(child, schema, f"{path}[{index}]")
