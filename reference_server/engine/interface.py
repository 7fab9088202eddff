"""What an engine is: `submit`, `cancel`, `step`, and the events a step returns.

An engine owns no thread, no clock and no socket. Whoever drives it calls `step()`; each call does
one decode step for every running request and returns what happened, in order. Every engine is held
to this module by `tests/reference_server/check_engine.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol


class FinishReason(Enum):
    """The OpenAI API's words for why a choice ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


@dataclass(frozen=True, slots=True)
class Sampling:
    """What decides the tokens of one choice. Defaults are the API's."""

    max_tokens: int | None = None  # None: until the model ends or the context is full
    temperature: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None  # None: off; k >= 0: the chosen token and k alternatives


@dataclass(frozen=True, slots=True)
class Work:
    """One accepted request, after validation. Its choices share the prompt."""

    id: str
    prompt: str  # as the model sees it, the chat template applied
    sampling: Sampling = field(default_factory=Sampling)
    n: int = 1
    echo: bool = False
    answer: str | None = None  # constrained decoding: the text each choice must give


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token with its bytes and log-probability, and the alternatives, best first."""

    token: str
    raw: bytes
    logprob: float
    top: tuple[tuple[str, bytes, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Delta:
    """Text of one choice that became certain in this step. Never empty unless it finishes.

    `tokens` counts tokens generated for this choice since its last Delta (the invisible ones too).
    """

    work: str
    choice: int
    text: str
    tokens: int
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The engine gave a request up; nothing more comes for it."""

    work: str
    message: str
    kind: str = "server_error"


@dataclass(frozen=True, slots=True)
class Done:
    """Every choice finished and all the request held is released. Nothing more comes for it."""

    work: str
    prompt_tokens: int
    completion_tokens: int


Event = Delta | Failure | Done


@dataclass(frozen=True, slots=True)
class Gauges:
    """Counters never fall; gauges are of now. Units: requests, tokens, steps."""

    steps: int = 0
    tokens: int = 0
    running: int = 0
    waiting: int = 0
    submitted: int = 0
    finished: int = 0
    aborted: int = 0
    extra: Mapping[str, float] = field(default_factory=dict)


class Engine(Protocol):
    """The four verbs. None blocks."""

    def submit(self, work: Work) -> None:
        """Queue `work`. Raises ValueError when its id is in use."""

    def cancel(self, work: str) -> bool:
        """Forget a request; its slot is free for the next step. Idempotent: False if unknown."""

    def step(self) -> Sequence[Event]:
        """Admit, advance every running choice by one token, return the events in order."""

    def count_tokens(self, text: str) -> int:
        """Tokens of a text, as usage and the context limit count them."""

    @property
    def gauges(self) -> Gauges:
        """What happened so far and what is held now."""
