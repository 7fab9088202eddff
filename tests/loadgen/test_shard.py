"""One worker, in this process: what is its own, what it tells, in which frames, and how soon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from conformance.errors import TargetError
from loadgen import shard
from loadgen.frames import Failed, Frame, Go, Plan, Rows
from loadgen.kept import HELD_AT_MOST, Kept
from loadgen.looking import Look
from loadgen.play import Offered
from loadgen.played import Played
from loadgen.preflight import Endpoint
from loadgen.setup import DESCRIPTORS_OF_OURS
from loadgen.sharded import plans_of
from tests.loadgen import playing
from tests.loadgen.captures import whole
from tests.loadgen.test_looking import BROKEN, CHECKS, LOAD


def plan(*words: str, workers: int = 1, url: str = "http://127.0.0.1:9/v1") -> Plan:
    setup = playing.setup(url, "--rate", "5", "--requests", "8", *words)
    return plans_of(setup, Endpoint("/v1/chat/completions", "m"), workers)[0]


def raised(error: Exception, made: Plan) -> list[Frame]:
    """What a worker says whose orders are an error."""
    frames: list[Frame] = []

    def orders() -> Any:
        raise error

    shard.run_shard(made, frames.append, orders, "here")
    return frames


def test_an_error_of_ours_is_told_as_it_is() -> None:
    assert raised(TargetError("nobody is there"), plan()) == [Failed("nobody is there")]


@pytest.mark.parametrize(("open_files", "most"), [(DESCRIPTORS_OF_OURS + 70, 70), (3, 1)])
def test_no_more_is_in_flight_than_this_machine_has_descriptors(
    open_files: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (open_files, open_files))
    assert shard._own(plan()).limits.in_flight == most


def test_certificates_are_read_where_the_load_is_played() -> None:
    made = plan(url="https://127.0.0.1:9/v1")
    assert made.tls
    assert made.setup.door.tls is None
    assert shard._own(made).door.tls is not None
    assert shard._own(replace(made, tls=False)).door.tls is None


def test_workers_share_the_room_for_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: list[int] = []

    def noted(_: object, room: int) -> None:
        rooms.append(room)
        raise TargetError("enough")

    monkeypatch.setattr(shard, "Kept", noted)
    raised(TargetError("not asked"), plan(workers=4))
    assert rooms == [HELD_AT_MOST // 4]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [("a", "a", 15.0), ("a", "b", 5.25), (None, None, 5.25), ("a", None, 5.25)],
)
def test_the_agreed_moment_counts_by_a_clock_that_both_have_and_else_the_lead(
    ours: str | None, theirs: str | None, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "clock_id", lambda: ours)
    monkeypatch.setattr(shard, "time", SimpleNamespace(monotonic=lambda: 90.0))
    made: Any = SimpleNamespace(recorder=SimpleNamespace(now=lambda: 5.0))
    assert shard._start(Go(100.0, theirs, 0.25), made) == expected


# -- what it tells -------------------------------------------------------------------------------


def told(
    heard: Any, *, captures: Path | None = None, beside: Callable[[], None] = print
) -> list[Rows]:
    """Ten answers, the fourth of them broken; `beside` runs as soon as it can."""
    frames: list[Frame] = []
    kept = Kept(LOAD)
    for number in range(10):
        kept.take(Played(number, 0.0, 0.0, BROKEN if number == 3 else whole([1.0, 1.5])))
    setup: Any = SimpleNamespace(checks=CHECKS, captures=captures, api="chat")
    offered = cast(Offered, SimpleNamespace(start=0.0))

    async def aside() -> None:
        beside()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(aside)
            await shard._tell(plan(workers=2), setup, kept, offered, frames.append, heard)

    trio.run(main)
    return [cast(Rows, frame) for frame in frames]


def looks(frames: list[Rows]) -> list[Look]:
    return [look for frame in frames for look in frame.looks]


def test_an_order_to_hurry_is_heard_between_two_answers() -> None:
    heard = SimpleNamespace(hurried=False)
    found = looks(told(heard, beside=lambda: setattr(heard, "hurried", True)))
    assert [look.row.index for look in found] == list(range(10))
    assert 1 <= sum(look.breaches is not None for look in found) <= 2


@pytest.mark.parametrize(
    ("bounds", "sizes"),
    [({"ROWS": 4}, [4, 4, 2]), ({"TIMES": 4}, [2, 3, 2, 2, 1]), ({}, [10])],
)
def test_frames_are_bounded_by_rows_and_by_the_times_in_them(
    bounds: dict[str, int], sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two times in each answer; the broken one has one."""
    for name, most in bounds.items():
        monkeypatch.setattr(shard, name, most)
    frames = told(SimpleNamespace(hurried=False))
    assert [len(frame.looks) for frame in frames] == sizes


def test_a_worker_keeps_its_share_of_the_sample_and_knows_the_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def chosen(rows: Any, broken: set[int], workers: int) -> list[int]:
        asked.append(([row.index for row in rows], broken, workers))
        return [3]

    def keep(*words: Any) -> int:
        asked.append(words[-2:])
        return 0

    monkeypatch.setattr(shard, "chosen", chosen)
    monkeypatch.setattr(shard, "keep", keep)
    told(SimpleNamespace(hurried=False), captures=tmp_path)
    assert asked == [(list(range(10)), {3}, 2), ([3], 2)]
