"""The shape of the legacy completions API."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from itertools import accumulate

from reference_server.engine.interface import TokenLogprob
from reference_server.seams import Document, Part
from reference_server.wire.request import Ask
from reference_server.wire.shape import Gathered, Label, Piece, Shape, Shaped


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
        choice = self._choice(index, text, logprobs, finish)
        self._say(choice)
        if self.ask.return_token_ids and index not in self._shown:
            self._shown.add(index)
            choice["prompt_token_ids"] = self._prompt_ids(index)
        return self._chunk(choice)

    def _prompt_ids(self, index: int) -> list[int] | None:
        prompt = index // self.ask.n
        return self._ids(self.prompt_ids[prompt]) if self.prompt_ids else None

    def choice(self, index: int, gathered: Gathered) -> Document:
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
