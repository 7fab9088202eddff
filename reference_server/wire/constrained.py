"""Constrained answers: the JSON value a schema admits, chosen without a model.

Deterministic: of an enum the member that the prompt mentions first, else its first member.
"""

from __future__ import annotations

from typing import Any

from reference_server.wire.errors import invalid

_DEEPEST = 32
_MOST_VALUES = 2000  # in one answer: a schema of a few bytes can ask for billions
Schema = Any


def value(schema: Schema, prompt: str, path: str, choice: int = 0) -> Any:
    """A value valid for `schema`. `choice` picks the second, third… mentioned enum member.

    Raises ApiError(400) with `path` as its param for what is no schema or is not supported.
    """
    return _Maker(schema, prompt, path, choice).make(schema, 0)


def mentioned(schema: Schema, prompt: str) -> int:
    """How many members of the schema's enums the prompt mentions; at least 1."""
    return max([1, *(len(_mentions(enum, prompt)) for enum in _enums(schema, 0))])


def _enums(schema: Schema, depth: int) -> list[list[Any]]:
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return []
    found = [schema["enum"]] if isinstance(schema.get("enum"), list) else []
    properties = schema.get("properties")
    if isinstance(properties, dict):
        for inner in properties.values():
            found += _enums(inner, depth + 1)
    return found


def _mentions(members: list[Any], prompt: str) -> list[Any]:
    found = [(prompt.find(m), i) for i, m in enumerate(members) if isinstance(m, str) and m]
    return [members[i] for place, i in sorted(found) if place >= 0]


class _Maker:
    def __init__(self, root: Schema, prompt: str, path: str, choice: int) -> None:
        self._root, self._prompt, self._path, self._choice = root, prompt, path, choice
        self._left = _MOST_VALUES

    def make(self, schema: Schema, depth: int) -> Any:
        if schema is True:
            return {}
        if not isinstance(schema, dict):
            raise invalid(f"{self._path}: expected a JSON schema, got {schema!r}", self._path)
        self._left -= 1
        if depth > _DEEPEST or self._left < 0:
            raise invalid(f"{self._path}: the schema asks for too large a value", self._path)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._enum(schema["enum"])
        if "$ref" in schema:
            return self.make(self._resolved(schema["$ref"]), depth + 1)
        for word in ("anyOf", "oneOf", "allOf"):
            if isinstance(schema.get(word), list) and schema[word]:
                return self.make(schema[word][0], depth + 1)
        return self._typed(schema, depth)

    def _enum(self, members: Any) -> Any:
        if not isinstance(members, list) or not members:
            raise invalid(f"{self._path}: an enum needs at least one member", self._path)
        found = _mentions(members, self._prompt) or members
        return found[min(self._choice, len(found) - 1)]

    def _resolved(self, reference: Any) -> Schema:
        node = self._root
        for step in str(reference).removeprefix("#").strip("/").split("/"):
            if step and not (isinstance(node, dict) and step in node):
                raise invalid(f"{self._path}: cannot resolve {reference}", self._path)
            node = node[step] if step else node
        return node

    def _typed(self, schema: dict[str, Any], depth: int) -> Any:
        kind = schema.get("type", "object" if "properties" in schema else "string")
        kind = kind[0] if isinstance(kind, list) and kind else kind
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            least = _size(schema, "minItems", 1)
            return [self.make(schema.get("items", {}), depth + 1) for _ in range(least)]
        if kind in ("integer", "number"):
            return self._number(schema, kind)
        simple = {"boolean": True, "null": None, "string": self._string(schema)}
        if not isinstance(kind, str) or kind not in simple:
            raise invalid(f"{self._path}: unknown type {kind!r}", self._path)
        return simple[kind]

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise invalid(f"{self._path}: malformed object schema", self._path)
        # Without a list of required ones every property is filled in.
        names = [name for name in properties if name in required or not required]
        names += [name for name in required if isinstance(name, str) and name not in properties]
        return {name: self.make(properties.get(name, {}), depth + 1) for name in names}

    def _number(self, schema: dict[str, Any], kind: str) -> int | float:
        low, high = _bound(schema, "minimum"), _bound(schema, "maximum")
        above, below = _bound(schema, "exclusiveMinimum"), _bound(schema, "exclusiveMaximum")
        if low is not None:
            return low
        if above is not None:
            top = high if high is not None else below
            return above + 1 if kind == "integer" or top is None else (above + top) / 2
        if high is not None:
            return min(1, high)
        return 1 if below is None else min(1, below - 1)

    def _string(self, schema: dict[str, Any]) -> str:
        if "pattern" in schema:
            raise invalid(f"{self._path}: `pattern` is not supported by this model", self._path)
        text = "text".ljust(_size(schema, "minLength", 0), "x")
        return text[: _size(schema, "maxLength", len(text))]


def _bound(schema: dict[str, Any], word: str) -> int | float | None:
    value = schema.get(word)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= 2**63 else None


def _size(schema: dict[str, Any], word: str, default: int) -> int:
    value = schema.get(word, default)
    return value if isinstance(value, int) and 0 <= value <= 4096 else default
