"""--max-tokens-total is known before the load, and soon."""

from __future__ import annotations

import itertools
import math

import pytest

from loadgen.budget import A_LOOK, within
from loadgen.clients import parse_clients
from loadgen.lengths import Length
from loadgen.parts import Part, Prefix, parse_prefix, parse_retry, parse_turns
from loadgen.prompts import Conversation
from loadgen.traces import Arrival
from loadgen.workload import Workload

UNIFORM = Length("uniform", 5, 90)
TALK = Conversation(("a", "b", "c"), (3, None, 9))
LOADS = {
    "plain": Workload("chat", "m", 7),
    "drawn": Workload("completions", "m", 7, UNIFORM, UNIFORM),
    "a trace": Workload("chat", "m", 7, trace=(Arrival(0, 600, 9, (1, 2)), Arrival(1))),
    "a prefix": Workload("chat", "m", 7, prefix=Prefix(50.0, UNIFORM, 3)),
    "sessions": Workload("chat", "m", 7, UNIFORM, UNIFORM, turns=parse_turns("1..4", "")),
    "prompts": Workload("chat", "m", 7, prompts=("a", "b"), prefix=parse_prefix("50%:9:2", "")),
    "talks": Workload("chat", "m", 7, prompts=(TALK,), turns=parse_turns("4", ""), by_answers=True),
    "retries": Workload("chat", "m", 7, clients=parse_clients(["40%:patience:1"], []),
                        retry=parse_retry("2"), turns=parse_turns("2", "")),
    "parts": Workload("chat", "m", 7, mix=(
        Part("a", 3, UNIFORM, prefix=Prefix(50.0, UNIFORM, 3)),
        Part("b", turns=parse_turns("3", "")))),
}  # fmt: skip


def asked(load: Workload, unit: int) -> int:
    """What its requests say themselves, each with every retry that its client may make."""
    asks = map(load.ask, load.indices(unit))
    return sum(
        (1 if ask.client.patience is None else load.attempts)
        * ((ask.input_tokens or 0) + (ask.output_tokens or 0))
        for ask in asks
    )


@pytest.mark.parametrize("name", LOADS)
def test_a_unit_costs_what_its_requests_say(name: str) -> None:
    load = LOADS[name]
    costs = [load.tokens(unit) for unit in range(40)]
    assert costs == [asked(load, unit) for unit in range(40)]
    assert len(set(costs)) == 1 or not load.costs_alike


@pytest.mark.parametrize("name", LOADS)
def test_so_many_units_are_let_go_as_cost_no_more_together(name: str) -> None:
    load = LOADS[name]
    sums = list(itertools.accumulate(asked(load, unit) for unit in range(20)))
    for most in (0, sums[0] - 1, sums[0], sums[7] - 1, sums[7], sums[7] + 1):
        assert within(most, load, 20) == sum(each <= most for each in sums)
    assert within(sums[19], load, 20) == 20
    assert within(None, load, 20) == math.inf


def test_where_all_cost_the_same_only_one_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = iter([192, 192])
    monkeypatch.setattr(Workload, "tokens", lambda self, unit: next(costs))
    assert within(10**15, LOADS["plain"], math.inf) == 10**15 // 192
    assert within(10**15, LOADS["plain"], 9) == 9


def test_whoever_waits_long_is_told_once_what_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Workload, "tokens", lambda self, unit: 1)
    times = itertools.count(0.0, 1.5)
    assert within(5 * A_LOOK, LOADS["drawn"], math.inf, clock=lambda: next(times)) == 5 * A_LOOK
    assert capsys.readouterr().err == "loadgen: adding up what --max-tokens-total allows …\n"
    within(5 * A_LOOK, LOADS["drawn"], math.inf, clock=lambda: 0.0)
    assert capsys.readouterr().err == ""
