"""Before the load: how many tokens its words cost, asked of whoever knows.

The endpoint's `/tokenize` in the form of vLLM, a tokenizer file, or the usage of a few requests.
What comes out is a Spelling, a part of the workload: from there on prompts hang on nothing else.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from conformance import strictjson
from conformance.capture import How, Json
from conformance.dossier import CHAT, PATHS
from conformance.errors import TargetError
from conformance.reading import read
from conformance.recorder import Recorder
from conformance.script import Bounds, Clocks, Exchange
from conformance.target import request_bytes
from loadgen import tokenizer_file
from loadgen.lengths import Length
from loadgen.measure import COUNTED_AT_MOST, row_from
from loadgen.parts import Prefix
from loadgen.played import Played
from loadgen.preflight import Endpoint
from loadgen.setup import CONNECT, Setup
from loadgen.spelling import (
    BY_ENDPOINT,
    BY_FILE,
    BY_USAGE,
    OPENING,
    PLAIN_WORDS,
    WORDS,
    Spelling,
    costs_from,
    learnt,
    mark_of,
)
from loadgen.traces import Arrival
from loadgen.workload import Workload

PATIENCE = 5.0  # seconds; who has no /tokenize may ignore it
SAMPLE = 6  # prompts of the load that are counted once more
_BOUNDS = Bounds(body=16 << 20)
_ENDPOINT, _USAGE, _WORDS, _AUTO = "endpoint", "usage", "words", "auto"

Count = Callable[[Mapping[str, Json]], Awaitable[int | None]]
Ids = Callable[[str], Awaitable[Sequence[int] | None]]


async def spelled(
    setup: Setup, recorder: Recorder, endpoint: Endpoint, workload: Workload
) -> Workload:
    """The workload with what was learnt. Raises TargetError and UsageError where it was asked how
    and that cannot be."""
    how = setup.tokenizer
    if how is None or how == _WORDS:
        return workload
    asked = _Asked(setup, recorder, endpoint, workload)
    found: Spelling | None
    if how in (_AUTO, _ENDPOINT):
        found = await _by_endpoint(asked)
        if found is None and how == _ENDPOINT:
            raise TargetError(f"{setup.target.url} has no /tokenize (try --tokenizer usage)")
        if found is not None:
            return replace(workload, spelling=found)
    if how in (_AUTO, _USAGE):
        found = await _by_usage(asked)
        if found is None and how == _USAGE:
            raise TargetError(f"{setup.target.url} tells no usage (try --tokenizer words)")
        return workload if found is None else replace(workload, spelling=found)
    return replace(workload, spelling=await _by_file(asked, Path(how)))


def told(workload: Workload) -> dict[str, Json]:
    """What a report says of it, where anything was learnt."""
    return {} if workload.spelling == PLAIN_WORDS else workload.spelling.described()


class _Silent(Exception):
    """Whoever has /tokenize did not answer in time: the next question would take as long."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """One endpoint, and the questions to it."""

    setup: Setup
    recorder: Recorder
    endpoint: Endpoint
    workload: Workload

    @property
    def has_prefix(self) -> bool:
        return any(part.prefix is not None for part in self.workload.parts)

    async def usage(self, prompt: str, prefix: bool) -> int | None:
        """prompt_tokens of one request for one token; with the least prefix where asked to."""
        workload = replace(
            _bare(self.workload), prompts=(prompt,), prefix=_one(1) if prefix else None
        )
        ask = workload.ask(0)
        capture = await self.recorder.exchange(self.setup.exchange(self.endpoint, ask))
        return row_from(Played(0, 0.0, 0.0, capture), ask, workload.api).prompt_tokens

    async def tokenize(self, members: Mapping[str, Json]) -> Mapping[str, Json] | None:
        """What /tokenize says of a prompt or of messages; None where there is none."""
        root = self.endpoint.path.removesuffix(PATHS[self.workload.api])
        for path in dict.fromkeys((root.removesuffix("/v1"), root)):
            value = await self._posted(f"{path}/tokenize", members)
            if value is not None and _counted(value) is not None:
                return value
        return None

    async def _posted(self, path: str, members: Mapping[str, Json]) -> Mapping[str, Json] | None:
        body = json.dumps({"model": self.endpoint.model, **members}).encode("ascii")
        request = request_bytes(self.setup.target, path, body, secrets=self.setup.fields)
        clocks = Clocks(CONNECT, PATIENCE, PATIENCE, total=2 * PATIENCE)
        script = Exchange((request,), clocks=clocks, bounds=_BOUNDS)
        capture = await self.recorder.exchange(script)
        if capture.end.how is How.CLOCK:
            raise _Silent
        reading = read(capture)
        value = strictjson.parse(reading.body.decode("utf-8", "replace")).value
        return value if reading.status == 200 and isinstance(value, dict) else None

    async def count(self, members: Mapping[str, Json]) -> int | None:
        value = await self.tokenize(members)
        return None if value is None else _counted(value)

    async def ids(self, text: str) -> Sequence[int] | None:
        value = await self.tokenize({"prompt": text})
        found = None if value is None else value.get("tokens")
        if not isinstance(found, list) or not all(type(each) is int for each in found):
            return None
        return [each for each in found if type(each) is int]


def _counted(value: Mapping[str, Json]) -> int | None:
    """What /tokenize counted; None where that can be no count, whatever it says."""
    found = value.get("count")
    return found if type(found) is int and 0 <= found <= COUNTED_AT_MOST else None


def _bare(workload: Workload) -> Workload:
    """Streamed single requests for one token, with nothing else of the load."""
    simple = workload.simple(Length("fixed", 64), Length("fixed", 1))
    return replace(simple, seed=f"{workload.seed}:counting")


def _one(tokens: int) -> Prefix:
    """Everybody has the same prefix."""
    return Prefix(100.0, Length("fixed", tokens), 1)


# -- the words -------------------------------------------------------------------------------------


async def costs_by_ids(ids: Ids) -> tuple[int, ...] | None:
    """Tokens of each of WORDS, told apart by a word of one token between them: two questions."""
    for between in WORDS[:8]:
        found = await ids(" ".join([OPENING, *[between] * 4]))
        if found is None or len(found) < 5:
            return None
        if len(set(found[-4:])) > 1:
            continue  # it has several tokens
        others = [word for word in WORDS if word != between]
        text = f" {between} ".join(["", *others, ""])
        told = await ids(OPENING + text.rstrip())
        costs = None if told is None else costs_from(told, found[-1], len(others))
        if costs is None:
            continue
        of = dict(zip(others, costs, strict=True))
        return tuple(of.get(word, 1) for word in WORDS)
    return None


async def costs_by_counts(count: Count) -> tuple[int, ...] | None:
    """The same of one who only counts: one question where every word is a token, else many."""
    alone = await count({"prompt": OPENING})
    whole = await count({"prompt": " ".join([OPENING, *WORDS])})
    if alone is None or whole is None:
        return None
    if whole - alone == len(WORDS):
        return (1,) * len(WORDS)
    costs = []
    for word in WORDS:
        both = await count({"prompt": f"{OPENING} {word}"})
        if both is None or both <= alone:
            return None
        costs.append(both - alone)
    return tuple(costs)


# -- the endpoint's own tokenizer ------------------------------------------------------------------


async def _by_endpoint(asked: _Asked) -> Spelling | None:
    try:
        return await _of_endpoint(asked)
    except _Silent:
        return None


async def _of_endpoint(asked: _Asked) -> Spelling | None:
    costs = await costs_by_ids(asked.ids) or await costs_by_counts(asked.count)
    if costs is None:
        return None
    spelling = learnt(BY_ENDPOINT, costs)
    constant = await _off(asked, spelling, None)
    if constant is None:
        return None
    spelling = replace(spelling, constant=constant)
    if asked.has_prefix:
        both = await _off(asked, spelling, _one(64))
        spelling = replace(spelling, prefix=both or 0)
    if asked.workload.shares_blocks:
        behind = await _off(asked, spelling, None, (Arrival(0.0, 64, None, (0,)),))
        spelling = replace(spelling, behind=behind or 0)
    return replace(spelling, checked=await _checked(asked, spelling))


async def _off(
    asked: _Asked, spelling: Spelling, prefix: Prefix | None, trace: tuple[Arrival, ...] = ()
) -> int | None:
    """By how much two prompts have more tokens than words for them were made."""
    workload = replace(_bare(asked.workload), spelling=spelling, prefix=prefix, trace=trace)
    found = [each async for each in _differences(asked, workload, 2)]
    return round(statistics.median(found)) if found else None


async def _differences(asked: _Asked, workload: Workload, most: int) -> AsyncIterator[int]:
    """Tokens of the first prompts, less those asked for."""
    for unit in range(most):
        ask = workload.ask(unit * workload.stride)
        if ask.input_tokens is None:
            continue
        body = json.loads(ask.body)
        name = "messages" if workload.api == CHAT else "prompt"
        counted = await asked.count({name: body[name]})
        if counted is not None:
            yield counted - ask.input_tokens


async def _checked(asked: _Asked, spelling: Spelling) -> str | None:
    """What the load's own first prompts come to."""
    workload = replace(asked.workload, spelling=spelling)
    found = [abs(each) async for each in _differences(asked, workload, SAMPLE)]
    if not found:
        return None
    exact = f"{found.count(0)} of {len(found)} prompts counted again came out exactly"
    return exact if not any(found) else f"{exact}, the others within {max(found)} tokens"


