"""What ends a series of runs early takes nothing that was measured before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import trio

from conformance.errors import TargetError
from loadgen import run_command
from loadgen.interrupting import running
from loadgen.looking import Tally
from loadgen.result import Ran, Result, Target
from loadgen.setup import Setup
from loadgen.summary import Window
from tests.loadgen.playing import setup
from tests.loadgen.rows import row

SETUP = setup("http://127.0.0.1:9/v1", "--rate", "1", "--requests", "3", "--checks", "none")
RAN = Ran(
    target=Target("http://127.0.0.1:9/v1", "chat", "m"),
    load={},
    rows=[row(n, float(n)) for n in range(3)],
    tally=Tally(),
    gates=(),
    window=Window(0.0, 3.0),
    lags=(0.001,),
    complete=True,
    steady=False,
)


async def interrupted() -> None:
    """As trio does it: raised in whatever task there is, which a nursery makes a group of."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        raise KeyboardInterrupt


def series(
    monkeypatch: pytest.MonkeyPatch, *ends: Callable[[], BaseException | None]
) -> Sequence[Result]:
    left = list(ends)

    async def perform(_: Setup) -> Ran:
        error = left.pop(0)()
        if isinstance(error, KeyboardInterrupt):
            await interrupted()
        if error is not None:
            raise error
        return RAN

    monkeypatch.setattr(run_command, "perform", perform)
    return list(run_command.played([SETUP] * len(ends)))


def test_an_interruption_is_itself_whatever_nurseries_make_of_it() -> None:
    with pytest.raises(KeyboardInterrupt):
        running(interrupted)


def test_a_mistake_in_a_nursery_is_no_interruption() -> None:
    async def mistaken() -> None:
        async with trio.open_nursery():
            raise ValueError

    with pytest.raises(ExceptionGroup):
        running(mistaken)


@pytest.mark.parametrize("end", [KeyboardInterrupt, lambda: TargetError("cannot reach it")])
def test_a_later_run_that_cannot_begin_leaves_the_earlier_ones(
    end: Callable[[], BaseException],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = series(monkeypatch, lambda: None, lambda: None, end, lambda: None)
    assert [each.complete for each in found] == [True, False]
    assert capsys.readouterr().err.startswith("loadgen: the runs end early: ")


def test_a_first_run_that_cannot_begin_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TargetError):
        series(monkeypatch, lambda: TargetError("cannot reach it"), lambda: None)


def test_a_series_that_nothing_ends_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [each.complete for each in series(monkeypatch, lambda: None, lambda: None)] == [True] * 2
