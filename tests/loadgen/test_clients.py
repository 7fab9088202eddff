"""Which requests have a client that leaves or reads slowly, and what it draws: all of it seeded."""

from __future__ import annotations

import statistics
from random import Random

import pytest

from conformance.errors import UsageError
from conformance.script import Leave, Slow
from loadgen.clients import BUFFER, LEAVING, READING, Client, parse_clients, parse_draw


def of(leave: str = "", read: str = "", seed: int = 7) -> list[Client]:
    clients = parse_clients([leave] if leave else [], [read] if read else [])
    return [clients.of(seed, index) for index in range(2000)]


def test_there_are_five_ways_to_leave_and_three_to_read() -> None:
    assert set(LEAVING) == {"patience", "events", "time", "headers", "between"}
    assert set(READING) == {"rate", "stall", "burst"}


@pytest.mark.parametrize(
    ("leave", "read", "client"),
    [
        ("100%:patience:2.5", "", Client("leave patience", patience=2.5)),
        ("100%:events:3", "", Client("leave events", Leave("fin", events=3))),
        ("100%:events:3:rst", "", Client("leave events rst", Leave("rst", events=3))),
        ("100%:time:1.5:rst", "", Client("leave time rst", Leave("rst", seconds=1.5))),
        ("100%:headers:rst", "", Client("leave headers rst", Leave("rst", events=0))),
        ("100%:headers:fin", "", Client("leave headers fin", Leave("fin", events=0))),
        ("100%:between", "", Client("leave between", own=True, hangs_up=True)),
        ("", "100%:rate:500", Client("read rate", slow=Slow(rate=500, buffer=BUFFER), own=True)),
        ("", "100%:burst:2", Client("read burst", slow=Slow(every=2, buffer=BUFFER), own=True)),
        (
            "",
            "100%:stall:4:30",
            Client("read stall", slow=Slow(pause=30, events=4, buffer=BUFFER), own=True),
        ),
    ],
)
def test_each_way_is_a_script(leave: str, read: str, client: Client) -> None:
    assert set(of(leave, read)) == {client}


def test_a_share_is_kept_and_the_rest_is_ordinary() -> None:
    clients = of("10%:headers", "30%:rate:9")
    names = [client.name for client in clients]
    assert 150 < names.count("leave headers") < 250
    assert 530 < names.count("read rate") < 670
    assert names.count(None) == 2000 - names.count("leave headers") - names.count("read rate")


def test_request_i_has_the_same_client_wherever_it_is_asked() -> None:
    clients = parse_clients(["50%:time:exp:2"], [])
    assert clients.of(7, 41) == clients.of(7, 41)
    assert [clients.of(7, i) for i in range(50)] != [clients.of(8, i) for i in range(50)]


@pytest.mark.parametrize(
    ("text", "mean"),
    [("3", 3), ("1..5", 3), ("exp:3", 3), ("normal:3,0.5", 3), ("lognormal:3,2", 3)],
)
def test_a_draw_has_the_mean_it_names(text: str, mean: float) -> None:
    draw, rng = parse_draw(text), Random(5)
    assert draw is not None
    assert statistics.fmean(draw.draw(rng) for _ in range(4000)) == pytest.approx(mean, rel=0.05)


def test_a_stall_may_draw_both_its_numbers() -> None:
    clients = of("", "100%:stall:1..3:lognormal:4,1")
    slow = [client.slow for client in clients if client.slow is not None]
    assert {each.events for each in slow} == {1, 2, 3}
    assert statistics.fmean(each.pause for each in slow) == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        *(
            ("--leave", text)
            for text in (
                "", "10%", "events:3", "10%:often", "0%:headers", "101%:headers", "10%:events",
                "10%:events:x", "10%:headers:3", "10%:time:5..1", "10%:time:exp:0", "10%:time:-1",
                "10%:patience:2:rst", "10%:between:rst", "10%:events:3:half", "10%:events:3:4",
                "10%:time:1e9", "10%:rate:5",
            )
        ),
        *(("--read", text) for text in ("10%:events:3", "10%:stall:3", "10%:rate:5:fin", "5:rate")),
    ],
)  # fmt: skip
def test_what_is_no_client_is_refused_in_one_line(flag: str, text: str) -> None:
    lists = ([text], []) if flag == "--leave" else ([], [text])
    with pytest.raises(UsageError) as error:
        parse_clients(*lists)
    assert str(error.value).startswith(f"{flag} {text}: ")
    assert len(str(error.value).splitlines()) == 1


def test_shares_are_a_hundred_at_most() -> None:
    parse_clients(["76.4%:headers", "14.7%:between"], ["8.9%:rate:2000"])  # exactly
    with pytest.raises(UsageError, match="more than 100 %"):
        parse_clients(["60%:headers"], ["50%:rate:1"])
