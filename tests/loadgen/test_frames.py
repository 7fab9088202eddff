"""What crosses between a worker and its parent: whole, of one version, on no clock but its own."""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import fields, replace

import pytest

from conformance.options import OneLineParser
from loadgen import frames
from loadgen.frames import (
    Done,
    FrameError,
    Go,
    Rows,
    Snapshot,
    Unframer,
    clock_id,
    framed,
    packed,
    unpacked,
)
from loadgen.looking import Look
from loadgen.measure import Row
from loadgen.moved import DURATIONS, INSTANTS, moved
from loadgen.preflight import Endpoint
from loadgen.run_options import configure
from loadgen.setup import Setup, setup_from_args
from loadgen.sharded import plans_of
from tests.loadgen.rows import row

SAID = (
    Go(12.5, "clock", 0.3),
    Snapshot(3, 1),
    Rows((Look(row(1, 0.5), None, "ab" * 6, ("cd" * 6,)),)),
    Done(2, {"clock": "kernel"}),
)


@pytest.mark.parametrize("said", SAID)
def test_what_is_said_arrives(said: frames.Said) -> None:
    assert unpacked(packed(said)) == said


def test_another_version_is_refused_in_one_line_before_anything_is_read() -> None:
    _, _, body = packed(SAID[0]).partition(b"\n")
    for other in (b"streamproof 0.0.9 protocol 1 Python 3.11\n" + body, b"\x80garbage", b""):
        with pytest.raises(FrameError, match="every worker needs the same") as raised:
            unpacked(other)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 50, 10_000])
def test_frames_come_out_whole_however_a_pipe_cuts_them(size: int) -> None:
    data = b"".join(framed(packed(said)) for said in SAID)
    unframer = Unframer()
    found = [
        frame
        for start in range(0, len(data), size)
        for frame in unframer.feed(data[start : start + size])
    ]
    assert [unpacked(each) for each in found] == list(SAID)


def test_a_length_that_is_none_is_refused() -> None:
    with pytest.raises(FrameError, match="a frame of"):
        Unframer().feed(b"Traceback (most recent call last)")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux names its clock")
def test_processes_of_one_machine_name_one_clock() -> None:
    there = "from loadgen.frames import clock_id; print(clock_id())"
    told = subprocess.run([sys.executable, "-c", there], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == clock_id()


# -- rows ------------------------------------------------------------------------------------------


def test_every_time_of_a_row_is_an_instant_or_a_duration() -> None:
    times = {field.name for field in fields(Row) if "float" in str(field.type)}
    assert times == set(INSTANTS) | set(DURATIONS)
    assert not set(INSTANTS) & set(DURATIONS)


def test_a_moved_row_lasts_as_long_and_starts_elsewhere() -> None:
    made = row(3, 10.0, ttft=0.5, earliest=(10.2,), wanted=9.0)
    there = moved(made, 4.0)
    assert (there.intended, there.wanted) == (6.0, 5.0)
    assert there.earliest == pytest.approx((6.2,))
    assert there.gaps == pytest.approx(made.gaps)
    assert there.tpot == pytest.approx(made.tpot)
    assert (there.lateness, there.index) == (made.lateness, made.index)
    assert moved(replace(made, sent=None), 4.0).sent is None


# -- plans -----------------------------------------------------------------------------------------

KINDS = {
    "plain": (),
    "tls": ("--insecure",),
    "leave and read": ("--leave", "10%:events:exp:5:rst", "--read", "5%:stall:3:2"),
    "sessions": ("--turns", "2..4", "--leave", "50%:patience:0.5", "--retry", "2:1"),
    "captures": ("--captures", "here", "--max-requests", "7"),
}


def made(*words: str, url: str = "http://127.0.0.1:9/v1") -> Setup:
    parser = OneLineParser()
    configure(parser)
    args: argparse.Namespace = parser.parse_args([url, "--rate", "5", "--requests", "20", *words])
    return setup_from_args(args, {"OPENAI_API_KEY": "sk-0123456789"}, 4096)


@pytest.mark.parametrize("name", KINDS)
def test_a_plan_says_all_that_a_worker_needs(name: str) -> None:
    url = "https://127.0.0.1:9/v1" if name == "tls" else "http://127.0.0.1:9/v1"
    setup = made(*KINDS[name], url=url)
    plans = plans_of(setup, Endpoint("/v1/chat/completions", "m"), 2)
    for plan in plans:
        there = unpacked(packed(plan))
        assert there == plan
        assert isinstance(there, frames.Plan)
        assert there.tls is (name == "tls")
        assert there.setup.certificates.insecure is (name == "tls")
        assert there.setup.workload.ask(5) == setup.workload.ask(5)
        assert there.setup.secrets == setup.secrets
