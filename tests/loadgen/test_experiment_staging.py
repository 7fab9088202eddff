"""Who asks what, when, and how they behave: functions of the experiment, its sizes and the seed."""

from __future__ import annotations

import json
import resource
from collections import Counter
from dataclasses import replace

import pytest

from conformance.errors import UsageError
from conformance.script import Leave
from loadgen.clients import ORDINARY
from loadgen.experiments.command import files_for
from loadgen.experiments.context import context_listed
from loadgen.experiments.spec import find
from loadgen.experiments.staging import Member, Pace, Stage, Staged, Turn, pace_of, turns
from loadgen.load import Closed, Open
from tests.loadgen.rows import failed, row
from tests.loadgen.shots import shot

PACE = Pace(span=10.0, price=1.5)


def stage(name: str, load: str, pace: Pace | None = PACE, **options: int) -> Stage:
    experiment = find(name)
    every = {**experiment.options, "repeat": 1, **options}
    turn = next(each for each in turns(experiment, every) if each.name == load)
    return Stage(every, turn, "7:0", pace)


def test_joiners_come_when_the_control_says_that_so_much_of_a_stream_is_over() -> None:
    made = stage("joiners", "joined", streams=2, joiners=3)
    cast = made.cast()
    assert [(m.role, m.offset) for m in cast] == [
        ("stream", 0.0), ("stream", 0.0), ("joiner", 3.0), ("joiner", 4.0), ("joiner", 5.0),
    ]  # fmt: skip
    assert isinstance(load := made.load(cast), Open)
    assert tuple(load.offsets) == (0.0, 0.0, 3.0, 4.0, 5.0)
    assert {m.client.name for m in cast} == {None, "joiner"}


def test_all_at_once_have_no_schedule_that_could_be_missed() -> None:
    made = stage("joiners", "control", None, streams=5)
    assert made.load(made.cast()) == Closed(5, 5)


@pytest.mark.parametrize(
    ("load", "leave"),
    [
        ("before the headers fin", Leave("fin", events=0)),
        ("first token rst", Leave("rst", events=2)),
        ("mid-decode fin", Leave("fin", events=20)),
        ("waiting rst", Leave("rst", seconds=2.0)),
        ("slow reader rst", Leave("rst", seconds=4.0)),
    ],
)
def test_a_moment_of_hanging_up_is_events_a_share_of_the_answer_or_a_time(
    load: str, leave: Leave
) -> None:
    cast = stage("hang-ups", load, output_tokens=80).cast()
    (said,) = {member.client.leave for member in cast if member.role == "leaver"}
    assert said == leave
    stalls = {m.client.slow is not None for m in cast if m.role == "leaver"}
    assert stalls == {"slow" in load}
    assert {m.client.leave for m in cast if m.role in ("stream", "probe", "crowd")} == {None}


def test_three_hundred_clients_are_mixed_as_the_shares_say_and_shuffled() -> None:
    made = stage("leaks", "mixed")
    cast = made.cast()
    roles = Counter(member.role for member in cast)
    assert roles == {"stream": 105, "leaver": 150, "slow leaver": 45}
    ways = Counter(m.client.leave.how for m in cast if m.client.leave is not None)
    assert ways == {"fin": 99, "rst": 96}
    leaves = [m.client.leave for m in cast if m.role == "leaver" and m.client.leave]
    events = [leave.events for leave in leaves if leave.events is not None]
    assert min(events) <= 1 < 39 <= max(events) <= 40
    by_fin = [leave.events for leave in leaves if leave.how == "fin"]
    assert Counter(by_fin) != Counter(e.events for e in leaves if e.how == "rst")
    assert made.load(cast) == Closed(16, 300)
    assert len({member.role for member in cast[:20]}) > 1
    assert cast == stage("leaks", "mixed").cast()


def test_a_prompt_as_long_as_the_context_leaves_room_for_its_answer() -> None:
    made = replace(stage("long-prompt", "long"), context=4096)
    (long,) = [member for member in made.cast() if member.role == "long"]
    assert long.input == int((4096 - 8 - 32) / 1.5)
    given = replace(made, options={**made.options, "input_tokens": 99})
    assert [m.input for m in given.cast() if m.role == "long"] == [99]
    endless = replace(made, context=10**15, pace=replace(PACE, price=1e-300))
    assert [m.input for m in endless.cast() if m.role == "long"] == [1_000_000]
    with pytest.raises(UsageError, match="say with --input-tokens how many words"):
        replace(made, context=None).cast()


