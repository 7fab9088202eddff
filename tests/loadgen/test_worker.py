"""`python -m loadgen.worker` from outside: whatever it is told, frames alone come out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
import trio

from loadgen import worker
from loadgen.frames import Failed, Order, Said, Stop, Tell, Unframer, framed, packed, unpacked
from tests.loadgen.test_shard import plan

WORKER = (sys.executable, "-m", "loadgen.worker")
NOISY = """
import os, signal
from loadgen import worker
from loadgen.frames import Failed
def run_shard(plan, emit, orders, place):
    print("noise", flush=True)
    os.system("echo more")
    emit(Failed(f"{os.read(0, 9)!r} {signal.getsignal(signal.SIGINT).name}"))
worker.run_shard = run_shard
worker.main()
"""


def said(told: bytes, *command: str) -> tuple[list[Said], str]:
    done = subprocess.run(command, input=told, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [unpacked(each) for each in Unframer().feed(done.stdout)], done.stderr.decode()


@pytest.mark.parametrize("told", [b"", framed(b"no frame of ours")])
def test_who_is_told_no_plan_says_so_and_ends(told: bytes) -> None:
    (failed,), errors = said(told, *WORKER)
    assert isinstance(failed, Failed)
    assert (errors, failed.why != "") == ("", True)


def test_who_is_told_no_plan_and_heard_by_nobody_ends_as_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(WORKER, input=b"", stdout=writing, stderr=subprocess.PIPE, timeout=60)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_what_anybody_prints_is_not_among_the_frames_and_ctrl_c_is_the_parents_affair() -> None:
    told = framed(packed(plan())) + framed(packed(Stop())) * 2000  # more than one read takes
    found, errors = said(told, sys.executable, "-c", NOISY)
    assert found == [Failed("b'' SIG_IGN")]
    assert errors == "noise\nmore\n"


def test_a_frame_is_written_whole_however_little_a_pipe_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = bytearray()

    def write(_: int, data: memoryview) -> int:
        taken.extend(data[:3])
        return min(3, len(data))

    monkeypatch.setattr("os.write", write)
    worker._write(1, b"0123456789")
    assert taken == b"0123456789"


def test_orders_end_with_their_pipe() -> None:
    found: list[Order] = []
    reading, writing = os.pipe()
    os.write(writing, framed(packed(Tell())))
    os.close(writing)

    async def main() -> None:
        with trio.fail_after(20):
            orders: AsyncIterator[Order] = worker._orders(reading, Unframer(), [packed(Stop())])
            found.extend([order async for order in orders])

    trio.run(main)
    assert found == [Stop(), Tell()]
