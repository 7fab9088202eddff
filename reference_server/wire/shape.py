"""What the OpenAI shapes of both APIs share: chunks of a stream, documents of a plain answer.

Pure: engine events in, dictionaries out. Both dialects have the same three verbs: `opening` (the
chunks before the first token), `delta`, and `document`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from reference_server.engine.interface import Delta, Done, FinishReason, TokenLogprob
from reference_server.seams import Document, Part
from reference_server.wire.request import Ask

Shaped = tuple[Part, Document]


@dataclass(frozen=True, slots=True)
class Label:
    """What every chunk of one answer repeats. `created` is in Unix seconds."""

    id: str
    created: int
    model: str


@dataclass(frozen=True, slots=True)
class Piece:
    """One Delta on its way out: the choice's number in the whole answer, text and the rest."""

    index: int
    text: str
    logprobs: tuple[TokenLogprob, ...]
    finish: FinishReason | None
    token_ids: tuple[int, ...] = ()


@dataclass(slots=True)
class Gathered:
    """One choice of a plain answer."""

    text: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: FinishReason | None = None
    token_ids: list[int] = field(default_factory=list)


def usage(done: Sequence[Done]) -> Document:
    prompt = sum(one.prompt_tokens for one in done)
    completion = sum(one.completion_tokens for one in done)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(one.cached_tokens for one in done)},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


class Shape:
    """What both dialects share."""

    object: str
    chunk_object: str

    def __init__(self, ask: Ask, label: Label) -> None:
        self.ask = ask
        self.label = label
        self.prompt_ids: Sequence[tuple[int, ...]] = ()  # of each prompt, where there are ids
        self._unsaid: dict[int, tuple[int, ...]] = {}  # choice → ids not in any chunk yet

    def opening(self) -> Iterator[Shaped]:
        return iter(())

    def delta(self, piece: Piece) -> Iterator[Shaped]:
        """The chunks of one piece; a finish gets a chunk of its own."""
        raise NotImplementedError

    def choice(self, index: int, gathered: Gathered) -> Document:
        raise NotImplementedError

    def piece(self, work: int, delta: Delta) -> Piece:
        """`work` is the prompt's number: choices are counted prompt by prompt."""
        index = work * self.ask.n + delta.choice
        return Piece(index, delta.text, delta.logprobs, delta.finish, delta.token_ids)

    def usage_chunk(self, done: Sequence[Done]) -> Document:
        return {**self._head(self.chunk_object), "choices": [], "usage": usage(done)}

    def document(self, pieces: Sequence[Piece], done: Sequence[Done]) -> Document:
        """The plain answer made of the same pieces."""
        gathered = [Gathered() for _ in range(self.ask.choices)]
        for piece in pieces:
            one = gathered[piece.index]
            one.text.append(piece.text)
            one.logprobs += piece.logprobs
            one.token_ids += piece.token_ids
            one.finish = piece.finish or one.finish
        choices = [self.choice(index, one) for index, one in enumerate(gathered)]
        return {**self._head(self.object), "choices": choices, "usage": usage(done)}

    def _ids(self, ids: Sequence[int]) -> list[int] | None:
        """As the answer shows them: null where the model has none."""
        return list(ids) if any(self.prompt_ids) else None

    def _keep(self, piece: Piece) -> None:
        """Not every piece gives a chunk: its ids come with the next one of its choice."""
        if self.ask.return_token_ids:
            before = self._unsaid.get(piece.index, ())
            self._unsaid[piece.index] = before + piece.token_ids

    def _say(self, choice: Document) -> None:
        """Adds what `return_token_ids` asks for to a choice of a chunk, as vLLM has it."""
        if self.ask.return_token_ids:
            choice["token_ids"] = self._ids(self._unsaid.pop(choice["index"], ()))

    def _head(self, object_: str) -> Document:
        return {
            "id": self.label.id,
            "object": object_,
            "created": self.label.created,
            "model": self.label.model,
        }

    def _chunk(self, choice: Document) -> Document:
        chunk = self._head(self.chunk_object)
        chunk["choices"] = [choice]
        if self.ask.include_usage:
            # "All other chunks will also include a `usage` field, but with a null value."
            chunk["usage"] = None
        return chunk
