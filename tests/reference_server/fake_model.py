"""A model without weights that finds out whether its cache was kept right, and its vocabulary.

What `FakeRunner` says is a function of the prompt (the scripted engine's words), but it reads the
prompt and its own words from the cache, as a real model does, and raises `Broken` where a cell does
not hold what this sequence put there: a block given to two, reused too early or shared too soon.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from reference_server.engine import script
from reference_server.engine.interface import Message, TokenLogprob
from reference_server.engine.runner import UNSOUND, Chunk, Draw, Prefilled, Row, Token, Unsound
from reference_server.engine.text import TextPath

BEGIN, END = 256, 257
# Beyond single bytes: whole words, halves of characters, and pieces that cross characters.
_PIECES = (
    *(b" the", b" about", b"Tell", b"ou", b"er", b", ", b"\n\n"),
    *(b"\xf0\x9f", b"\xab\xa0.", b"\xe6\xbc", b"\xa2\xe5", b"\xad\x97 ", b"\xe0\xb8", b"a\xcc"),
)
_RAW = (*(bytes([byte]) for byte in range(256)), b"", b"", *_PIECES)
_IDS = {raw: number for number, raw in enumerate(_RAW) if raw}
_LONGEST = max(map(len, _IDS))


class Broken(BaseException):
    """The engine broke its word to the runner. No Exception: an engine must not swallow it."""


def demand(holds: object, *what: object) -> None:
    if not holds:
        raise Broken(*what)


@lru_cache(maxsize=1024)
def _cut(text: str) -> tuple[int, ...]:
    raw, out, place = text.encode(), list[int](), 0
    while place < len(raw):
        sizes = range(_LONGEST, 0, -1)
        piece = next(p for size in sizes if (p := raw[place : place + size]) in _IDS)
        out.append(_IDS[piece])
        place += len(piece)
    return tuple(out)


class FakeVocabulary:
    """Bytes and a few longer pieces; the longest piece that fits comes first."""

    size = len(_RAW)
    longest = _LONGEST
    ends = frozenset({END})

    def encode(self, prompt: str) -> tuple[int, ...]:
        return (BEGIN, *self.encode_answer(prompt))

    def encode_answer(self, text: str) -> tuple[int, ...]:
        return _cut(text)

    def raw(self, token: int) -> bytes:
        return _RAW[token] if token < self.size else b""

    def path(self, stops: Sequence[str], aligned: bool, whole: bool = False) -> TextPath:
        return TextPath(stops, aligned)

    def spell(self, path: TextPath, token: int, entry: TokenLogprob | None = None) -> None:
        path.feed(self.raw(token), entry)

    def chat_prompt(self, messages: Sequence[Message]) -> str:
        return "".join(f"<|{m.role}|>{m.content}<|end|>" for m in messages) + "<|assistant|>"


VOCABULARY = FakeVocabulary()


@lru_cache(maxsize=1024)
def words(draw: Draw) -> tuple[int, ...]:
    """All that the model would say."""
    if draw.forced is not None:
        return draw.forced
    prompt = b"".join(map(VOCABULARY.raw, draw.prompt)).decode(errors="replace")
    drawn = f"{draw.seed}\0{draw.choice}" if draw.sampling.temperature else "greedy"
    return VOCABULARY.encode_answer(script.answer(prompt, random.Random(f"{drawn}\0{prompt}")))


# A cell of the cache holds its token and, as keys and values do, all that stood before it.
Cell = tuple[int, int]


def chained(before: Cell | None, token: int) -> Cell:
    return token, hash((before, token))


@dataclass(slots=True)
class _Slot:
    draw: Draw
    words: tuple[int, ...]
    cells: list[Cell] = field(default_factory=list)  # what it must find in the cache
    is_over: bool = False  # it ended; where that is ignored it goes on

    def extend(self, tokens: Iterable[int]) -> list[Cell]:
        for token in tokens:
            self.cells.append(chained(self.cells[-1] if self.cells else None, token))
        return self.cells


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass: the slots in it, and the positions computed for the first of them."""

    slots: tuple[int, ...]
    start: int
    stop: int
    prefill: bool


