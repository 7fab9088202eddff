"""Discovery: which APIs answer, which model, and which request dialect; settled once per run.

Every probe is a request like any other: recorded, counted in the plan's bound, judged; see
`scenarios.dialect` for what is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from conformance import strictjson
from conformance.capture import Capture, How, Json
from conformance.dossier import APIS, PATHS, Dossier
from conformance.errors import TargetError
from conformance.reading import read
from conformance.recorder import Recorder
from conformance.saying import said
from conformance.scenarios import dialect
from conformance.scenarios.asks import Ask
from conformance.scenarios.dialect import LIMIT_NAMES, OPTIONAL
from conformance.scenarios.driver import BOUNDS, Driver
from conformance.scenarios.settling import refused
from conformance.script import Clocks, Exchange
from conformance.target import CAPABILITIES, Endpoint, Target, is_keyed, request_bytes

MODEL_AT_MOST = 512
LISTED = 8  # models of a long list that are kept

ABSENT = (404, 405, 410, 501)
UNAUTHORIZED = (401, 403)
GIVE_A_KEY = "; give a key with --api-key-env or --header"

UNREACHABLE = {
    "EAI_NONAME": "the name does not resolve (EAI_NONAME)",
    "ENOENT": "there is no such socket file (ENOENT)",
}


def bound(target: Target, api: str, *, quick: bool = False) -> tuple[Ask, ...]:
    """Every request that discovery can send for one API, the models list apart."""
    endpoint = Endpoint(api, extra=target.extra, seed=target.seed)
    asks = dialect.bound(target, endpoint)
    return (
        asks[:1] + tuple(ask for ask in asks if ask.attempt)[: _places(target) - 1]
        if quick
        else asks
    )


def _places(target: Target) -> int:
    return len(target.url.bases()) * len(LIMIT_NAMES)


@dataclass(frozen=True, slots=True)
class Found:
    """What discovery settled, and the record of how."""

    endpoints: tuple[Endpoint, ...]
    dossiers: tuple[Dossier, ...]
    models: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    requests: int = 0
    tokens: int = 0
    answers: Mapping[str, dict[bytes, Capture]] = field(default_factory=dict)  # by API; see Driver


@dataclass(slots=True)
class Discovery:
    """One discovery. `fields` are the secret header fields; `apis` empty: whatever answers.

    `quick`: no parameter is asked about, and none counts as supported.
    """

    recorder: Recorder
    target: Target
    apis: tuple[str, ...] = ()
    clocks: Clocks = field(default_factory=Clocks)
    fields: tuple[tuple[str, str], ...] = ()
    quick: bool = False
    requests: int = 0
    tokens: int = 0
    answers: dict[str, dict[bytes, Capture]] = field(default_factory=dict)

    async def run(self) -> Found:
        """Raises TargetError where nothing can be tested, in one line that says what to do."""
        base, listed, captures = await self._models()
        models = tuple(_ids(listed))
        model = self.target.model or next(iter(models), None)
        if model is None:
            raise TargetError(f"{self.target.url} lists no model{_why(captures)}")
        endpoints, dossiers, notes = [], [], []
        for api in self.apis or APIS:
            settled = await self._api(api, model, base)
            dossiers.append(settled.dossier(captures))
            captures = ()
            if isinstance(settled.answer, Endpoint):
                context = self.target.context or _context(listed, model)
                endpoints.append(replace(settled.answer, context=context, listed=models[:LISTED]))
            else:
                notes.append(settled.answer)
        if not endpoints or (self.apis and notes):
            raise TargetError(f"{self.target.url}: {'; '.join(notes)}{_listing(models, notes)}")
        return Found(
            tuple(endpoints), tuple(dossiers), models, tuple(notes), self.requests, self.tokens,
            self.answers,
        )  # fmt: skip

    # -- the models list ----------------------------------------------------------------------

    async def _models(self) -> tuple[str | None, Json, tuple[Capture, ...]]:
        """(base path that has a models list, the list's JSON, what was recorded)."""
        captures: list[Capture] = []
        for base in self.target.url.bases():
            request = request_bytes(self.target, base + "/models", None, secrets=self.fields)
            script = Exchange(
                (request,), method="GET", clocks=self.clocks, bounds=BOUNDS, url=self._url(base)
            )
            self.requests += 1
            capture = await self.recorder.exchange(script)
            self._reachable(capture)
            captures.append(capture)
            reading = read(capture)
            value = strictjson.parse(reading.body.decode("utf-8", "replace")).value
            if reading.status == 200 and isinstance(value, dict) and "data" in value:
                return base, value, tuple(captures)
        return None, None, tuple(captures)

    def _reachable(self, capture: Capture) -> None:
        end, url = capture.end, self.target.url
        if end.how is How.NOT_CONNECTED:
            told = UNREACHABLE.get(end.detail or "", end.detail)
            raise TargetError(f"cannot reach {url}: {told}")
        if end.how is How.TLS_FAILED:
            plain = end.detail == "wrong version number"  # OpenSSL's word for what is no TLS
            remedy = "is it http://?" if plain else "--cacert, --insecure"
            raise TargetError(f"cannot reach {url}: TLS: {end.detail} ({remedy})")
        if end.how is How.CLOCK and end.detail == "connect":
            raise TargetError(f"cannot reach {url}: no connection after {end.at:.3g} s")

    def _url(self, base: str) -> str:
        url = self.target.url
        return f"{url.scheme}://{url.authority}{base}/models"

    # -- one API ------------------------------------------------------------------------------

    async def _api(self, api: str, model: str, base: str | None) -> _Settled:
        endpoint = Endpoint(
            api,
            model=model,
            seed=self.target.seed,
            extra=self.target.extra,
            keyed=is_keyed(self.target, self.fields),
        )
        driver = Driver(
            self.recorder,
            self.target,
            endpoint,
            clocks=self.clocks,
            secret_fields=self.fields,
            empty=Dossier("discovery", {}, api=api, dialect=self.target.dialect, name=api),
        )
        answer = await self._first(driver, (base,) if base is not None else None)
        told: dict[str, Json] = {}
        if isinstance(answer, Endpoint):
            driver.endpoint = answer
            answer, told = await self._dialect(driver)
            self.answers[api] = dict(driver.answers)
            answer = replace(answer, answered=frozenset(driver.answers))
        self.requests += driver.sent
        self.tokens += driver.tokens
        return _Settled(answer, driver.dossier(**told))

    async def _first(self, driver: Driver, bases: tuple[str, ...] | None) -> Endpoint | str:
        """The smallest request that is accepted: it settles the path and the limit's name."""
        api, told = driver.endpoint.api, "no answer"
        names = (self.target.limit,) if self.target.limit else LIMIT_NAMES
        for base in bases or self.target.url.bases():
            for name in names:
                path = base + PATHS[api]
                driver.endpoint = replace(driver.endpoint, path=path, limit=name)
                asked = dialect.basic(driver.endpoint)
                capture = await driver.send(asked)
                self._reachable(capture)
                reading = read(capture, api=api)
                told = f"POST {path} {said(reading)}"
                if reading.status is None or 300 <= reading.status < 400:
                    return told
                if reading.status in UNAUTHORIZED:
                    return told + GIVE_A_KEY
                if not refused(reading) and reading.status not in ABSENT:
                    return driver.endpoint
                driver.tokens -= asked.tokens
                if reading.status in ABSENT:
                    break
        return told

    async def _dialect(self, driver: Driver) -> tuple[Endpoint, dict[str, Json]]:
        if self.quick:
            unasked = dict.fromkeys(CAPABILITIES, "not asked with --quick")
            return replace(driver.endpoint, unsupported=unasked, omit=OPTIONAL), {}
        return await dialect.settled(driver, self.target)


@dataclass(frozen=True, slots=True)
class _Settled:
    """An endpoint, or in words why there is none; and what was recorded meanwhile."""

    answer: Endpoint | str
    record: Dossier

    def dossier(self, models: tuple[Capture, ...]) -> Dossier:
        dossier = self.record
        roles = {"models": models, **dossier.roles} if models else dossier.roles
        return replace(dossier, roles=roles, name=f"{dossier.name}-discovery")


def _why(captures: tuple[Capture, ...]) -> str:
    """Why there is no models list, and what to do; a 404 tells less than any other answer."""
    readings = [read(capture) for capture in captures]
    reading = next((each for each in readings if each.status != 404), readings[0])
    target = reading.capture.request[0].data.split(b" ", 2)[1].decode("ascii", "replace")
    told = f": GET {target} {said(reading)}"
    if reading.status in UNAUTHORIZED:
        return told + GIVE_A_KEY
    if reading.status == 200:
        told += {How.BOUND: f" with more than {len(reading.body)} bytes",
                 How.CLOCK: " with a body that did not end in time"}.get(
            reading.capture.end.how, " without an id in its list"
        )  # fmt: skip
    return f"{told}; name one with --model" if reading.status in (200, *ABSENT) else told


def _entries(listed: Json) -> Iterator[dict[str, Json]]:
    data = listed.get("data") if isinstance(listed, dict) else None
    for entry in data if isinstance(data, list) else ():
        if isinstance(entry, dict):
            yield entry


def _ids(listed: Json) -> Iterator[str]:
    for entry in _entries(listed):
        name = entry.get("id")
        if isinstance(name, str) and 0 < len(name) <= MODEL_AT_MOST:
            yield name


def _context(listed: Json, model: str) -> int | None:
    """The context length as vLLM, SGLang and llama.cpp give it in the models list."""
    for entry in _entries(listed):
        meta = entry.get("meta")
        places = (entry, meta) if isinstance(meta, dict) else (entry,)
        for place in places if entry.get("id") == model else ():
            for key in ("max_model_len", "context_length", "n_ctx", "n_ctx_train"):
                value = place.get(key)
                if type(value) is int and value > 0:
                    return value
    return None


def _listing(models: tuple[str, ...], notes: list[str]) -> str:
    known = ", ".join(models[:5])
    return f" (models listed: {known})" if known and any("model" in note for note in notes) else ""
