"""Each fault is caught by its check, a clean server by none; virtual time over real sockets."""

from __future__ import annotations

import functools

import pytest

from conformance.findings import Verdict
from reference_server.faults.table import FAULTS
from tests.fault_matrix import (
    BROKEN,
    CASES,
    KEY,
    MATRIX,
    NOT_CAUGHT,
    head,
    results,
    row,
    run,
    tripped,
)

SAMPLE = ("sse.bom", "json.lone-surrogate", "fin.missing:null", "usage.sum", "http.end-of-body")
seen = functools.cache(lambda name: tripped(FAULTS[name]))


def test_every_check_has_a_fault_and_every_fault_a_check() -> None:
    assert {fault.id for fault in FAULTS.values()} == set(CASES)


def test_a_clean_server_breaks_no_check_and_leaves_few_undecided() -> None:
    found = results(run([], key=KEY))
    assert not [r.id for r in found if r.verdict in BROKEN]
    undecided = {r.id for r in found if r.verdict is not Verdict.PASS}
    # There is no in-band error to look at, no reasoning, no silence, one tool call at a time.
    assert undecided <= {
        "err.followed",
        "err.not-terminated",
        "err.shape",
        "heartbeat.comments",
        "reasoning.empty-field",
        "tool.id-duplicate",
        "tool.resumed",
    }


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_faults_is_caught(name: str) -> None:
    assert FAULTS[name].id in seen(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(FAULTS) - set(SAMPLE)))
def test_a_fault_is_caught_by_its_check(name: str) -> None:
    assert FAULTS[name].id in seen(name)


@pytest.mark.slow
@pytest.mark.parametrize("time", range(20))
def test_a_clean_server_is_never_accused(time: int) -> None:
    assert not [r.id for r in results(run([], "--seed", str(time), key=KEY)) if r.verdict in BROKEN]


def test_the_published_matrix_has_every_fault_and_each_is_caught() -> None:
    """Its last column is not compared: what else a fault trips may depend on who came first."""
    lines = [line.split(" | ") for line in MATRIX.read_text().splitlines()[len(head()) :]]
    assert [line[:2] for line in lines] == [
        row(fault, {}).split(" | ")[:2] for fault in FAULTS.values()
    ]
    assert not [line[0] for line in lines if line[2] == NOT_CAUGHT]
