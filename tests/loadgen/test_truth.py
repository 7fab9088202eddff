"""A client that gets no processor says so, and calls nothing a value that is none."""

from __future__ import annotations

import os
import sys

import pytest

from loadgen.fast import reason_against_packets, stamps_work
from loadgen.fast.engine import Engine
from loadgen.fast.stamps import Stamps
from loadgen.fast.stream import UNSAID
from loadgen.selftest import outside
from tests.benchmarks.truth import HOGS, starve

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="epoll")
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(120)
@pytest.mark.skipif(CORES < 2, reason="this machine: one core, and the server needs its own")
@pytest.mark.skipif(not stamps_work(), reason="no receive stamps on this system")
def test_a_starved_client_is_limited_and_no_value_of_it_is_wrong() -> None:
    tried = starve(100, 2.0, "kernel", hogs=HOGS)
    assert "client_limited" in [doubt.reason for doubt in tried.doubts]
    wrong, most = outside(tried.errors)
    assert wrong == 0, f"by {most * 1e3:.3f} ms"
    times = tried.errors.instants
    assert len(times) > 1000
    assert 0 < sum(not error.is_value for error in times) < len(times)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(120)
@pytest.mark.skipif(CORES < 2, reason="this machine: one core, and the server needs its own")
@pytest.mark.skipif(
    reason_against_packets() is not None, reason="this machine: no right to see packets"
)
def test_by_the_packet_clock_a_starved_client_has_every_time() -> None:
    tried = starve(100, 2.0, "packet", hogs=HOGS)
    assert "client_limited" in [doubt.reason for doubt in tried.doubts]
    times = tried.errors.instants
    assert len(times) > 1000
    assert all(error.is_value for error in times)
    assert outside(tried.errors)[0] == 0


@LINUX
@pytest.mark.parametrize(
    ("stamp", "taken", "emptied"),
    [(4.9, 4.9, True), (5.0005, 5.0005, True), (9.0, 5.0, UNSAID), (None, 5.0, UNSAID)],
)
def test_a_stamp_is_held_against_the_time_now_and_what_is_not_one_is_a_bound(
    stamp: float | None, taken: float, emptied: int
) -> None:
    """Whoever was stopped after it looked at its clock reads stamps that are later than that."""
    engine = Engine(lambda: 5.0, Stamps(0.0))
    assert engine._plausible(stamp, True) == (taken, emptied)
    engine.close()
