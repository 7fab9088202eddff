"""How long may a prompt be? As the endpoint's models list says it, if it does."""

from __future__ import annotations

from conformance import strictjson
from conformance.capture import Json
from conformance.reading import read
from conformance.recorder import Recorder
from conformance.script import Bounds, Clocks, Exchange
from conformance.target import request_bytes
from loadgen.measure import COUNTED_AT_MOST
from loadgen.setup import CONNECT, Setup

# As vLLM, SGLang and llama.cpp call it; llama.cpp has its own under `meta`.
KEYS = ("max_model_len", "context_length", "n_ctx", "n_ctx_train")
CLOCKS = Clocks(CONNECT, CONNECT, CONNECT, total=2 * CONNECT)


async def context_of(setup: Setup) -> int | None:
    """Tokens that prompt and answer may have together; None where nobody says so."""
    recorder = Recorder(setup.door, secrets=setup.secrets)
    for base in setup.target.url.bases():
        request = request_bytes(setup.target, base + "/models", None, secrets=setup.fields)
        script = Exchange((request,), method="GET", clocks=CLOCKS, bounds=Bounds(body=1 << 20))
        reading = read(await recorder.exchange(script))
        value = strictjson.parse(reading.body.decode("utf-8", "replace")).value
        if reading.status == 200 and isinstance(value, dict):
            return context_listed(value, setup.target.model)
    return None


def context_listed(listed: dict[str, Json], model: str | None) -> int | None:
    """Of that model, or of the first that is listed."""
    data = listed.get("data")
    entries = [each for each in data if isinstance(each, dict)] if isinstance(data, list) else []
    mine = [each for each in entries if model in (None, each.get("id"))]
    for entry in mine[:1]:
        meta = entry.get("meta")
        for place in (entry, meta) if isinstance(meta, dict) else (entry,):
            for value in map(place.get, KEYS):
                if type(value) is int and 0 < value <= COUNTED_AT_MOST:
                    return value
    return None
