"""A short run of every fuzz target; run.py goes on for as long as one likes."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.harness import Found, Target, fuzz
from tests.fuzz.targets import TARGETS

ROUNDS = range(300)
SEED = 1


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_examples_are_handled(name: str) -> None:
    assert fuzz(name, TARGETS[name], seed=SEED, rounds=ROUNDS) == len(ROUNDS)


def test_a_failing_round_can_be_had_again_by_its_seed_and_number() -> None:
    def check(data: bytes, chance: random.Random) -> None:
        assert b"bad" not in data

    target = Target(lambda: [b"good"], [b"bad"], check)
    with pytest.raises(Found) as first:
        fuzz("demo", target, seed=7, rounds=range(1000))
    number = int(str(first.value).split("--round ")[1].split()[0])
    with pytest.raises(Found) as again:
        fuzz("demo", target, seed=7, rounds=range(number, number + 1))
    assert str(again.value) == str(first.value)


def test_a_round_that_takes_too_long_is_a_finding() -> None:
    def check(data: bytes, chance: random.Random) -> None:
        while True:
            pass

    with pytest.raises(Found, match="took over"):
        fuzz("demo", Target(lambda: [b""], [b""], check), seed=1, seconds=5, patience=0.01)
