"""What a parent makes of what its workers say, without any worker."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from loadgen import team as module
from loadgen.frames import Began, Done, Over, Ready, Said, Snapshot, Stop, packed
from loadgen.team import LEAD, Team


class Saying:
    """A hand whose worker says these, and then nothing."""

    def __init__(self, *said: bytes) -> None:
        self.said, self.ended = list(said), False

    async def send(self, data: bytes) -> None:
        raise AssertionError("nobody is told anything here")

    async def receive(self) -> bytes:
        if not self.said:
            await trio.sleep_forever()
        return self.said.pop(0)

    def end(self) -> None:
        self.ended = True


class Starting:
    """A nursery that starts nothing."""

    def __init__(self) -> None:
        self.started: list[object] = []

    def start_soon(self, work: Any, *args: object) -> None:
        self.started.append(work.__self__)


def made(*hands: Saying) -> tuple[Team, Starting]:
    nursery: Any = Starting()
    return Team(hands or (Saying(), Saying(), Saying()), nursery, 5.0), nursery


OVER = Over(1.0, True, ())


def test_only_who_still_plays_has_requests_in_flight() -> None:
    team, _ = made()
    for each in team.seen:
        each.snapshot = Snapshot(10, 4)
    team.seen[1].over, team.seen[2].lost = OVER, "killed"
    assert (team.sent, team.in_flight) == (30, 4)


def test_it_is_complete_unless_it_or_one_of_them_was_interrupted() -> None:
    found = []
    for one, interrupted in ((OVER, False), (Over(1.0, False, ()), False), (OVER, True)):
        team, _ = made()
        team.seen[0].over, team.seen[1].over = OVER, one
        if interrupted:
            team.interrupt()
        found.append(team.complete)
    assert found == [True, False, False]


def test_who_is_lost_or_done_is_told_nothing_more() -> None:
    team, nursery = made()
    team.seen[0].lost, team.seen[1].done = "killed", Done(0, {})
    team.hurry()
    assert nursery.started == [team.seen[2].hand]


@pytest.mark.parametrize(
    ("said", "why"),
    [(b"\xff" * 40, "this is streamproof"), (packed(Stop()), "it said what no worker says: Stop")],
    ids=["no frame of ours", "an order"],
)
def test_who_says_what_no_worker_says_is_lost(said: bytes, why: str) -> None:
    hand = Saying(said)
    team, _ = made(hand)
    trio.run(team._follow, team.seen[0])
    assert why in str(team.seen[0].lost)
    assert hand.ended


@pytest.mark.parametrize(
    ("ours", "theirs", "exact"), [("a", "a", True), ("a", "b", False), (None, None, False)]
)
def test_when_it_began_is_known_by_a_clock_that_both_have_and_else_bounded(
    ours: str | None, theirs: str | None, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "clock_id", lambda: ours)
    monkeypatch.setattr(module, "time", type("", (), {"monotonic": staticmethod(lambda: 50.5)}))
    team, _ = made()
    team.start, team._told_at = 50.0 + LEAD, 50.0
    said: list[Said] = [Ready("here", theirs), Began(50.0 + LEAD + 0.125)]
    for each in said:
        team._take(team.seen[0], packed(each))
    span = (0.125, 0.125) if exact else (0.0, 0.5)
    assert team.seen[0].span == pytest.approx(span)
