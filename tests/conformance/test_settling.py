"""Which members an endpoint takes: the right ones, by one accepted answer, within the bound."""

from __future__ import annotations

import json
from itertools import chain, combinations

import pytest
import trio

from conformance.capture import Capture, End, Given, How, Layer
from conformance.scenarios.asks import Ask
from conformance.scenarios.settling import Option, Settled, most_refusals, settle

OPTIONS = tuple(Option(name, {name: 1}) for name in ("a", "b", "c", "d"))
NAMES = [option.name for option in OPTIONS]
SUBSETS = list(chain.from_iterable(combinations(NAMES, size) for size in range(5)))


def answered(status: int, body: object) -> Capture:
    given = Given(status, "application/json", "/v1/chat/completions", {})
    return Capture(json.dumps(body).encode(), Layer.BODY, end=End(How.FRAMED), given=given)


def settled(bad: tuple[str, ...], *, named: bool, words: str = "no") -> tuple[Settled, list[int]]:
    """Against a server that refuses these; the statuses that it answered."""
    statuses: list[int] = []

    async def send(ask: Ask) -> Capture:
        assert not isinstance(ask.body, bytes)
        found = [name for name in bad if name in ask.body]
        statuses.append(400 if found else 200)
        error = {"message": words, "param": found[0] if found and named else None}
        return answered(statuses[-1], {"error": error} if found else {"choices": []})

    out: list[Settled] = []

    async def main() -> None:
        out.append(await settle(send, Ask("x", {"model": "m"}), OPTIONS))

    trio.run(main)
    return out[0], statuses


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("bad", SUBSETS, ids="".join)
def test_what_is_refused_is_found_out_at_the_cost_of_one_answer(
    bad: tuple[str, ...], named: bool
) -> None:
    found, statuses = settled(bad, named=named)
    assert set(found.refused) == set(bad)
    assert statuses.count(200) == 1
    assert statuses[-1] == 200
    assert statuses.count(400) <= (len(bad) if named else most_refusals(len(OPTIONS)))


def test_a_message_that_names_one_member_is_as_good_as_a_param() -> None:
    found, statuses = settled(("c",), named=False, words="`c` is unknown")
    assert (found.refused, len(statuses)) == ({"c": "400: `c` is unknown"}, 2)


def test_a_message_that_names_another_member_is_not_believed_in_the_end() -> None:
    """It costs requests, and that member is lost; the bound holds and the culprit is found."""
    found, statuses = settled(("c",), named=False, words="`a` is unknown")
    assert "c" in found.refused
    assert statuses.count(200) == 1
    assert statuses.count(400) <= most_refusals(len(OPTIONS))
