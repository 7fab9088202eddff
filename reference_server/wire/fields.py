"""Strict reading of a JSON request body: types and ranges, each complaint naming its parameter."""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import isinf
from typing import Any, NoReturn

from reference_server.wire.errors import ApiError, invalid

Object = dict[str, Any]
_IDS = 2**31


def parse(body: bytes) -> Object:
    """The JSON object in a request body. Raises ApiError(400)."""
    try:
        value = json.loads(body.decode(), parse_constant=_no_constant, parse_float=_finite)
    except UnicodeDecodeError:
        raise invalid("the request body is not UTF-8") from None
    except RecursionError:
        raise invalid("the request body is nested too deeply") from None
    except ValueError as error:
        raise invalid(f"the request body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise invalid("the request body must be a JSON object")
    _well_formed(value)
    return value


def _no_constant(name: str) -> NoReturn:
    # RFC 8259, section 6: "Numeric values that cannot be represented … (such as Infinity and NaN)
    # are not permitted."
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise ValueError(f"{text:.20} is larger than any double")
    return value


def _well_formed(value: Object) -> None:
    """No lone surrogates: they cannot be encoded in any answer (RFC 8259, section 8.2)."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise invalid("the request holds a lone surrogate escape") from None
    except RecursionError:
        raise invalid("the request body is nested too deeply") from None


def wrong(name: str, expected: str, value: Any) -> ApiError:
    """The complaint about one parameter."""
    shown = json.dumps(value, ensure_ascii=False)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return invalid(f"{name}: expected {expected}, got {shown}", name)


def integer(source: Object, name: str, low: int, high: int) -> int | None:
    """None when absent or null. True and 1.0 are no integers."""
    value = source.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise wrong(name, f"an integer from {low} to {high}", value)
    return value


def number(source: Object, name: str, low: float, high: float) -> float | None:
    value = source.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise wrong(name, f"a number from {low:g} to {high:g}", value)
    return float(value)


def token_ids(source: Object, name: str, most: int) -> tuple[int, ...]:
    """An array of up to `most` token ids; empty when absent or null."""
    value = source.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > most or not all(map(is_token_id, value)):
        raise wrong(name, f"an array of at most {most} token ids", value)
    return tuple(value)


def is_token_id(value: Any) -> bool:
    """Whether some model could have it; which ids there are is the model's matter."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _IDS


def in_vocabulary(size: int | None, name: str, ids: Iterable[int]) -> None:
    """Raises ApiError(400) for the first of `ids` that no token has. None: tokens have no ids."""
    for token in ids:
        if size is not None and token >= size:
            raise wrong(name, f"token ids below {size}, the size of the vocabulary", token)


def boolean(source: Object, name: str, path: str | None = None) -> bool | None:
    value = source.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise wrong(path or name, "true or false", value)


def text(source: Object, name: str, path: str) -> str:
    """A required string."""
    value = source.get(name)
    if isinstance(value, str):
        return value
    raise wrong(path, "a string", value)


def mapping(source: Object, name: str, path: str | None = None) -> Object | None:
    value = source.get(name)
    if value is None or isinstance(value, dict):
        return value
    raise wrong(path or name, "an object", value)


def items(source: Object, name: str, most: int, path: str | None = None) -> list[Any] | None:
    """A non-empty array, or None."""
    value = source.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not 1 <= len(value) <= most:
        raise wrong(path or name, f"an array of 1 to {most} items", value)
    return value


def stops(source: Object) -> tuple[str, ...]:
    """`stop`: null, a string, or up to four strings ("Up to 4 sequences…")."""
    value = source.get("stop")
    if value is None:
        return ()
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or len(listed) > 4:
        raise wrong("stop", "a string or an array of at most 4 strings", value)
    if not all(isinstance(item, str) and item for item in listed):
        raise wrong("stop", "non-empty strings", value)
    return tuple(listed)