# -- usage -----------------------------------------------------------------------------------------


async def _by_usage(asked: _Asked) -> Spelling | None:
    """Two requests, one more for prefixes and for blocks: nothing but the mark, every word once."""
    mark = f"[{mark_of(asked.workload.seed, 0)}]"
    alone = await asked.usage(mark, prefix=False)
    whole = await asked.usage(" ".join([mark, *WORDS]), prefix=False)
    if alone is None or whole is None or whole <= alone:
        return None
    per_word = (whole - alone) / len(WORDS)
    spelling = Spelling(BY_USAGE, per_word=per_word, constant=alone)
    return await _with_behind(asked, await _with_prefix(asked, spelling, mark), mark)


async def _with_behind(asked: _Asked, spelling: Spelling, mark: str) -> Spelling:
    """What a mark behind a text costs more than one in front of it."""
    if not asked.workload.shares_blocks:
        return spelling
    both = await asked.usage(f"{OPENING} {mark}", prefix=False)
    return replace(spelling, behind=0.0 if both is None else both - spelling.constant - 1)


async def _with_prefix(asked: _Asked, spelling: Spelling, mark: str) -> Spelling:
    """What the least prefix costs, its one word apart."""
    if not asked.has_prefix:
        return spelling
    both = await asked.usage(mark, prefix=True)
    extra = 0.0 if both is None else max(0.0, both - spelling.constant - 1)
    return replace(spelling, prefix=extra)


# -- a file ----------------------------------------------------------------------------------------


async def _by_file(asked: _Asked, path: Path) -> Spelling:
    """The words' costs are the file's; what a chat template adds is the usage of one request."""
    tokenizer = tokenizer_file.load(path)

    async def ids(text: str) -> Sequence[int]:
        return tokenizer_file.ids(tokenizer, text)

    async def count(members: Mapping[str, Json]) -> int:
        return len(tokenizer_file.ids(tokenizer, str(members["prompt"])))

    costs = await costs_by_ids(ids) or await costs_by_counts(count)
    spelling = PLAIN_WORDS if costs is None else learnt(BY_FILE, costs)
    mark = f"[{mark_of(asked.workload.seed, 0)}]"
    constant = await asked.usage(mark, prefix=False)
    if constant is None:
        own, both = len(await ids(mark)), len(await ids(f"{OPENING} {mark}"))
        why = "no usage: the template is not counted"
        return replace(spelling, constant=own, behind=both - own - 1, checked=why)
    spelling = await _with_prefix(asked, replace(spelling, constant=constant), mark)
    return await _with_behind(asked, spelling, mark)
