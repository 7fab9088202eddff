"""A run's whole JSON: the document of `export` and a line a request, from which all of it can be
rendered again. Pure.

`rows` holds each scheduled request as `measure.Row` has it, under the names of its fields. With
`--repeat` the document is a list of such documents under `runs`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields

from conformance.capture import Json
from loadgen import definitions_console
from loadgen.definitions import lines
from loadgen.export import SCHEMA, TOOL, document
from loadgen.measure import Row
from loadgen.result import Result, exit_of

COLUMNS = tuple(field.name for field in fields(Row))


def stored(row: Row) -> dict[str, Json]:
    """Bytes as Latin-1 text, so that they come back as they were."""
    values = {name: getattr(row, name) for name in COLUMNS}
    return {
        **values,
        "fate": row.fate.value,
        "told": row.told.decode("latin-1"),
        "token_times": list(row.token_times),
        "earliest": list(row.earliest),
    }


def dumps(results: Sequence[Result], version: str, *, definitions: bool = False) -> Iterator[str]:
    """The document in parts: a run, or the runs of `--repeat`.

    `definitions`: with the figures by other tools' definitions.
    """
    if len(results) == 1:
        yield from run(results[0], version, definitions)
        yield "\n"
        return
    head: dict[str, Json] = {
        "schema": SCHEMA,
        "tool": {"name": TOOL, "version": version},
        "command": "run",
        "repeat": len(results),
        "complete": all(result.complete for result in results),
        "valid": all(result.valid for result in results),
        "exit": exit_of(results),
    }
    yield _open(head) + ',\n "runs": [\n'
    for number, result in enumerate(results):
        yield ",\n" if number else ""
        yield from run(result, version, definitions)
    yield "\n ]\n}\n"


def run(result: Result, version: str, definitions: bool) -> Iterator[str]:
    """One run as an object, in parts; the line is still to be ended."""
    members = document(result, version)
    if definitions:
        members["definitions"] = definitions_console.document(lines(result.measured))
    yield _open(members) + ',\n "rows": [\n'
    for number, row in enumerate(result.rows):
        line = json.dumps(stored(row), separators=(",", ":"), allow_nan=False)
        yield f"{',' if number else ''}\n  {line}" if number else f"  {line}"
    yield "\n ]\n}"


def _open(members: dict[str, Json]) -> str:
    """An object whose last brace is still to come."""
    return json.dumps(members, indent=1, allow_nan=False).removesuffix("\n}")