def test_the_context_is_what_the_models_list_says_of_the_model() -> None:
    listed = {
        "data": [
            {"id": "a", "max_model_len": 7},
            {"id": "b", "meta": {"n_ctx": 9, "n_ctx_train": 3}},
        ]
    }
    assert context_listed(listed, None) == 7  # type: ignore[arg-type]
    assert context_listed(listed, "b") == 9  # type: ignore[arg-type]
    assert context_listed(listed, "c") is None  # type: ignore[arg-type]
    for odd in (True, 0, 10**400):
        assert context_listed({"data": [{"id": "a", "max_model_len": odd}]}, None) is None


def test_streams_double_up_to_what_was_asked_for_and_what_we_can_hold() -> None:
    def numbers(name: str, most: int, at_most: int) -> list[int | None]:
        experiment = find(name)
        options = {**experiment.options, "streams": most, "repeat": 1}
        return [turn.n for turn in turns(experiment, options, at_most)]

    assert numbers("many-streams", 6, 1000) == [1, 2, 4, 6]
    assert numbers("many-streams", 1000, 6) == [1, 2, 4, 6]
    assert numbers("overlap", 8, 6) == [1, 2, 4, 8]  # it was asked for: what is dropped is told
    assert find("many-streams").options["streams"] > 10_000


@pytest.mark.parametrize(
    ("soft", "hard", "most", "raised"),
    [
        (1024, 4096, 100, None),
        (1024, 4096, 2000, 2064),
        (1024, 4096, 20_000, 4096),
        (4096, 4096, 20_000, None),
        (1024, resource.RLIM_INFINITY, 20_000, 20_064),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 20_000, None),
    ],
)
def test_as_many_files_are_opened_as_streams_need_and_the_system_lets_us(
    soft: int, hard: int, most: int, raised: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda what: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda what, limits: asked.append(limits))
    found = files_for(most)
    assert asked == ([] if raised is None else [(raised, hard)])
    unlimited = soft == resource.RLIM_INFINITY
    assert found == (raised or (20_064 if unlimited else soft))


def test_the_pace_is_the_median_stream_of_the_control_and_its_dearest_word() -> None:
    rows = [
        row(0, 0.0, ttft=1.0, chunks=2, gap=1.0, input_asked=10, prompt_tokens=20),
        row(1, 0.0, ttft=1.0, chunks=4, gap=1.0, input_asked=10, prompt_tokens=15),
        row(2, 0.0, ttft=1.0, chunks=9, gap=1.0, client="joiner"),
        row(3, 0.0, ttft=1.0, chunks=6, gap=1.0, input_asked=10, prompt_tokens=15),
    ]
    assert pace_of(shot("control", rows).result) == Pace(span=4.0, price=2.0)
    with pytest.raises(UsageError, match="the control came whole"):
        pace_of(shot("control", [failed(0, 0.0)]).result)


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_request_is_the_same_whenever_it_is_made_and_is_marked_as_its_own(api: str) -> None:
    members = tuple(Member("stream", words, 5, ORDINARY) for words in (0, 40))
    made = Staged(api, "m", "7:0", members=members)
    assert made.ask(1) == made.ask(1)
    assert made.ask(1) != replace(made, seed="7:1").ask(1)
    body = json.loads(made.ask(1).body)
    said = body["prompt"] if api == "completions" else body["messages"][0]["content"]
    assert said.startswith(f"[{made.ask(1).mark}] ")
    assert "Count from" in said
    assert len(said.split()) == 40
    assert (body["max_tokens"], body["temperature"], body["stream"]) == (5, 0, True)
    assert made.ask(0).mark != made.ask(1).mark


def test_a_turn_is_named_by_what_varies() -> None:
    load = find("overlap").loads[0]
    assert Turn(load, 0, n=8).name == "8 at once"
    assert Turn(load, 1, how="fin").name == "at once fin"
