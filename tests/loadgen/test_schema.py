"""JSON reports of `loadgen run` and `loadgen experiment` are what their published schemas say."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cache
from typing import Any

import jsonschema
import pytest

from conformance.schema import load_schema
from conformance.specs import specs_dir
from loadgen import archive, compare_console
from loadgen.against import dumps, versus
from loadgen.experiments import outcome as experiments
from loadgen.experiments.figures import Shot
from loadgen.experiments.outcome import Gates, outcome_of
from loadgen.experiments.reports import REPORTS
from loadgen.experiments.spec import find
from loadgen.experiments.table import parse_bound
from loadgen.formulas import METRICS
from loadgen.measure import Row
from loadgen.outcome import Fate
from loadgen.result import Result
from loadgen.trust import REASONS
from tests.conformance.attacks import says
from tests.conformance.hostile_server import EVENTS, head
from tests.loadgen.experimenting import experimented
from tests.loadgen.playing import against, against_reference
from tests.loadgen.rows import failed, row
from tests.loadgen.shots import shot
from tests.loadgen.test_bounds import clumped, result

SCHEMA = load_schema(specs_dir() / "run.schema.json")
EXPERIMENT = load_schema(specs_dir() / "experiment-report.schema.json")
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


@pytest.mark.parametrize("schema", [SCHEMA, EXPERIMENT], ids=["run", "experiment"])
def test_every_definition_is_used(schema: Any) -> None:
    def names(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            yield from [str(node["$ref"])] if "$ref" in node else []
            node = list(node.values())
        for each in node if isinstance(node, list) else ():
            yield from names(each)

    assert set(names(schema)) == {f"#/$defs/{name}" for name in schema["$defs"]}


# -- experiments -----------------------------------------------------------------------------------


def experiment(name: str, *shots: Shot, complete: bool = True) -> Any:
    made = find(name)
    gates = Gates(tuple(map(parse_bound, made.bounds)), (), "0", most=0)
    outcome = outcome_of(made, made.options, shots, gates, complete=complete)
    return json.loads(experiments.dumps(outcome, "http://h/v1", "0.1.0"))


@cache
def overlap() -> Any:
    error = replace(failed(1, 0.0), status=503, told=b"no")
    return experiment(
        "overlap",
        shot("at once", [row(0, 0.0)], n=1, described={"clock": "kernel"}),
        shot("at once", [row(0, 0.0), error], n=2, described={"clock": "user"}),
    )


def test_what_an_experiment_writes_is_what_its_schema_says() -> None:
    jsonschema.validate(overlap(), EXPERIMENT)
    assert overlap()["failures"]
    assert overlap()["loads"][1]["outcomes"] == {"complete": 1, "refused": 1}


@pytest.mark.parametrize("name", list(REPORTS))
def test_an_experiment_that_was_not_played_is_too_and_its_columns_are_known(name: str) -> None:
    found = experiment(name, complete=False)
    jsonschema.validate(found, EXPERIMENT)
    assert [each["name"] for each in found["columns"]] == [c.name for c in REPORTS[name].columns]


def test_an_experiment_that_was_played_is_too() -> None:
    words = ("--output-tokens", "20", "--repeat", "1", "--set", "joiners=2")
    made = experimented("joiners", *words)
    found = json.loads(experiments.dumps(made, "http://h/v1", "0.1.0"))
    jsonschema.validate(found, EXPERIMENT)
    assert [each["load"] for each in found["loads"]] == ["control", "joined"]
    assert found["rows"][0]["gap-p50"] > 0


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.pop("columns"),
        lambda found: found.update(colour="green"),
        lambda found: found.update(exit=2),
        lambda found: found["columns"][0].pop("formula"),
        lambda found: found["columns"][0].update(unit="furlongs"),
        lambda found: found["rows"][0].update(streams=[1]),
        lambda found: found["loads"][0].update(clock="sundial"),
        lambda found: found["loads"][0]["outcomes"].update(fine=None),
    ],
)
def test_any_other_experiment_is_not(change: Callable[[Any], object]) -> None:
    found = copy.deepcopy(overlap())
    change(found)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, EXPERIMENT)
