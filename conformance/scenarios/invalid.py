"""`invalid`: requests that no server should answer with a stream, each streamed and plain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import trio

from conformance import canaries
from conformance.capture import Json
from conformance.dossier import CHAT, Dossier
from conformance.recorder import Connection
from conformance.scenarios import asks as ask
from conformance.scenarios.crowd import canary
from conformance.scenarios.driver import Driver
from conformance.scenarios.scenario import Phase, Scenario
from conformance.target import Endpoint, json_bytes

CONTROL_AFTER = 10
MOST = 40
NEIGHBOURS = 2
PACE = 0.02  # seconds between bad requests, so that they meet the neighbours while these run
UNKNOWN_MODEL = "no-such-model-7f3a"
TOO_LONG = "context-exceeded"
WRONG_KEY = "wrong-key"  # in place of the mistake that the fewest servers look at
LEAST = "penalty-range"
MOST_CONTEXT = 32_768  # tokens; filling a longer context costs more than the answer is worth
BEYOND = 64  # words more than the context holds tokens

# Members that replace a good request's own, by the name of the mistake; both APIs.
WRONG_MEMBERS: Mapping[str, Mapping[str, Json]] = {
    "unknown-model": {"model": UNKNOWN_MODEL},
    "model-number": {"model": 7},
    "temperature-text": {"temperature": "hot"},
    "temperature-range": {"temperature": -1},
    "n-zero": {"n": 0},
    "n-text": {"n": "two"},
    "stop-number": {"stop": 5},
    "seed-text": {"seed": "x"},
    "penalty-range": {"presence_penalty": 99},
    "stream-options-text": {"stream_options": "usage"},
}
WRONG_CHAT: Mapping[str, Mapping[str, Json]] = {
    "messages-text": {"messages": "Say only: hi"},
    "messages-empty": {"messages": []},
    "role-missing": {"messages": [{"content": "Say only: hi"}]},
    "top-logprobs-range": {"logprobs": True, "top_logprobs": 21},  # one more than documented
    "tools-text": {"tools": "get_weather"},
}
WRONG_COMPLETIONS: Mapping[str, Mapping[str, Json]] = {
    "prompt-object": {"prompt": {"text": "Say only: hi"}},
    "logprobs-range": {"logprobs": 21},
    "logprobs-text": {"logprobs": "all"},
    "suffix-number": {"suffix": 5},
    "echo-text": {"echo": "yes"},
}


def mistakes(endpoint: Endpoint, *, stream: bool) -> dict[str, Mapping[str, Json] | bytes]:
    """Name of the mistake → the body that makes it; always the same for one endpoint."""
    good = ask.template(endpoint, ask.HI[endpoint.api], ask.SHORT, stream=stream)
    limits: dict[str, Mapping[str, Json]] = {
        # Not -1: llama.cpp reads that as "no limit" and would fill its context.
        "limit-negative": {endpoint.limit: -7},
        "limit-text": {endpoint.limit: "many"},
    }
    special = WRONG_CHAT if endpoint.api == CHAT else WRONG_COMPLETIONS
    required = "messages" if endpoint.api == CHAT else "prompt"
    bodies: dict[str, Mapping[str, Json] | bytes] = {
        "json-cut": json_bytes(good)[:-2],
        f"{required}-missing": {k: v for k, v in good.items() if k != required},
    }
    for name, wrong in {**limits, **WRONG_MEMBERS, **special}.items():
        bodies[name] = {**good, **wrong}
    usage = ask.usage_members() if stream and endpoint.has("usage") else {}
    too_long = ask.template(endpoint, _words(endpoint), ask.SHORT, usage, stream=stream)
    if endpoint.keyed:
        bodies = {WRONG_KEY if name == LEAST else name: body for name, body in bodies.items()}
        bodies[WRONG_KEY] = good
    return {**bodies, TOO_LONG: too_long}


def too_much(endpoint: Endpoint) -> str | None:
    """Why its context cannot be overfilled, None if it can."""
    if endpoint.context is None:
        return "the context length is not known"
    if endpoint.context > MOST_CONTEXT:
        return f"a context of {endpoint.context} tokens, we fill {MOST_CONTEXT} at most"
    return None


def _words(endpoint: Endpoint) -> str:
    """More words than the context holds tokens: no tokenizer joins digits over a space."""
    room = 0 if endpoint.context is None else min(endpoint.context, MOST_CONTEXT)
    return " ".join(str(number % 10) for number in range(room + BEYOND))


def requests(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[ask.Ask, ...]:
    """A good one after every tenth bad one; from the twentieth on they are neighbours that run."""
    streamed, plain = (mistakes(endpoint, stream=form) for form in (True, False))
    bad: list[ask.Ask] = []
    for name in streamed:
        wrong = ask.Ask(
            "refused-stream", streamed[name], generates=False, wrong_key=name == WRONG_KEY
        )
        bad += [wrong, replace(wrong, role="refused-plain", body=plain[name], stream=False)]
    assert len(bad) <= MOST
    first, *others = _words_of(endpoint)
    good = {
        CONTROL_AFTER: ask.Ask("control", ask.template(endpoint, ask.HI[endpoint.api], ask.SHORT)),
        MOST - 2 * CONTROL_AFTER: ask.Ask("neighbour", canary(endpoint, others[0], ask.LONG)),
        MOST - CONTROL_AFTER: ask.Ask("neighbour", canary(endpoint, others[1])),
    }
    out: list[ask.Ask] = []
    for number, each in enumerate(bad, start=1):
        out += [each, good[number]] if number in good else [each]
    return (*out, ask.Ask("recovery", canary(endpoint, first)))


def _words_of(endpoint: Endpoint) -> tuple[str, ...]:
    return canaries.words(1 + NEIGHBOURS, endpoint.seed)


async def drive(driver: Driver, asks: tuple[ask.Ask, ...]) -> Dossier:
    """One after the other, but for the neighbours; recovery on the last bad one's connection."""
    endpoint = driver.endpoint
    skipped = too_much(endpoint)
    sent = [name for name in mistakes(endpoint, stream=True) if name != TOO_LONG or not skipped]
    *others, recovery = asks
    async with driver.connection() as connection:
        await _in_turn(driver, _at_most(others, 2 * len(sent)), connection)
        reused = connection.usable
        last = await driver.send(recovery, connection=connection if reused else None)
    if reused and not last.received:
        # A kept connection may close at any time (RFC 9112 section 9.5); a new one tells.
        await driver.send(recovery)
    return driver.dossier(
        mistakes=list[Json](sent),
        models=list[Json](endpoint.listed),
        context=endpoint.context,
        skipped=skipped,
        words=list[Json](_words_of(endpoint)),
        reused=reused,
    )


async def _in_turn(driver: Driver, asks: list[ask.Ask], connection: Connection) -> None:
    """One after the other but for the neighbours, which run on; the last on this connection."""
    async with trio.open_nursery() as nursery:
        beside = 0
        for each in asks[:-1]:
            if each.role == "neighbour":
                nursery.start_soon(driver.send, each)
                beside += 1
                continue
            if beside == NEIGHBOURS:  # both run: now the bad ones take their time
                await trio.sleep(PACE)
            await driver.send(each)
        await driver.send(asks[-1], connection=connection)


def _at_most(asks: list[ask.Ask], bad: int) -> list[ask.Ask]:
    """All that are good, and the first so many of the others."""
    left = bad
    out = []
    for each in asks:
        left -= not each.generates
        if each.generates or left >= 0:
            out.append(each)
    return out


INVALID = Scenario(
    "invalid",
    "Requests that should be refused, with good ones between and beside them",
    requests,
    drive,
    phase=Phase.INVALID,
    manners="hostile",
    alone=True,
    again=False,  # the malformed requests are counted; one that gets no answer is in the record
)