class FakeRunner:
    """`fault(pass)` may raise what a broken machine raises, after half of the pass was written.

    `unsound(draw, said)`: whether the logits after so many words of that choice are no numbers.
    """

    def __init__(self, block_size: int = 4, block_count: int = 512, context: int = 1024) -> None:
        self.block_size, self.block_count, self.context = block_size, block_count, context
        self.passes: list[Pass] = []
        self.draws: list[Draw] = []
        self.drawn = 0  # tokens
        self.fault: Callable[[Pass], None] = lambda _: None
        self.unsound: Callable[[Draw, int], bool] = lambda draw, said: False
        self.refuses = False  # raises where a choice takes a slot
        self.slots: dict[int, _Slot] = {}
        empty: list[Cell | None] = [None] * block_size
        self._cache = [list(empty) for _ in range(block_count)]

    def open(self, slot: int, draw: Draw) -> None:
        demand(slot not in self.slots, "slot", slot, "is taken twice")
        if self.refuses:
            raise ValueError("no such bias")
        self.draws.append(draw)
        self.slots[slot] = _Slot(draw, words(draw))

    def close(self, slot: int) -> None:
        demand(slot in self.slots, "slot", slot, "is closed twice")
        del self.slots[slot]

    def prefill(self, chunk: Chunk) -> Prefilled:
        slot, stop = self.slots[chunk.slot], chunk.start + len(chunk.tokens)
        prompt = slot.draw.prompt
        demand(chunk.tokens and chunk.tokens == prompt[chunk.start : stop], chunk, "wrong tokens")
        demand(not chunk.last or stop == len(prompt), chunk, "is not the last")
        if not slot.cells:  # found in the cache by others' work
            slot.extend(prompt[: chunk.start])
        demand(len(slot.cells) == chunk.start, chunk, "leaves a gap")
        self._pass(Pass((chunk.slot,), chunk.start, stop, True), [(chunk.table, chunk.tokens)])
        scores = tuple(self._scores(slot, chunk)) if chunk.scored else ()
        return Prefilled(self._next(slot, chunk.table) if chunk.last else None, scores)

    def decode(self, rows: Sequence[Row]) -> Sequence[Token | Unsound]:
        names = tuple(row.slot for row in rows)
        demand(rows and len(set(names)) == len(names), names, "in one pass")
        for row in rows:
            cells = self.slots[row.slot].cells
            demand(row.position == len(cells) < self.context, row, "is not the next position")
        first = rows[0].position
        work = [(row.table, (row.token,)) for row in rows]
        self._pass(Pass(names, first, first + 1, False), work)
        return [self._next(self.slots[row.slot], row.table) for row in rows]

    def _pass(self, done: Pass, work: Sequence[tuple[Sequence[int], tuple[int, ...]]]) -> None:
        self.passes.append(done)
        for place, (number, (table, tokens)) in enumerate(zip(done.slots, work, strict=True)):
            if 2 * place >= len(work) - 1:
                self.fault(done)
            slot = self.slots[number]
            self._check(slot, table)
            start = len(slot.cells)
            self._write(table, start, slot.extend(tokens)[start:])

    def _check(self, slot: _Slot, table: Sequence[int]) -> None:
        """Everything this sequence wrote, or was told to find, is there."""
        size = self.block_size
        for place in range(0, len(slot.cells), size):
            wanted, block = slot.cells[place : place + size], table[place // size]
            found = self._cache[block][: len(wanted)]
            demand(found == wanted, "lost from position", place, "in block", block, found, wanted)

    def _write(self, table: Sequence[int], start: int, cells: Sequence[Cell]) -> None:
        demand(start + len(cells) <= len(table) * self.block_size, "no block for it:", len(table))
        for position, cell in enumerate(cells, start):
            block = table[position // self.block_size]
            self._cache[block][position % self.block_size] = cell

    def _next(self, slot: _Slot, table: Sequence[int]) -> Token | Unsound:
        """Read everything back, and go on from there."""
        self._check(slot, table)
        said = len(slot.cells) - len(slot.draw.prompt)
        if self.unsound(slot.draw, said):
            return UNSOUND
        self.drawn += 1
        sampling = slot.draw.sampling
        may_end = said >= sampling.min_tokens and not (sampling.ignore_eos and slot.is_over)
        after = END if may_end else ord("x")
        chosen = slot.words[said] if said < len(slot.words) else after
        slot.is_over |= chosen == END
        return self._scored(chosen, len(slot.cells), sampling.logprobs)

    def _scores(self, slot: _Slot, chunk: Chunk) -> Iterable[Token | None]:
        for position, token in enumerate(chunk.tokens, chunk.start):
            yield self._scored(token, position, slot.draw.sampling.logprobs) if position else None

    def _scored(self, token: int, position: int, wanted: int | None) -> Token:
        if wanted is None:
            return Token(token)
        score = -((token * 31 + position) % 97) / 97
        others = [(token, score), *(((token + n) % 256, score - n) for n in range(1, wanted))]
        return Token(token, score, tuple(others[:wanted]))
