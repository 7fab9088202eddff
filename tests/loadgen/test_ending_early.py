"""What ends a series of runs early takes nothing that was measured before."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from conformance.errors import TargetError
from loadgen import lookers, page, run_command
from loadgen.cli import main
from loadgen.interrupting import Shelter, running
from loadgen.looking import Tally
from loadgen.result import Ran, Result, Target
from loadgen.setup import Setup
from loadgen.summary import Window
from tests.conformance.attacks import says
from tests.conformance.hostile_server import EVENTS, Asked, Attack, head, stream_answer
from tests.loadgen.playing import against, setup
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


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    """SIGINT is heard: a job in the background of a shell, or of nohup, begins without that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


async def interrupted() -> None:
    """As trio does it: raised in whatever task there is, which a nursery makes a group of."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        raise KeyboardInterrupt


def series(
    monkeypatch: pytest.MonkeyPatch, *ends: Callable[[], BaseException | None]
) -> Sequence[Result]:
    left = list(ends)

    async def perform(_: Setup, beside: None, shelter: Shelter) -> Ran:
        error = left.pop(0)()
        if isinstance(error, KeyboardInterrupt):
            await interrupted()
        if error is not None:
            raise error
        shelter.take()
        return RAN

    monkeypatch.setattr(run_command, "perform", perform)
    with Shelter() as shelter:
        return list(run_command.played([SETUP] * len(ends), shelter))


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


# -- signals when the load is over -----------------------------------------------------------------


@contextmanager
def elsewhere() -> Iterator[None]:
    """SIGTERM does no more than SIGINT."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
LOAD = ("--rate", "10", "--requests", "5", "--solo", "2")
STREAM = says(head(EVENTS, b"Connection: close") + stream_answer())


def answers(asked: Asked) -> Attack | None:
    return STREAM if asked.method == "POST" else None


def signalling(
    monkeypatch: pytest.MonkeyPatch, number: int, name: str, place: object = run_command
) -> None:
    """When what is called so there is called for the first time, such a signal comes before it."""
    called, left = getattr(place, name), [number]

    def signalled(*args: object, **more: object) -> object:
        if left:
            signal.raise_signal(left.pop())
        return called(*args, **more)

    monkeypatch.setattr(place, name, signalled)


@SIGNALS
@pytest.mark.parametrize("name", ["tally", "told", "Window", "Ran"])
def test_a_signal_after_the_load_loses_nothing_that_was_recorded(
    name: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would follow is left out."""
    signalling(monkeypatch, number, name)
    with elsewhere(), Shelter() as shelter, shelter.lifted():
        result = against(answers, *LOAD, shelter=shelter).result
        assert shelter.heard
    assert (result.summary.books.succeeded, result.complete) == (5, True)
    assert (result.solo is None) == (name == "tally")


@SIGNALS
def test_a_signal_ends_the_judging_and_not_the_measuring(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    signalling(monkeypatch, number, "look", lookers)
    with Shelter() as shelter:
        result = against(answers, *LOAD, "--checks", "wire", shelter=shelter).result
    assert (result.tally.judged, result.tally.unjudged) == (1, 4)
    assert (result.summary.books.succeeded, result.solo) == (5, None)


def test_a_signal_before_anybody_listens_ends_the_load_as_soon_as_somebody_does() -> None:
    with Shelter() as shelter:
        signal.raise_signal(signal.SIGINT)
        result = against(answers, *LOAD, shelter=shelter).result
    assert (result.summary.books.cancelled, result.complete) == (5, False)


def test_where_no_report_waits_a_signal_after_the_load_interrupts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A search, say, must not go on to its next rate."""
    signalling(monkeypatch, signal.SIGINT, "tally")
    with pytest.raises(BaseExceptionGroup) as raised:
        against(answers, *LOAD)
    assert raised.group_contains(KeyboardInterrupt)


def test_the_second_signal_that_ends_nothing_stops_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Shelter():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_where_nothing_was_recorded_a_signal_is_what_it_is_elsewhere() -> None:
    with Shelter() as shelter:
        with pytest.raises(KeyboardInterrupt), shelter.lifted():
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert shelter.heard


def test_a_signal_between_two_runs_leaves_both(monkeypatch: pytest.MonkeyPatch) -> None:
    signalling(monkeypatch, signal.SIGINT, "judged")
    found = series(monkeypatch, lambda: None, lambda: None, lambda: None)
    assert [each.complete for each in found] == [True, False]


@SIGNALS
def test_a_signal_before_the_load_of_a_later_run_leaves_the_earlier_ones(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM ends a process that is not prepared for it."""

    def signalled() -> None:
        handler = signal.getsignal(number)
        assert handler not in (signal.SIG_DFL, signal.SIG_IGN)
        signal.raise_signal(number)

    found = series(monkeypatch, lambda: None, signalled, lambda: None)
    assert [each.complete for each in found] == [False]


@SIGNALS
def test_a_signal_while_the_reports_are_written_leaves_them_whole(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def perform(_: Setup, beside: None, shelter: Shelter) -> Ran:
        shelter.take()
        return RAN

    monkeypatch.setattr(run_command, "perform", perform)
    signalling(monkeypatch, number, "parts", page)
    file = tmp_path / "run.json"
    words = ["http://127.0.0.1:9/v1", "--rate", "1", "--requests", "3", "--json", str(file)]
    code = main(["run", *words, "--html", str(tmp_path / "run.html")])
    assert json.loads(file.read_text())["complete"] is True
    assert (tmp_path / "run.html").read_text().rstrip().endswith("</html>")
    assert capsys.readouterr().out.rstrip().endswith(f"exit {code}")
