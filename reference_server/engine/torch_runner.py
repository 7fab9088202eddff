"""A model on the engine's side of the door: packed forward passes over the paged cache.

A prompt's chunk is one pass over that sequence alone; a decode step is one pass over the newest
token of every row. Rows are packed into `[1, T]` with the positions they have in their sequences.

Batch invariance: a matrix product gives a row other last bits when other rows are with it, because
the library chooses its loops by the number of rows. In multiples of four it chose alike wherever
that was tried, on CPUs in float32. With `batch_invariant` rows are therefore padded to a multiple
of four and attend one after the other, those of a chunk too. The numbers of a token then depend on
its sequence alone: not on company, on where its prompt was cut, or on what the cache held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from reference_server.engine.attention import (
    TOGETHER_BYTES,
    ChunkStep,
    RowsStep,
    Step,
    TogetherStep,
)
from reference_server.engine.cache import KeyValueCache
from reference_server.engine.runner import UNSOUND, Chunk, Draw, Prefilled, Row, Token, Unsound

PADDING = 4


class Sampler(Protocol):
    """What draws tokens from logits; `sampling.Sampler` is one."""

    def open(self, slot: int, draw: Draw) -> None: ...

    def close(self, slot: int) -> None: ...

    def sample(self, logits: Any, slots: Sequence[int]) -> Sequence[Token | Unsound]: ...

    def scores(self, logits: Any, ids: Sequence[int], top: int) -> Sequence[Token | Unsound]: ...


@contextmanager
def _watched(module: Any) -> Iterator[list[Any]]:
    """What the module gave, `[1, T, size]`, each time that it was called inside."""
    seen: list[Any] = []
    hook = module.register_forward_hook(lambda module, given, out: seen.append(out[0]))
    try:
        yield seen
    finally:
        hook.remove()


class TorchRunner:
    """A `Runner` over one of transformers' causal language models, switched to our attention.

    The model and the cache are on one device. Not thread-safe: the engine's thread owns it.
    """

    def __init__(
        self,
        model: Any,
        cache: KeyValueCache,
        sampler: Sampler,
        *,
        context: int,
        batch_invariant: bool = False,
    ) -> None:
        self._model, self._cache, self._sampler = model, cache, sampler
        self._context = context
        self._invariant = batch_invariant
        self._draws: dict[int, Draw] = {}
        self._before: dict[int, Any] = {}  # slot → logits after its last chunk, where scored

    @property
    def block_size(self) -> int:
        return self._cache.block_size

    @property
    def block_count(self) -> int:
        return self._cache.blocks

    @property
    def context(self) -> int:
        return self._context

    def open(self, slot: int, draw: Draw) -> None:
        self._draws[slot] = draw
        self._sampler.open(slot, draw)

    def close(self, slot: int) -> None:
        del self._draws[slot]
        self._before.pop(slot, None)
        self._sampler.close(slot)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def prefill(self, chunk: Chunk) -> Prefilled:
        with _watched(self._model.base_model) as hidden:
            logits = self.prompt_logits(chunk)
        # The cache keeps no NaN (`KeyValueCache.write`), so later tokens would not show it.
        if not hidden[0][0, : len(chunk.tokens)].isfinite().all():
            return Prefilled(UNSOUND)
        scores = self._scores(chunk, logits) if chunk.scored else []
        if UNSOUND in scores:
            return Prefilled(UNSOUND)
        token = self._sampler.sample(logits[-1:], [chunk.slot])[0] if chunk.last else None
        return Prefilled(token, tuple(one for one in scores if not isinstance(one, Unsound)))

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def decode(self, rows: Sequence[Row]) -> Sequence[Token | Unsound]:
        return self._sampler.sample(self.row_logits(rows), [row.slot for row in rows])

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def prompt_logits(self, chunk: Chunk) -> Any:
        """float32 `[tokens, vocabulary]`: of all tokens if scored, of the last one if the prompt
        ends with it, else of none."""
        count = len(chunk.tokens)
        positions = range(chunk.start, chunk.start + count)
        step: Step
        if self._invariant:
            step = RowsStep(self._cache, [chunk.table] * count, positions)
        else:
            step = ChunkStep(self._cache, chunk.table, chunk.start, count)
        kept = count if chunk.scored else int(chunk.last)
        return self._logits(chunk.tokens, positions, step, kept)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def row_logits(self, rows: Sequence[Row]) -> Any:
        """float32 `[rows, vocabulary]`."""
        positions = [row.position for row in rows]
        tables = [row.table for row in rows]
        kind = TogetherStep if self._together(positions) else RowsStep
        step = kind(self._cache, tables, positions)
        return self._logits([row.token for row in rows], positions, step, len(rows))

    def _together(self, positions: Sequence[int]) -> bool:
        """On a GPU a call for each row leaves most of it idle; on a CPU copies are what costs."""
        if self._invariant or len(positions) == 1:
            return False
        if self._cache.device.type != "cpu":
            return True
        return max(positions) * self._cache.token_bytes <= TOGETHER_BYTES

    def _logits(
        self, tokens: Sequence[int], positions: Sequence[int], step: Step, kept: int
    ) -> Any:
        """Logits of the last `kept` tokens. Rows of padding come last and are kept by nobody."""
        count = len(tokens)
        padding = -count % PADDING if self._invariant else 0
        ids = self._packed([*tokens, *[0] * padding])
        places = self._packed([*positions, *[0] * padding])
        options = {"position_ids": places, "use_cache": False, "paged": step}
        if not kept:
            self._model.base_model(input_ids=ids, **options)
            return torch.empty(0)
        wanted = self._wanted(count, kept)
        out = self._model(input_ids=ids, logits_to_keep=wanted, **options)
        return out.logits[0, :kept].float()

    def _wanted(self, count: int, kept: int) -> Any:
        """Which rows go through the head: a matrix product like the others, so padded as well."""
        if count == kept:
            return 0  # transformers' word for all
        padding = -kept % PADDING if self._invariant else 0
        rows = [*range(count - kept, count), *[0] * padding]
        return torch.tensor(rows, device=self._cache.device)

    def _packed(self, numbers: Sequence[int]) -> Any:
        return torch.tensor([numbers], device=self._cache.device)

    def _scores(self, chunk: Chunk, logits: Any) -> list[Token | Unsound | None]:
        """Each token by the logits of the one before it, which may be in the chunk before."""
        before = self._before.pop(chunk.slot, None)
        if not chunk.last:
            self._before[chunk.slot] = logits[-1:]
        top = self._draws[chunk.slot].sampling.logprobs or 0
        if before is None:
            rest = self._sampler.scores(logits[:-1], chunk.tokens[1:], top)
            return [None, *rest]
        shifted = torch.cat([before, logits[:-1]])
        return list(self._sampler.scores(shifted, chunk.tokens, top))
