"""Checks: small pure functions from a Reading, or from one Trial of a scenario, to findings.

A check is named like its id (`sse.empty-data-event` → `sse_empty_data_event`) and stands in the
module that `MODULES` names for the id's first word. It yields a `Finding` for every place that
breaks the rule, and an `Abstain` where the record cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TypeAlias

from conformance.dossier import Dossier
from conformance.findings import Abstain, Finding
from conformance.reading import Reading

Findings: TypeAlias = Iterator[Finding | Abstain]


@dataclass(frozen=True, slots=True)
class Trial:
    """One dossier with every capture read; roles as in the dossier."""

    dossier: Dossier
    readings: Mapping[str, tuple[Reading, ...]]

    @property
    def abstain(self) -> Abstain | None:
        """What the scenario itself said, where it could not provoke what it should."""
        said = self.dossier.picked.get("abstain")
        return Abstain(str(said["reason"]), str(said["detail"])) if isinstance(said, dict) else None


ReadingCheck: TypeAlias = Callable[[Reading], Findings]
TrialCheck: TypeAlias = Callable[[Trial], Findings]

MODULES = {
    "http": "http",
    "sse": "sse",
    "json": "json",
    "done": "end",
    "stream": "end",
    "chunk": "chunk",
    "choice": "chunk",
    "role": "delta",
    "delta": "delta",
    "reasoning": "delta",
    "plain": "plain",
    "fin": "fin",
    "usage": "usage",
    "err": "err",
    "tool": "tool",
    "logprobs": "logprobs",
    "parity": "text",
    "utf8": "text",
    "text": "text",
    "echo": "text",
    "stop": "stop",
    "abort": "abort",
    "abort.queued": "storm",
    "abort.storm": "storm",
    "slow": "slow",
    "buffering": "buffering",
    "heartbeat": "buffering",
    "isolation": "isolation",
    # Whole ids, where what is provoked is judged apart from what is only seen.
    **dict.fromkeys(
        (
            "err.malformed-json",
            "err.missing-field",
            "err.unknown-model",
            "err.wrong-key",
            "err.wrong-types",
            "err.client-mistake-5xx",
            "err.recovers",
            "err.same-status",
            "err.context",
        ),
        "mistakes",
    ),
    **dict.fromkeys(
        (
            "stop.accepted",
            "stop.exact-prefix",
            "stop.tail-leak",
            "stop.finish",
            "stop.mid-token",
            "stop.multi-byte",
            "stop.near-miss",
            "stop.several",
            "stop.per-choice",
            "stop.first-text",
            "stop.parity",
        ),
        "cutting",
    ),
    **dict.fromkeys(("stop.whitespace", "stop.five", "stop.none"), "stopforms"),
    **dict.fromkeys(("tool.named", "tool.parallel"), "toolchoice"),
    **dict.fromkeys(("usage.choices", "usage.prompt-once", "stop.cost"), "counted"),
    **dict.fromkeys(("stop.literal", "stop.prompt"), "decoys"),
    **dict.fromkeys(
        (
            "utf8.characters",
            "text.normal-form",
            "text.separators",
            "text.escapes",
            "text.sse-lookalike",
            "text.whitespace",
        ),
        "material",
    ),
}


@cache
def function_of(check: str) -> Callable[..., Findings] | None:
    """The function of a check id, None if there is none."""
    module = MODULES.get(check) or MODULES.get(check.split(".")[0])
    if module is None:
        return None
    found = import_module(f"conformance.checks.{module}")
    function: Callable[..., Findings] | None = getattr(
        found, check.replace(".", "_").replace("-", "_"), None
    )
    return function
