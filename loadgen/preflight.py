"""Before the load: can the endpoint be reached, under which path, and which models does it list?

One GET of the models list for each place where it may stand, recorded like everything else. What
answers at all can be loaded; what cannot be reached is an error of the command, not of the server.
"""

from __future__ import annotations

from dataclasses import dataclass

from conformance import strictjson
from conformance.capture import Capture, End, How, Json
from conformance.dossier import PATHS
from conformance.errors import TargetError
from conformance.reading import read
from conformance.recorder import Recorder
from conformance.script import Bounds, Clocks, Exchange
from conformance.target import Target, request_bytes

PATIENCE = 5.0  # seconds for the list; a server that only serves generations may ignore it
MODEL_AT_MOST = 512
_BOUNDS = Bounds(body=1 << 20)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the load goes. `path`: from the server's root."""

    path: str
    model: str


async def preflight(
    recorder: Recorder,
    target: Target,
    api: str,
    fields: tuple[tuple[str, str], ...],
    connect: float,
) -> Endpoint:
    """Raises TargetError in one line that says what to do. After `connect` and PATIENCE seconds in
    all nobody is asked any more."""
    bases = target.url.bases()
    until = recorder.now() + connect + PATIENCE
    for base in bases:
        left = until - recorder.now()
        if left <= 0:
            break
        clocks = Clocks(min(connect, left), PATIENCE, PATIENCE, total=left)
        request = request_bytes(target, base + "/models", None, secrets=fields)
        script = Exchange((request,), method="GET", clocks=clocks, bounds=_BOUNDS)
        capture = await recorder.exchange(script)
        _reachable(capture, target)
        models = _models(capture)
        if models is not None:
            return Endpoint(base + PATHS[api], _model(target, models))
        unanswered = capture.end if capture.end.how is How.CLOCK or not capture.received else None
    return Endpoint(bases[0] + PATHS[api], _model(target, (), unanswered))


def _reachable(capture: Capture, target: Target) -> None:
    end = capture.end
    if end.how is How.NOT_CONNECTED:
        raise TargetError(f"cannot reach {target.url}: {end.detail}")
    if end.how is How.TLS_FAILED:
        raise TargetError(f"cannot reach {target.url}: TLS: {end.detail} (--cacert, --insecure)")
    if end.how is How.CLOCK and end.detail == "connect":
        raise TargetError(f"cannot reach {target.url}: no connection after {end.at:.3g} s")


def _models(capture: Capture) -> tuple[str, ...] | None:
    """The ids of a models list, None if this is none."""
    reading = read(capture)
    value = strictjson.parse(reading.body.decode("utf-8", "replace")).value
    data: Json = value.get("data") if isinstance(value, dict) else None
    if reading.status != 200 or not isinstance(data, list):
        return None
    ids = [entry.get("id") for entry in data if isinstance(entry, dict)]
    return tuple(i for i in ids if isinstance(i, str) and 0 < len(i) <= MODEL_AT_MOST)


def _model(target: Target, listed: tuple[str, ...], unanswered: End | None = None) -> str:
    found = target.model or next(iter(listed), None)
    if found is None and unanswered is not None:
        how = f"{unanswered.how.value} after {unanswered.at:.3g} s"
        raise TargetError(f"{target.url} does not answer ({how}); name a model with --model to try")
    if found is None:
        raise TargetError(f"{target.url} lists no model; name one with --model")
    return found
