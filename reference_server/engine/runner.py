"""The two doors between the batching engine, which knows no torch, and a model.

`Runner` computes: it owns weights, the key-value cache and the sampler. `Vocabulary` spells: it
turns text to token ids and ids to bytes. Tests put fakes behind both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from reference_server.engine.interface import Message, Sampling, TokenLogprob
from reference_server.engine.text import TextPath


@dataclass(frozen=True, slots=True)
class Draw:
    """How the tokens of one choice are drawn; given once, when the choice takes its slot."""

    sampling: Sampling
    choice: int
    seed: int  # the request's, or one that the engine drew
    prompt: tuple[int, ...]
    forced: tuple[int, ...] | None = None  # constrained decoding: exactly these, then the end


@dataclass(frozen=True, slots=True)
class Token:
    """A drawn token. `logprob` and `top` (best first) only where the draw asks for them.

    The log-probabilities are of the model's own distribution: before temperature, penalties, bias
    and truncation.
    """

    id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class Unsound:
    """In a token's place: the logits are NaN or infinite, so there is nothing to draw from."""


UNSOUND = Unsound()


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of one prompt to compute.

    `table` lists the blocks of the sequence in order: position p is kept in block
    `table[p // block_size]`, at `p % block_size`. Positions before `start` are in the cache.
    """

    slot: int
    start: int
    tokens: tuple[int, ...]
    table: Sequence[int]
    last: bool  # the prompt ends with it: the first token is drawn
    scored: bool = False  # log-probabilities of the prompt's own tokens are wanted (echo)


@dataclass(frozen=True, slots=True)
class Prefilled:
    """`token` after the last chunk, else None; Unsound where it, or a score, could not be found.

    `scores`: one for each token of the chunk, that of the prompt's very first token being None;
    only where asked for.
    """

    token: Token | Unsound | None
    scores: tuple[Token | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One running choice in a decode step; `token`, its newest, is to be cached at `position`."""

    slot: int
    token: int
    position: int
    table: Sequence[int]


class Runner(Protocol):
    """Slots are numbers from 0; a slot holds the sampler's state of one choice."""

    @property
    def block_size(self) -> int:
        """Tokens in a block."""

    @property
    def block_count(self) -> int: ...

    @property
    def context(self) -> int:
        """The most tokens of prompt and answer together."""

    def open(self, slot: int, draw: Draw) -> None:
        """A choice takes the slot."""

    def close(self, slot: int) -> None:
        """It leaves. What it kept for sampling is forgotten."""

    def prefill(self, chunk: Chunk) -> Prefilled:
        """One forward pass of its own, so its numbers do not depend on who else is there."""

    def decode(self, rows: Sequence[Row]) -> Sequence[Token | Unsound]:
        """One forward pass for all: the next token of each row, in the order of the rows."""


class Vocabulary(Protocol):
    """Any thread may call any of it."""

    @property
    def size(self) -> int:
        """Every token id is below it."""

    @property
    def longest(self) -> int | None:
        """The most bytes of a text that one token stands for; None: there is no such bound."""

    @property
    def ends(self) -> frozenset[int]:
        """The token ids with which the model ends by itself."""

    def encode(self, prompt: str) -> tuple[int, ...]:
        """The ids of a prompt, with the beginning that the model expects (never twice)."""

    def encode_answer(self, text: str) -> tuple[int, ...]:
        """The ids of a text as the model would go on with it: nothing is put before it."""

    def raw(self, token: int) -> bytes:
        """The bytes a token stands for; empty for control tokens and unknown ids."""

    def path(self, stops: Sequence[str], aligned: bool, whole: bool = False) -> TextPath:
        """A fresh text path for one choice; feed it with `spell`.

        `whole`: its tokens are a prompt's, from the first one on; some tokenizers invent a space
        there. An answer goes on after a prompt.
        """

    def spell(self, path: TextPath, token: int, entry: TokenLogprob | None = None) -> None:
        """Feed one token to a path that this vocabulary made."""

    def chat_prompt(self, messages: Sequence[Message]) -> str:
        """By the model's own chat template. Raises ValueError in one line."""
