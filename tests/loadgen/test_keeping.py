"""A sample is kept, the lost ones first; limits on tokens; the live line."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import trio
import trio.testing

from conformance import cli as conformance_cli
from conformance.errors import UsageError
from conformance.storage import read
from loadgen.keeping import FINE, LOST, chosen, folder, keep
from loadgen.load import Open
from loadgen.play import Player
from loadgen.played import Played
from loadgen.progress import CLEAR, line, show, wanted
from tests.conformance.attacks import resets
from tests.loadgen.captures import whole
from tests.loadgen.playing import against, against_reference
from tests.loadgen.rows import failed, row, unsent

LOAD = ("--rate", "5", "--requests", "10", "--output-tokens", "10")


def test_the_lost_are_kept_first_and_the_rest_is_spread() -> None:
    rows = [*(row(n, n) for n in range(1000)), *(failed(1000 + n, 1.0) for n in range(3))]
    found = chosen([*rows, unsent(2000, 1.0)], {7})
    assert found[:4] == [7, 1000, 1001, 1002]
    assert 10 <= len(found) - 4 <= FINE
    assert max(found[4:]) > 900


def test_never_more_than_the_bound_of_either() -> None:
    rows = [failed(n, float(n)) for n in range(5000)]
    assert len(chosen(rows, ())) <= LOST


def test_workers_keep_no_more_than_one_would_and_each_at_least_one() -> None:
    lost, fine = [failed(n, float(n)) for n in range(5000)], [row(n, n) for n in range(5000, 9000)]
    for workers, most in ((4, (LOST // 4, FINE // 4)), (1000, (1, 1))):
        found = chosen([*lost, *fine], (), workers)
        assert 0 < sum(index < 5000 for index in found) <= most[0]
        assert 0 < sum(index >= 5000 for index in found) <= most[1]


def test_what_is_broken_is_kept_once() -> None:
    assert chosen([row(n, n) for n in range(3)], {1}) == [1, 0, 2]


def test_what_is_kept_can_be_read_and_judged(tmp_path: Path) -> None:
    folder_of = tmp_path / "kept"
    ran = against_reference(*LOAD, "--captures", str(folder_of))
    files = sorted(folder_of.iterdir())
    assert len(files) == 10
    dossier = read(files[3])
    body = dossier.roles["stream"][0].received
    assert b"text/event-stream" in body
    assert ran.result.summary.books.succeeded == 10
    assert conformance_cli.main(["judge", str(folder_of), "--gate", "wire"]) in (0, 1)


def test_resets_are_kept_too(tmp_path: Path) -> None:
    attack = resets(b"HTTP/1.1 200 OK\r\n\r\ndata: x")
    against(lambda asked: attack if asked.streams else None, *LOAD, "--captures", str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 10


def test_bytes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = [Played(n, 0.0, 0.0, whole([0.1])) for n in range(4)]
    one = len(played[0].capture.received) if played[0].capture else 0
    monkeypatch.setattr("loadgen.keeping.BYTES", 2 * one + 1)
    assert keep(tmp_path, "chat", played, range(4)) == 2
    assert keep(tmp_path, "chat", played, range(4), workers=2) == 1


def test_what_was_never_recorded_is_not_kept(tmp_path: Path) -> None:
    assert keep(tmp_path, "chat", [Played(0, 0.0)], [0, 99]) == 0


def test_what_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"request-000000.jsonl: cannot be written: No such"):
        keep(tmp_path / "gone", "chat", [Played(0, 0.0, 0.0, whole([0.1]))], [0])


def test_a_folder_is_made_with_those_above_it(tmp_path: Path) -> None:
    assert folder(str(tmp_path / "a" / "b")).is_dir()


def test_a_folder_that_cannot_be_made_is_said_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--captures .*: cannot be made"):
        folder(str(tmp_path / "file" / "in"))


@pytest.mark.parametrize("how", [("--rate", "5"), ("--concurrency", "2")])
def test_no_more_tokens_are_asked_for_than_were_allowed(how: tuple[str, str]) -> None:
    """Each request may cost 128 + 10."""
    words = (*how, "--requests", "10", "--output-tokens", "10")
    ran = against_reference(*words, "--max-tokens-total", str(3 * 138 + 137))
    books = ran.result.summary.books
    assert (books.scheduled, books.sent, books.dropped) == (10, 3, 7)


def test_the_live_line_says_how_far_it_is() -> None:
    assert line(3.2, 60.0, 16, 300, 4) == "3 of 60 s · 16 of 300 sent · 12 ended · 4 in flight"
    assert line(3.2, None, 16, None, 4) == "3 s · 16 sent · 12 ended · 4 in flight"


def test_the_live_line_is_gone_at_the_end_and_only_a_terminal_has_it() -> None:
    out = io.StringIO()

    async def main() -> None:
        with trio.move_on_after(1.2):
            player = Player(None, None, None)  # type: ignore[arg-type]
            await show(player, Open((0.0,), 2.0), out)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert out.getvalue().startswith(CLEAR + "0 of 2 s · 0 of 1 sent")
    assert out.getvalue().endswith(CLEAR)
    assert not wanted(out)
