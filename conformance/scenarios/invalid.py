"""`invalid`: requests that no server should answer with a stream, each streamed and plain."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.capture import Json
from conformance.dossier import CHAT, Dossier
from conformance.scenarios import asks as ask
from conformance.scenarios.driver import Driver
from conformance.scenarios.scenario import Phase, Scenario
from conformance.target import Endpoint, json_bytes

CONTROL_AFTER = 10
MOST = 40
UNKNOWN_MODEL = "no-such-model-7f3a"
TOO_LONG = "context-exceeded"
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
    streamed, plain = (mistakes(endpoint, stream=form) for form in (True, False))
    bad: list[ask.Ask] = []
    for name in streamed:
        bad.append(ask.Ask("refused-stream", streamed[name], generates=False))
        bad.append(ask.Ask("refused-plain", plain[name], stream=False, generates=False))
    assert len(bad) <= MOST
    good = ask.template(endpoint, ask.HI[endpoint.api], ask.SHORT)
    out: list[ask.Ask] = []
    for number, each in enumerate(bad, start=1):
        out.append(each)
        if number % CONTROL_AFTER == 0:
            out.append(ask.Ask("control", good))
    return (*out, ask.Ask("recovery", good))


async def drive(driver: Driver, asks: tuple[ask.Ask, ...]) -> Dossier:
    endpoint = driver.endpoint
    names = list(mistakes(endpoint, stream=True))
    skipped = too_much(endpoint)
    bad = 0
    for each in asks:
        bad += not each.generates
        if not each.generates and names[(bad - 1) // 2] == TOO_LONG and skipped:
            continue
        await driver.send(each)
    sent: list[Json] = [name for name in names if not (skipped and name == TOO_LONG)]
    listed: list[Json] = list(endpoint.listed)
    return driver.dossier(mistakes=sent, models=listed, context=endpoint.context, skipped=skipped)


INVALID = Scenario(
    "invalid",
    "Requests that should be refused, with controls between them",
    requests,
    drive,
    phase=Phase.INVALID,
    manners="hostile",
    alone=True,
    again=False,  # the malformed requests are counted; one that gets no answer is in the record
)
