"""Faults of the finish reason and of usage."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from reference_server.engine.interface import Work
from reference_server.faults.edit import Chunk, choices, ended, every, having, lacking, mapped, of
from reference_server.faults.fault import Fault, Place
from reference_server.seams import Document, Part


def _reason(new: Any, *old: str) -> Chunk:
    """Another finish reason instead of one of `old`, or of any."""

    def chunk(place: Place, document: Document) -> Iterable[Document]:
        if place.part is not Part.FINISH:
            return (document,)
        wanted = not old or document["choices"][0]["finish_reason"] in old
        return (ended(document, new) if wanted else document,)

    return chunk


def _early(place: Place, document: Document) -> Iterable[Document]:
    """The finish comes before the second piece of text; not again at the end."""
    if place.part is Part.CONTENT and place.nth == 1:
        place.memory["ended"] = True
        blank = choices(lambda c: {**c, "delta": {}} if "delta" in c else {**c, "text": ""})
        return (ended(blank(document), "stop"), document)
    if place.part is Part.FINISH and place.memory.get("ended"):
        return ()
    return (document,)


def _looser(place: Place, work: Work) -> Work:
    limit = work.sampling.max_tokens
    more = None if limit is None else limit + 1
    return replace(work, sampling=replace(work.sampling, max_tokens=more))


def _unlimited(place: Place, work: Work) -> Work:
    """As a server does that has never heard of max_completion_tokens."""
    if "max_completion_tokens" not in place.body:
        return work
    return replace(work, sampling=replace(work.sampling, max_tokens=None))


NULL_FINISH = choices(
    lambda choice: choice if choice["finish_reason"] else lacking("finish_reason")(choice)
)
EMPTY_FINISH = choices(mapped("finish_reason", lambda reason: reason or ""))

FINISH = (
    Fault("fin.key-missing", "no `finish_reason` until the end", chunk=every(NULL_FINISH)),
    Fault("fin.missing", "no finish chunk", chunk=of(Part.FINISH, lambda chunk: ())),
    Fault("fin.missing", "the reason stays null", "null", chunk=_reason(None)),
    Fault("fin.duplicate", "the finish twice", chunk=of(Part.FINISH, lambda chunk: (chunk, chunk))),
    Fault("fin.early", "text after the finish", chunk=_early),
    Fault("fin.empty-string", "an empty reason until the end", chunk=every(EMPTY_FINISH)),
    Fault("fin.unknown-value", "the reason is `eos_token`", chunk=_reason("eos_token")),
    Fault("fin.unknown-value", "the reason is `abort`", "abort", chunk=_reason("abort")),
    Fault("fin.tool-calls", "calls end with the reason stop", chunk=_reason("stop", "tool_calls")),
    Fault(
        "fin.length-suspect",
        "an answer cut by its limit says stop",
        chunk=_reason("stop", "length"),
    ),
    Fault("fin.limit", "one token more than the limit", work=_looser),
    Fault("fin.limit", "the limit is called stop", "stop", chunk=_reason("stop", "length")),
    Fault("fin.max-completion-tokens", "max_completion_tokens is ignored", work=_unlimited),
    Fault("fin.natural-stop", "a natural end is called length", chunk=_reason("length", "stop")),
)


def _usage(chunk: Document, **changes: int) -> Document:
    """Adds to the counts; `total_tokens` follows unless it is named."""
    if not isinstance(chunk.get("usage"), dict):
        return chunk
    usage = {**chunk["usage"]}
    for name, more in changes.items():
        usage[name] += more
    if "total_tokens" not in changes:
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
    return {**chunk, "usage": usage}


def _counted(**changes: int) -> dict[str, Any]:
    """Wrong counts, streamed and plain."""
    return {
        "chunk": lambda place, chunk: (_usage(chunk, **changes),),
        "plain": lambda place, document: _usage(document, **changes),
    }


def _of_one(usage: Document, n: int) -> Document:
    used = usage["completion_tokens"] // n
    return usage | {"completion_tokens": used, "total_tokens": usage["prompt_tokens"] + used}


def _of_each(usage: Document, n: int) -> Document:
    prompt = usage["prompt_tokens"] * n
    return usage | {"prompt_tokens": prompt, "total_tokens": prompt + usage["completion_tokens"]}


def _to_its_limit(usage: Document, place: Place) -> Document:
    limit = place.body.get("max_tokens")
    if not place.body.get("stop") or not isinstance(limit, int):
        return usage
    used = limit * place.choices
    return usage | {"completion_tokens": used, "total_tokens": usage["prompt_tokens"] + used}


def _shared(change: Callable[[Document, int], Document]) -> dict[str, Any]:
    """Another usage for several choices."""
    return _billed(lambda usage, place: change(usage, place.choices))


def _billed(change: Callable[[Document, Place], Document]) -> dict[str, Any]:
    """Another usage, streamed and plain."""

    def counted(place: Place, document: Document) -> Document:
        usage = document.get("usage")
        return {**document, "usage": change(usage, place)} if isinstance(usage, dict) else document

    return {"chunk": lambda place, chunk: (counted(place, chunk),), "plain": counted}


def _unstable(place: Place, document: Document) -> Document:
    return _usage(document, prompt_tokens=place.serial % 5)


def _as_strings(document: Document) -> Document:
    usage = document.get("usage")
    if not isinstance(usage, dict):
        return document
    return {**document, "usage": usage | {"completion_tokens": str(usage["completion_tokens"])}}


def _details(document: Document) -> Document:
    usage = document.get("usage")
    if not isinstance(usage, dict):
        return document
    details = {"reasoning_tokens": usage["completion_tokens"] + 1}
    return {**document, "usage": usage | {"completion_tokens_details": details}}


def _zeroes(place: Place, document: Document) -> Iterable[Document]:
    zero = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    running = place.part not in (Part.USAGE, Part.FINISH)
    yield {**document, "usage": zero} if running else document


def _before_finish(place: Place, document: Document) -> Iterable[Document]:
    """The usage chunk overtakes the finish chunks."""
    held: list[Document] = place.memory.setdefault("held", [])
    if place.part is Part.FINISH and place.asks_usage:
        held.append(document)
        return ()
    return (document, *held) if place.part is Part.USAGE else (document,)


def _with_a_choice(document: Document) -> Iterable[Document]:
    choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}
    if document["object"] == "text_completion":
        choice = {"index": 0, "text": "", "logprobs": None, "finish_reason": None}
    yield {**document, "choices": [choice]}


USAGE = (
    Fault("usage.missing", "no usage chunk", chunk=of(Part.USAGE, lambda chunk: ())),
    Fault(
        "usage.placement",
        "the usage chunk has a choice",
        chunk=of(Part.USAGE, _with_a_choice),
    ),
    Fault("usage.placement", "usage before the finish", "early", chunk=_before_finish),
    Fault(
        "usage.null-before",
        "no `usage` before the usage chunk",
        chunk=every(lambda chunk: chunk if chunk.get("usage") else lacking("usage")(chunk)),
    ),
    Fault("usage.intermediate", "zero usage in each chunk", chunk=_zeroes),
    Fault("usage.sum", "the total is one too high", **_counted(total_tokens=1)),
    Fault(
        "usage.type",
        "a count is a string",
        chunk=every(_as_strings),
        plain=lambda place, document: _as_strings(document),
    ),
    Fault(
        "usage.over-limit",
        "a thousand tokens more than there were",
        **_counted(completion_tokens=1000),
    ),
    Fault(
        "usage.under-count",
        "no tokens counted",
        chunk=every(
            lambda chunk: (
                having(usage=_none(chunk["usage"]))(chunk) if chunk.get("usage") else chunk
            )
        ),
    ),
    Fault("usage.choices", "of several choices one is counted", **_shared(_of_one)),
    Fault("stop.cost", "a stopped answer costs all of its limit", **_billed(_to_its_limit)),
    Fault("usage.prompt-once", "the prompt is counted for each choice", **_shared(_of_each)),
    Fault(
        "usage.conflict",
        "two usage chunks that disagree",
        chunk=of(Part.USAGE, lambda chunk: (_usage(chunk, completion_tokens=3), chunk)),
    ),
    Fault(
        "usage.details",
        "more reasoning tokens than tokens",
        chunk=every(_details),
        plain=lambda place, document: _details(document),
    ),
    Fault(
        "usage.parity",
        "streams count one token more than plain answers",
        chunk=every(lambda chunk: _usage(chunk, completion_tokens=1)),
    ),
    Fault(
        "usage.prompt-stable",
        "the prompt's length varies",
        chunk=lambda place, chunk: (_unstable(place, chunk),),
        plain=_unstable,
    ),
)


def _none(usage: Document) -> Document:
    return usage | {"completion_tokens": 0, "total_tokens": usage["prompt_tokens"]}


FAULTS = FINISH + USAGE
