"""Every report that `loadgen run --json` writes is what the published schema says, and no other."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from typing import Any

import jsonschema
import pytest

from conformance.schema import load_schema
from conformance.specs import specs_dir
from loadgen import archive, compare_console
from loadgen.against import dumps, versus
from loadgen.formulas import METRICS
from loadgen.measure import Row
from loadgen.outcome import Fate
from loadgen.result import Result
from loadgen.trust import REASONS
from tests.conformance.attacks import says
from tests.conformance.hostile_server import EVENTS, head
from tests.loadgen.playing import against, against_reference
from tests.loadgen.test_bounds import clumped, result

SCHEMA = load_schema(specs_dir() / "run.schema.json")
LOAD = ("--rate", "10", "--requests", "4", "--output-tokens", "6")


def valid(text: str) -> Any:
    found = json.loads(text)
    jsonschema.validate(found, SCHEMA)
    return found


def written(*results: Result, definitions: bool = False) -> str:
    return "".join(archive.dumps(results, "0.1.0", definitions=definitions))


@cache
def run() -> Result:
    """With everything that a run may have."""
    return against_reference(
        *LOAD, "--leave", "30%:events:1..3:rst", "--solo", "2", "--slo", "ttft:p50<1s"
    ).result


@cache
def lost() -> Result:
    error = b'data: {"error": {"message": "out of memory"}}\n\n'
    return against(
        lambda asked: says(head(EVENTS) + error) if asked.method == "POST" else None,
        *LOAD,
        "--slo",
        "ttft:max<1s",
        "--checks",
        "wire,shape",
    ).result


def test_a_run_is_what_the_schema_says() -> None:
    found = valid(written(run(), definitions=True))
    assert found["solo"]
    assert found["recovery"]
    assert found["clients"]
    assert found["definitions"]
    assert found["server"]


def test_a_run_of_failures_is_too() -> None:
    found = valid(written(lost()))
    assert found["failures"]
    assert found["slo"][0]["infinite"] is True
    assert found["checks"]["results"]


def test_a_run_with_bounds_and_a_quote_is_too() -> None:
    quote = {"at": "2026-11-30T07:00:00Z", "loads": [{"clock": "kernel"}]}
    found = valid(written(result([clumped(n, 0.9) for n in range(3)], quote)))
    assert found["metrics"]["gap"]["between"]


def test_several_runs_and_two_endpoints_are_too() -> None:
    valid(written(run(), lost()))
    made = versus([run(), lost()], (0, 1), 7, 0.05)
    valid("".join(dumps(made, "0.1.0")))
    valid("".join(dumps(versus([run()], (0,), 7, 0.05), "0.1.0")))
    assert made.comparison is not None
    valid(json.dumps(compare_console.document(made.comparison, "0.1.0")))


def changed(change: Callable[[Any], object]) -> Any:
    found = copy.deepcopy(json.loads(written(run())))
    change(found)
    return found


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.pop("valid"),
        lambda found: found.update(colour="green"),
        lambda found: found.update(exit=2),
        lambda found: found["metrics"]["ttft"].pop("formula"),
        lambda found: found["rows"][0].pop("bounds"),
        lambda found: found["rows"][0].update(fate="fine"),
        lambda found: found["requests"]["outcomes"].update(fine=1),
        lambda found: found["metrics"]["ttft"]["quantiles"].update(median=None),
    ],
)
def test_anything_else_is_not(change: Callable[[Any], object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed(change), SCHEMA)


def test_the_schema_knows_every_outcome_reason_and_member_of_a_row() -> None:
    defs: Any = SCHEMA["$defs"]
    assert defs["outcome"]["enum"] == [fate.value for fate in Fate]
    assert set(defs["reason"]["properties"]["reason"]["enum"]) == set(REASONS)
    assert set(defs["row"]["properties"]) == {field.name for field in fields(Row)}
    assert set(METRICS) == set(json.loads(written(run()))["metrics"])


def test_every_definition_is_used() -> None:
    def names(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            yield from [str(node["$ref"])] if "$ref" in node else []
            node = list(node.values())
        for each in node if isinstance(node, list) else ():
            yield from names(each)

    assert set(names(SCHEMA)) == {f"#/$defs/{name}" for name in SCHEMA["$defs"]}
