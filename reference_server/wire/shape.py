"""The OpenAI shapes of both APIs: chunks of a stream and documents of a plain answer.

Pure: engine events in, dictionaries out. Both dialects have the same three verbs: `opening` (the
chunks before the first token), `delta`, and `document`.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from reference_server.engine.interface import Delta, Done, FinishReason, TokenLogprob
from reference_server.seams import Document, Part
from reference_server.wire.request import Ask, Call

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
class _Gathered:
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

    def choice(self, index: int, gathered: _Gathered) -> Document:
        raise NotImplementedError

    def piece(self, work: int, delta: Delta) -> Piece:
        """`work` is the prompt's number: choices are counted prompt by prompt."""
        index = work * self.ask.n + delta.choice
        return Piece(index, delta.text, delta.logprobs, delta.finish, delta.token_ids)

    def usage_chunk(self, done: Sequence[Done]) -> Document:
        return {**self._head(self.chunk_object), "choices": [], "usage": usage(done)}

    def document(self, pieces: Sequence[Piece], done: Sequence[Done]) -> Document:
        """The plain answer made of the same pieces."""
        gathered = [_Gathered() for _ in range(self.ask.choices)]
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

    def _said(self, index: int) -> Document:
        """What `return_token_ids` adds to a choice of a chunk, as vLLM has it."""
        if not self.ask.return_token_ids:
            return {}
        return {"token_ids": self._ids(self._unsaid.pop(index, ()))}

    def _head(self, object_: str) -> Document:
        return {
            "id": self.label.id,
            "object": object_,
            "created": self.label.created,
            "model": self.label.model,
        }

    def _chunk(self, choice: Document) -> Document:
        chunk = {**self._head(self.chunk_object), "choices": [choice]}
        # "All other chunks will also include a `usage` field, but with a null value."
        return {**chunk, "usage": None} if self.ask.include_usage else chunk


class ChatShape(Shape):
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, ask: Ask, label: Label) -> None:
        super().__init__(ask, label)
        self._written = [0] * ask.choices  # characters of call arguments so far, per choice
        self._named: set[tuple[int, int]] = set()  # calls whose first fragment was sent

    def opening(self) -> Iterator[Shaped]:
        """Every choice's role, in order, before any text."""
        content = None if self.ask.calls else ""
        for index in range(self.ask.choices):
            chunk = self._delta(index, {"role": "assistant", "content": content})
            if self.ask.return_token_ids and index == 0:
                chunk["prompt_token_ids"] = self._prompt_ids()
            yield Part.ROLE, chunk

    def document(self, pieces: Sequence[Piece], done: Sequence[Done]) -> Document:
        whole = super().document(pieces, done)
        if self.ask.return_token_ids:
            whole["prompt_token_ids"] = self._prompt_ids()
        return whole

    def _prompt_ids(self) -> list[int] | None:
        return self._ids(self.prompt_ids[0] if self.prompt_ids else ())

    def delta(self, piece: Piece) -> Iterator[Shaped]:
        self._keep(piece)
        if piece.text and self.ask.calls:
            for fragment in self._fragments(piece):
                yield Part.TOOL, self._delta(piece.index, {"tool_calls": [fragment]})
        elif piece.text:
            entries = self._logprobs(piece.logprobs)
            yield Part.CONTENT, self._delta(piece.index, {"content": piece.text}, entries)
        if piece.finish:
            finish = self._finish(piece.finish)
            yield Part.FINISH, self._delta(piece.index, {}, finish=finish)

    def choice(self, index: int, gathered: _Gathered) -> Document:
        text = "".join(gathered.text)
        message: Document = {"role": "assistant", "content": text, "refusal": None}
        if self.ask.calls:
            message["content"] = None
            if calls := self._whole_calls(index, text):
                message["tool_calls"] = calls
        finish = None if gathered.finish is None else self._finish(gathered.finish)
        entries = None if self.ask.calls else self._logprobs(gathered.logprobs)
        choice = {"index": index, "message": message, "logprobs": entries, "finish_reason": finish}
        if self.ask.return_token_ids:
            choice["token_ids"] = self._ids(gathered.token_ids)
        return choice

    def _delta(
        self, index: int, delta: Document, logprobs: Document | None = None, finish: Any = None
    ) -> Document:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return self._chunk({**choice, **self._said(index)})

    def _finish(self, reason: FinishReason) -> str:
        if self.ask.calls and reason is FinishReason.STOP:
            return FinishReason.TOOL_CALLS.value
        return reason.value

    def _fragments(self, piece: Piece) -> Iterator[Document]:
        """The piece cut where one call ends and the next one begins. A name comes whole."""
        at = self._written[piece.index]
        self._written[piece.index] = end = at + len(piece.text)
        for number, (call, begin, stop) in enumerate(self._spans()):
            if end >= begin and (piece.index, number) not in self._named:
                self._named.add((piece.index, number))
                yield {"index": number, **self._call(piece.index, number, call, "")}
            text = piece.text[max(begin - at, 0) : max(min(stop, end) - at, 0)]
            if text:
                yield {"index": number, "function": {"arguments": text}}

    def _spans(self) -> Iterator[tuple[Call, int, int]]:
        """Where each call's arguments stand in the engine's text; its name stands before them."""
        end = 0
        for call in self.ask.calls:
            begin = end + len(call.written) - len(call.arguments)
            end += len(call.written)
            yield call, begin, end

    def _call(self, index: int, number: int, call: Call, arguments: str) -> Document:
        name = f"call_{self.label.id[-12:]}_{index}_{number}"
        function = {"name": call.name, "arguments": arguments}
        return {"id": name, "type": "function", "function": function}

    def _whole_calls(self, index: int, text: str) -> list[Document]:
        return [
            self._call(index, number, call, text[begin:end])
            for number, (call, begin, end) in enumerate(self._spans())
            if len(text) >= begin
        ]

    def _logprobs(self, entries: Sequence[TokenLogprob]) -> Document | None:
        if self.ask.sampling.logprobs is None:
            return None
        return {"content": [_entry(entry) for entry in entries], "refusal": None}


