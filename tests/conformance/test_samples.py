"""The wire samples, judged: worst level, every rule that must be named, and no other must."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from conformance.capture import Capture, End, Given, How, Layer
from conformance.dossier import Dossier
from conformance.findings import Level, Result
from conformance.judge import judge
from conformance.specs import known_cases

SAMPLES = Path(__file__).parents[1] / "data" / "wire-samples.jsonl"
CASES = known_cases()
WORST = {"FAIL": Level.MUST, "WARN": Level.SHOULD}


def samples() -> list[dict[str, Any]]:
    return [json.loads(line) for line in SAMPLES.read_text().splitlines()]


def dossier(sample: dict[str, Any]) -> Dossier:
    is_open = sample["end"].startswith("socket stays open")
    end = End(How.CLOCK, detail="progress") if is_open else End(How.FRAMED)
    request = sample["request"]
    capture = Capture(
        base64.b64decode(sample["body_base64"]),
        Layer.BODY,
        end=end,
        given=Given(sample["status"], sample["content_type"], request["path"], request),
    )
    plain = sample["plain_text"]
    return Dossier(
        "file",
        {"stream": (capture,)},
        picked={} if plain is None else {"plain_text": plain},
        dialect=sample.get("dialect"),
        name=sample["id"],
    )


def broken(results: tuple[Result, ...]) -> dict[str, Level]:
    return {r.id: r.level for r in results if r.findings and r.level is not Level.MAY}


@pytest.mark.parametrize("sample", samples(), ids=lambda s: f"{s['id']} {s['title']}")
def test_a_sample_gets_its_verdict(sample: dict[str, Any]) -> None:
    found = broken(judge([dossier(sample)], CASES))
    worst = min(found.values(), key=list(Level).index, default=None)
    assert worst is WORST.get(sample["verdict"]), found
    assert set(sample["rules"]) <= set(found)
    musts = {check for check, level in found.items() if level is Level.MUST}
    assert musts <= {*sample["rules"], *sample["may_also"]}


def test_two_judgements_of_one_dossier_are_equal() -> None:
    for sample in samples():
        assert judge([dossier(sample)], CASES) == judge([dossier(sample)], CASES)
