"""A client that gets no processor says so, and calls nothing a value that is none."""

from __future__ import annotations

import os

import pytest

from loadgen.fast import stamps_work
from loadgen.selftest import outside
from tests.benchmarks.truth import starve

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.skipif(CORES < 2, reason="the server needs a core of its own")
@pytest.mark.skipif(not stamps_work(), reason="no receive stamps on this system")
def test_a_starved_client_is_limited_and_no_value_of_it_is_wrong() -> None:
    tried = starve(100, 2.0, "kernel", hogs=4)
    assert "client_limited" in [doubt.reason for doubt in tried.doubts]
    wrong, most = outside(tried.errors)
    assert wrong == 0, f"by {most * 1e3:.3f} ms"
    times = tried.errors.instants
    assert len(times) > 1000
    assert 0 < sum(not error.is_value for error in times) < len(times)