def _entry(entry: TokenLogprob) -> Document:
    top = [
        {"token": token, "logprob": value, "bytes": list(raw)} for token, raw, value in entry.top
    ]
    return {
        "token": entry.token,
        "logprob": entry.logprob,
        "bytes": list(entry.raw),
        "top_logprobs": top,
    }


class CompletionShape(Shape):
    object = chunk_object = "text_completion"

    def __init__(self, ask: Ask, label: Label) -> None:
        super().__init__(ask, label)
        self._offset = [0] * ask.choices  # characters of text sent so far, per choice
        self._shown: set[int] = set()  # choices whose prompt ids were sent

    def opening(self) -> Iterator[Shaped]:
        """With several choices an empty chunk for each, in order: clients number by appearance.

        Without it a choice whose first token ends inside a character would appear after the next.
        """
        if self.ask.choices > 1:
            for index in range(self.ask.choices):
                yield Part.ROLE, self._piece(index, "", None, None)

    def delta(self, piece: Piece) -> Iterator[Shaped]:
        self._keep(piece)
        if piece.text:
            entries = self._logprobs(piece.logprobs, self._offset[piece.index])
            self._offset[piece.index] += len(piece.text)
            yield Part.CONTENT, self._piece(piece.index, piece.text, entries, None)
        if piece.finish:
            yield Part.FINISH, self._piece(piece.index, "", None, piece.finish.value)

    def _piece(
        self, index: int, text: str, logprobs: Document | None, finish: str | None
    ) -> Document:
        """A chunk. The first one of a choice has its prompt's ids, if ids are wanted."""
        choice = {**self._choice(index, text, logprobs, finish), **self._said(index)}
        if self.ask.return_token_ids and index not in self._shown:
            self._shown.add(index)
            choice["prompt_token_ids"] = self._prompt_ids(index)
        return self._chunk(choice)

    def _prompt_ids(self, index: int) -> list[int] | None:
        prompt = index // self.ask.n
        return self._ids(self.prompt_ids[prompt]) if self.prompt_ids else None

    def choice(self, index: int, gathered: _Gathered) -> Document:
        finish = None if gathered.finish is None else gathered.finish.value
        entries = self._logprobs(gathered.logprobs, 0)
        choice = self._choice(index, "".join(gathered.text), entries, finish)
        if self.ask.return_token_ids:
            choice["token_ids"] = self._ids(gathered.token_ids)
            choice["prompt_token_ids"] = self._prompt_ids(index)
        return choice

    def _choice(
        self, index: int, text: str, logprobs: Document | None, finish: str | None
    ) -> Document:
        return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish}

    def _logprobs(self, entries: Sequence[TokenLogprob], offset: int) -> Document | None:
        if self.ask.sampling.logprobs is None:
            return None
        spelled = _spelled(entries)
        shown = zip(spelled, entries, strict=True)
        tops = [dict(_alternatives(text, entry)) for text, entry in shown]
        return {
            "tokens": spelled,
            "token_logprobs": [entry.logprob for entry in entries],
            "top_logprobs": tops if self.ask.sampling.logprobs else None,
            "text_offset": [
                offset + length for length in accumulate(map(len, spelled[:-1]), initial=0)
            ][: len(entries)],
        }


def _spelled(entries: Sequence[TokenLogprob]) -> list[str]:
    """What each token adds to the text: a character belongs to the token that completes it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return [decoder.decode(entry.raw) for entry in entries]


def _alternatives(text: str, entry: TokenLogprob) -> Iterator[tuple[str, float]]:
    """The alternatives by their text; the chosen token as `tokens` spells it."""
    for token, raw, value in entry.top:
        yield (text if raw == entry.raw else token), value


SHAPES: dict[str, type[Shape]] = {"chat": ChatShape, "completions": CompletionShape}
