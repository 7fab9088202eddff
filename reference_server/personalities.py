"""Personalities: what well-known servers are documented to do otherwise, as bundles of faults.

`reference-server --personality NAME` imitates one, so that a client can be tried against it. What a
bundle needs that no check forbids is a `Fault` of its own here: a habit. Sources are public issue
threads and the servers' own code; versions change, and each entry says "this has been seen".
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from reference_server.faults.fault import Fault, Place
from reference_server.faults.table import find as find_fault
from reference_server.seams import Document, Part

Change = Callable[[Place, Document], Iterable[Document]]


@dataclass(frozen=True, slots=True)
class Personality:
    """`faults` are names of the fault table, `habits` what no check forbids."""

    name: str
    title: str
    faults: tuple[str, ...] = ()
    habits: tuple[Fault, ...] = ()

    def parts(self) -> tuple[Fault, ...]:
        """Everything that makes it up."""
        return (*(find_fault(name) for name in self.faults), *self.habits)


def _choices(change: Callable[[Document], Document]) -> Change:
    """A change of each choice of each chunk."""

    def chunk(place: Place, chunk: Document) -> Iterable[Document]:
        return ({**chunk, "choices": [change(choice) for choice in chunk["choices"]]},)

    return chunk


def _filter_record(place: Place, chunk: Document) -> Iterable[Document]:
    """Azure's first record: the filter's word on the prompt, and nothing of a chunk."""
    results = [{"prompt_index": 0, "content_filter_results": {"hate": {"filtered": False}}}]
    record = {"id": "", "object": "", "created": 0, "model": "", "choices": []}
    return (record | {"prompt_filter_results": results}, chunk) if place.n == 0 else (chunk,)


def _id_of_choice(place: Place, chunk: Document) -> Iterable[Document]:
    """With several choices each has an id of its own."""
    index = next((choice["index"] for choice in chunk["choices"]), 0)
    return ({**chunk, "id": f"{chunk['id']}-{index}"} if index else chunk,)


def _null_role_content(place: Place, chunk: Document) -> Iterable[Document]:
    """The role's delta has null in place of an empty text."""
    if place.part is Part.ROLE:
        for choice in chunk["choices"]:
            choice.get("delta", {}).update(content=None)
    return (chunk,)


def _zero_usage(place: Place, chunk: Document) -> Iterable[Document]:
    """Each chunk of a completion counts nothing."""
    zero = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    is_text = any("text" in choice for choice in chunk["choices"])
    return ({**chunk, "usage": zero} if is_text else chunk,)


def _stop_sequence(place: Place, document: Document) -> Document:
    """An answer that a stop string ended has a reason of its own."""
    if place.body.get("stop"):
        for choice in document["choices"]:
            if choice.get("finish_reason") == "stop":
                choice["finish_reason"] = "stop_sequence"
    return document


def _stop_reason(choice: Document) -> Document:
    return {**choice, "stop_reason": None} if choice.get("finish_reason") else choice


def _matched_stop(choice: Document) -> Document:
    return {**choice, "matched_stop": None} if choice.get("finish_reason") else choice


PERSONALITIES: dict[str, Personality] = {
    each.name: each
    for each in (
        Personality(
            "azure",
            "a record of the content filter comes first",
            habits=(Fault("azure.filter", "a filter record first", chunk=_filter_record),),
        ),
        Personality(
            "vllm",
            "no null usage, a number as error code, `stop_reason` beside the finish",
            ("usage.null-before", "err.code-type"),
            (Fault("vllm.stop-reason", "`stop_reason`", chunk=_choices(_stop_reason)),),
        ),
        Personality(
            "sglang",
            "a time stamp for each chunk, an id for each choice, `matched_stop`, numbers as codes",
            ("chunk.created-changes", "err.code-type"),
            (
                Fault("sglang.matched-stop", "`matched_stop`", chunk=_choices(_matched_stop)),
                Fault("sglang.ids", "an id for each choice", chunk=_id_of_choice),
            ),
        ),
        Personality(
            "llama.cpp",
            "one model for every name, timings, numbers as codes, a connection closed unannounced",
            ("chunk.extras", "err.code-type", "err.unknown-model:single", "http.keep-alive"),
            (Fault("llama.null-content", "null beside the role", chunk=_null_role_content),),
        ),
        Personality(
            "tgi",
            "the role on every delta, the id on every fragment, all errors inside a 200",
            (
                "role.repeated",
                "tool.id-repeat",
                "chunk.created-changes",
                "usage.null-before",
                "err.prestream-200",
            ),
            (
                Fault(
                    "tgi.stop-sequence",
                    "finish `stop_sequence`",
                    chunk=lambda place, chunk: (_stop_sequence(place, chunk),),
                    plain=_stop_sequence,
                ),
            ),
        ),
        Personality(
            "ollama",
            "a zero usage in each chunk of a completion",
            habits=(Fault("ollama.zero-usage", "zero usage", chunk=_zero_usage),),
        ),
        Personality(
            "litellm",
            "usage in a chunk with a choice, no null usage before it, calls counted from 1",
            ("usage.placement", "usage.null-before", "tool.index-order"),
        ),
    )
}


def find(name: str) -> Personality:
    """Raises KeyError with one line that names a likely other."""
    if name in PERSONALITIES:
        return PERSONALITIES[name]
    near = difflib.get_close_matches(name, PERSONALITIES, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(PERSONALITIES)}"
    raise KeyError(f"no personality is called {name}; {hint}")
