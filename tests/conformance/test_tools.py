"""The tools scenario against the scripted server: what is asked, and what where it is refused."""

from __future__ import annotations

import functools

import pytest

from conformance.dossier import Dossier
from conformance.findings import Result, Verdict
from conformance.reading import read
from conformance.run_report import Recorded
from reference_server.engine.interface import Work
from reference_server.faults.fault import Fault, Place
from reference_server.wire.errors import invalid
from tests.fault_matrix import results, run

CHECKS = ("tool.named", "tool.parallel")


@functools.cache
def ran(*refused: str) -> Recorded:
    """A run against a server that knows none of these members; tool_choice: no named one."""

    def work(place: Place, work: Work) -> Work:
        for name in refused:
            given = place.body.get(name)
            if given is not None and given != "required":
                raise invalid(f"{name} is not supported", name)
        return work

    habit = Fault("tool.named", "members are refused", work=work)
    return run([habit], "--api", "chat", *[w for check in CHECKS for w in ("--select", check)])


def dossier(*refused: str) -> Dossier:
    (found,) = (each for each in ran(*refused).dossiers if each.scenario == "tools")
    return found


def verdicts(*refused: str) -> dict[str, Result]:
    return {each.id: each for each in results(ran(*refused)) if each.api == "chat"}


def test_two_answers_ask_for_a_call_and_for_one_call_of_a_named_function() -> None:
    roles = dossier().roles
    assert {role: len(takes) for role, takes in roles.items()} == {"stream": 1, "named": 1}
    asked = read(roles["named"][0]).request or {}
    assert asked["parallel_tool_calls"] is False
    assert asked["tool_choice"] == {"type": "function", "function": {"name": "get_time"}}
    assert {verdicts()[check].verdict for check in CHECKS} == {Verdict.PASS}


@pytest.mark.parametrize(
    ("refused", "open_"),
    [
        (("parallel_tool_calls",), {"tool.parallel"}),
        (("tool_choice",), {"tool.named"}),
        (("tool_choice", "parallel_tool_calls"), set(CHECKS)),
    ],
)
def test_what_is_refused_is_left_out_and_leaves_its_check_open(
    refused: tuple[str, ...], open_: set[str]
) -> None:
    found = dossier(*refused)
    assert len(found.roles["named"]) == 1
    assert set(found.picked["refused"] or ()) == set(refused)  # type: ignore[arg-type]
    undecided = {c for c in CHECKS if verdicts(*refused)[c].verdict is Verdict.INCONCLUSIVE}
    assert undecided == open_


def test_without_tools_nothing_more_is_asked() -> None:
    assert set(dossier("tools").roles) == {"probe"}
    assert verdicts("tools")["tool.named"].verdict is Verdict.UNSUPPORTED
