"""The wire samples, judged: worst level, every rule that must be named, and no other must."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.findings import Level, Result
from conformance.inputs import Hints, items
from conformance.judge import judge
from conformance.specs import known_cases

SAMPLES = Path(__file__).parents[1] / "data" / "wire-samples.jsonl"
CASES = known_cases()
WORST = {"FAIL": Level.MUST, "WARN": Level.SHOULD}


def samples() -> list[dict[str, Any]]:
    return [json.loads(line) for line in SAMPLES.read_text().splitlines()]


RECORDS = {item.sample: item.dossier for item in items(str(SAMPLES), Hints())}


def broken(results: tuple[Result, ...]) -> dict[str, Level]:
    return {r.id: r.level for r in results if r.findings and r.level is not Level.MAY}


@pytest.mark.parametrize("sample", samples(), ids=lambda s: f"{s['id']} {s['title']}")
def test_a_sample_gets_its_verdict(sample: dict[str, Any]) -> None:
    found = broken(judge([RECORDS[sample["id"]]], CASES))
    worst = min(found.values(), key=list(Level).index, default=None)
    assert worst is WORST.get(sample["verdict"]), found
    assert set(sample["rules"]) <= set(found)
    musts = {check for check, level in found.items() if level is Level.MUST}
    assert musts <= {*sample["rules"], *sample["may_also"]}


def test_two_judgements_of_one_dossier_are_equal() -> None:
    for sample in samples():
        assert judge([RECORDS[sample["id"]]], CASES) == judge([RECORDS[sample["id"]]], CASES)
