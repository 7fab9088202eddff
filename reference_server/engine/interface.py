"""What an engine is: an inbox of verbs, `step`, and the events a step gives.

An engine owns no thread, no clock and no socket. Whoever drives it calls `step()`; each call
applies what arrived, admits, and gives every running choice one token. The verbs may be called from
any thread and take effect at the beginning of the next step. Every engine is held to this module
by `tests/reference_server/check_engine.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    """What decides the tokens of one choice. Defaults are the API's: they change nothing."""

    max_tokens: int | None = None  # None: until the model ends or the context is full
    temperature: float = 1.0  # 0: the likeliest token, no draw
    seed: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None  # None: off; k >= 0: the chosen token and k alternatives
    top_p: float = 1.0
    top_k: int | None = None
    min_p: float = 0.0
    repetition_penalty: float = 1.0  # of tokens in the prompt or the answer, as transformers has it
    presence_penalty: float = 0.0  # of tokens in the answer, as the API has it
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token id, added to its logit)
    min_tokens: int = 0  # no end and no stop before that many
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat, its parts joined; `role` is one of the API's."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Work:
    """One accepted request, after validation. Its choices share the prompt."""

    id: str
    prompt: str  # as the model sees it, the chat template applied
    sampling: Sampling = field(default_factory=Sampling)
    n: int = 1
    echo: bool = False
    answer: str | None = None  # constrained decoding: the text each choice must give
    prompt_ids: tuple[int, ...] | None = None  # the prompt's, where they are known already


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token with its bytes and log-probability, and the alternatives, best first.

    `logprob` is None for the first token of an echoed prompt: nothing stands before it.
    """

    token: str
    raw: bytes
    logprob: float | None
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
    token_ids: tuple[int, ...] = ()  # those tokens, where the engine has ids


@dataclass(frozen=True, slots=True)
class Started:
    """The request's first choice got a seat. `prompt_ids`: its prompt, where there are ids."""

    work: str
    prompt_ids: tuple[int, ...] = ()


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
    cached_tokens: int = 0  # of the prompt's, found in the cache


Event = Started | Delta | Failure | Done


@dataclass(frozen=True, slots=True)
class Gauges:
    """As of the last step. Counters never fall; the others are of now."""

    steps: int = 0  # steps that advanced somebody
    tokens: int = 0  # tokens generated
    prompt_tokens: int = 0  # tokens of prompts computed or found in the cache
    running: int = 0  # requests with a seat, the paused ones too
    waiting: int = 0
    paused: int = 0
    submitted: int = 0
    finished: int = 0
    aborted: int = 0
    failed: int = 0  # requests that got a Failure
    late: int = 0  # verbs for a request that had ended already
    owed: int = 0  # tokens that running and waiting requests may still generate
    free_blocks: int | None = None
    total_blocks: int | None = None
    extra: Mapping[str, float] = field(default_factory=dict)


class Engine(Protocol):
    """The verbs put into an inbox and return at once; only `step` works."""

    def submit(self, work: Work) -> None:
        """Queue `work`. Ids must not be in use: the step that finds one so raises ValueError."""

    def cancel(self, work: str) -> None:
        """Forget a request: the next step gives its seat and blocks away. Idempotent.

        What a step gives after `cancel` was applied holds nothing for it. One for a request that
        ended, or that nobody knows, is counted in `gauges.late`.
        """

    def pause(self, work: str) -> None:
        """Keep what the request holds and do not advance it. Idempotent."""

    def resume(self, work: str) -> None:
        """The end of a pause. Idempotent."""

    def step(self) -> Iterator[Event]:
        """Apply the inbox, admit, advance every running choice by one token.

        A generator: events come as soon as they are certain, so a first token leaves when its own
        prompt is done. It must be exhausted before the next step.
        """

    @property
    def idle(self) -> bool:
        """The next step would do nothing: an empty inbox, and nobody runs but the paused."""

    @property
    def context(self) -> int:
        """The most tokens that a prompt and its answer may have together. Any thread."""

    @property
    def longest(self) -> int | None:
        """The most bytes of a prompt that one token stands for; None: nothing bounds them."""

    @property
    def vocabulary(self) -> int | None:
        """How many token ids there are, from 0 on; None where tokens have no ids."""

    def count_tokens(self, text: str) -> int:
        """Tokens of a prompt, as usage and the context limit count them. Any thread."""

    def token_ids(self, text: str) -> tuple[int, ...] | None:
        """The ids of a prompt's tokens; None where tokens have no ids. Any thread."""

    def text_of(self, ids: Sequence[int]) -> str | None:
        """What the ids stand for, bytes that are no text as U+FFFD; None without ids."""

    def chat_prompt(self, messages: Sequence[Message]) -> str:
        """The prompt of a chat, up to where the assistant speaks. Any thread. Raises ValueError."""

    @property
    def gauges(self) -> Gauges:
        """What happened so far and what is held, as of the end of the last step. Any thread."""
