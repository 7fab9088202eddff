"""What differs between APIs and between servers, as data: no code asks for a server's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from conformance.dossier import CHAT, COMPLETIONS
from conformance.findings import Level


@dataclass(frozen=True, slots=True)
class Dialect:
    """The shape of one API's streamed chunk. Source: openai/openai-openapi, the named schemas."""

    api: str
    path: str  # how the request's path ends
    object: str
    plain_object: str
    required: tuple[str, ...] = ("id", "object", "created", "model", "choices")
    choice_required: tuple[str, ...] = ("index", "finish_reason")
    nested: bool = True  # the text stands in choice.delta.content, else in choice.text
    roles: bool = True


@dataclass(frozen=True, slots=True)
class Overlay:
    """A server's documented deviations: records that are no chunks, and lowered levels.

    `vendor_keys`: a chunk that carries one of these keys and no delta is the vendor's own
    record and not a chunk. `lower`: check id → (level, reason).
    """

    name: str
    vendor_keys: tuple[str, ...] = ()
    lower: Mapping[str, tuple[Level, str]] = field(default_factory=dict)


DIALECTS = {
    # CreateChatCompletionStreamResponse, CreateChatCompletionResponse
    CHAT: Dialect(CHAT, "/chat/completions", "chat.completion.chunk", "chat.completion"),
    # CreateCompletionResponse serves both forms
    COMPLETIONS: Dialect(
        COMPLETIONS, "/completions", "text_completion", "text_completion", nested=False, roles=False
    ),
}

_INT_CODE = (Level.MAY, "sends the HTTP status as an integer code")
_NO_NULL = (Level.MAY, "leaves `usage` out of chunks before the usage chunk")
_ZEROES = (Level.SHOULD, "puts a zero object into each completion")
_STAMPED = (Level.MAY, "stamps each chunk when it is made")

OVERLAYS = {
    o.name: o
    for o in (
        Overlay("azure", vendor_keys=("prompt_filter_results", "content_filter_results")),
        Overlay(
            "sglang",
            vendor_keys=("sglext",),
            lower={"chunk.created-changes": _STAMPED, "err.code-type": _INT_CODE},
        ),
        Overlay("vllm", lower={"usage.null-before": _NO_NULL, "err.code-type": _INT_CODE}),
        Overlay("llama.cpp", lower={"err.code-type": _INT_CODE}),
        Overlay(
            "tgi",
            lower={
                "role.repeated": (Level.MAY, "repeats the role on every delta"),
                "tool.id-repeat": (Level.SHOULD, "repeats the id on every fragment"),
                "chunk.created-changes": _STAMPED,
                "usage.null-before": _NO_NULL,
            },
        ),
        Overlay(
            "ollama",
            lower={
                "usage.intermediate": _ZEROES,
                "usage.conflict": _ZEROES,
                "usage.under-count": _ZEROES,
            },
        ),
        Overlay(
            "litellm",
            lower={"usage.null-before": (Level.MAY, "drops the null in places")},
        ),
    )
}


def api_of(path: str | None) -> str | None:
    """The API that a request path belongs to; None if unknown."""
    bare = (path or "").split("?")[0].rstrip("/")
    found = [d.api for d in DIALECTS.values() if bare.endswith(d.path)]
    return found[0] if found else None
