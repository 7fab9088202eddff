"""The shape of the chat API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from reference_server.engine.interface import Done, FinishReason, TokenLogprob
from reference_server.seams import Document, Part
from reference_server.wire.request import Ask, Call
from reference_server.wire.shape import Gathered, Label, Piece, Shape, Shaped


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

    def choice(self, index: int, gathered: Gathered) -> Document:
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
        self._say(choice)
        return self._chunk(choice)

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
