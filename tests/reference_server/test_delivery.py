"""The order of delivery, step by step, of both engines alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from reference_server.engine.batching import BatchingEngine
from reference_server.engine.interface import Delta, Done, Engine, Sampling, Work
from reference_server.engine.scripted import ScriptedEngine
from tests.reference_server.fake_model import VOCABULARY, FakeRunner
from tests.reference_server.step_gate import Gate, deltas, kinds

ENGINES: Mapping[str, Callable[[int], Engine]] = {
    "scripted": ScriptedEngine,
    "batching": lambda batch: BatchingEngine(FakeRunner(), VOCABULARY, max_batch=batch),
}


@pytest.fixture(params=tuple(ENGINES.values()), ids=tuple(ENGINES))
def make(request: pytest.FixtureRequest) -> Callable[[int], Engine]:
    engine: Callable[[int], Engine] = request.param
    return engine


def asked(name: str, answer: str = "1, 2, 3, 4") -> Work:
    return Work(name, f"About {name}", Sampling(temperature=0.0), answer=answer)


def test_thirty_two_requests_on_seats_for_four_finish_in_order(
    make: Callable[[int], Engine],
) -> None:
    gate = Gate(make(1))
    gate.run(asked("alone"))
    tokens = gate.engine.gauges.tokens
    gate = Gate(make(4))
    names = [f"w{number:02}" for number in range(32)]
    events = gate.run(*map(asked, names))
    assert [event.work for event in events if isinstance(event, Done)] == names
    gauges = gate.engine.gauges
    assert (gauges.steps, gauges.tokens) == (8 * tokens, 32 * tokens)


def test_everybody_who_runs_gets_one_token_a_step_in_the_order_of_arrival(
    make: Callable[[int], Engine],
) -> None:
    gate = Gate(make(3))
    for name in "abc":
        gate.engine.submit(asked(name, "x y z w"))
    for _ in range(3):
        tokens = [event for event in gate.step() if isinstance(event, Delta)]
        assert [(delta.work, delta.tokens) for delta in tokens] == [("a", 1), ("b", 1), ("c", 1)]


def test_one_who_joins_costs_the_others_no_step(make: Callable[[int], Engine]) -> None:
    gate = Gate(make(4))
    gate.engine.submit(asked("early", "x y z w"))
    gate.step(2)
    gate.engine.submit(asked("late", "x y z w"))
    joined = gate.step()
    assert [len(deltas(joined, name)) for name in ("early", "late")] == [1, 1]
    gate.finish()
    ends = {e.work: n for n, step in enumerate(gate.steps) for e in step if isinstance(e, Done)}
    assert ends["late"] - ends["early"] == 2


def test_a_seat_that_becomes_free_is_given_away_in_the_next_step(
    make: Callable[[int], Engine],
) -> None:
    gate = Gate(make(1))
    gate.engine.submit(asked("a", "x"))
    gate.engine.submit(asked("b", "x"))
    expected = [[("Started", name), ("Delta", name), ("Done", name)] for name in "ab"]
    assert [kinds(gate.step()), kinds(gate.step())] == expected


def test_after_a_cancel_within_a_step_at_most_one_token_is_generated(
    make: Callable[[int], Engine],
) -> None:
    gate = Gate(make(2))
    for name in "ab":
        gate.engine.submit(asked(name, "x y z w"))
    events = gate.step()
    for event in gate.engine.step():
        if event.work == "a":
            gate.engine.cancel("b")
        events.append(event)
    assert len(deltas(events, "b")) == 2  # one a step, the second after the cancel came
    events += gate.finish()
    assert len(deltas(events, "b")) == 2
    assert gate.engine.gauges.tokens == sum(delta.tokens for delta in deltas(events, "a")) + 2
    assert gate.engine.gauges.aborted == 1
