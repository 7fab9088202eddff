"""transformers' own modules, our attention: one function, registered under a name of ours.

The model computes over packed rows: `input_ids` is `[1, T]`, and the T tokens may belong to as many
sequences. Every module is indifferent to that but attention, which is handed to the step that the
runner passes to the model as the keyword `paged`. No mask is passed: for an attention of
another name than its own, transformers makes none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from reference_server.engine.cache import KeyValueCache, LayerShape, Span

NAME = "streamproof_paged"
# Queries that attend in one go: what bounds the mask of a long prompt, and skips keys behind it.
QUERIES = 256
# Keys of the longest row in one layer, up to which copying all rows together for one call is faster
# on a CPU than a call for each. Measured with 4 to 32 rows and 2 to 12 heads of keys.
TOGETHER_BYTES = 64 * 1024


class ModelError(Exception):
    """A model that cannot be served here; the message is one line."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a layer asks of its attention."""

    layer: int
    scaling: float | None
    window: int | None  # positions that a token sees, itself included; None: all before it
    softcap: float | None


class Step(Protocol):
    """One forward pass."""

    def attend(self, asked: Asked, query: Any, key: Any, value: Any) -> Any:
        """`query` is `[1, heads, T, head_dim]`, `key` and `value` have `kv_heads`.

        Returns the shape of `query`.
        """


def paged_attention(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    *,
    paged: Step | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **rest: Any,
) -> tuple[Any, None]:
    """What transformers calls in every attention layer. Returns `[1, T, heads, head_dim]`."""
    if paged is None:
        raise ModelError("the model does not hand keywords on to its attention")
    if rest or attention_mask is not None:
        _refuse_unknown({**rest, "attention_mask": attention_mask})
    layer = getattr(module, "layer_idx", None)
    if layer is None:
        raise ModelError("the attention layers of the model are not numbered")
    asked = Asked(layer, scaling, sliding_window, softcap)
    return paged.attend(asked, query, key, value).transpose(1, 2), None


# Keyword → the values that change nothing here; None: any. What is not listed may change numbers.
_HARMLESS: Mapping[str, tuple[object, ...] | None] = {
    "position_ids": None,  # they had their say before: in the rotation, or added to the input
    "cache_position": None,
    "dropout": (0,),
    "is_causal": (True,),
    "use_cache": (False,),
    "output_attentions": (False,),
}


def _refuse_unknown(keywords: Mapping[str, Any]) -> None:
    for name, given in keywords.items():
        values = _HARMLESS.get(name, ())
        if given is not None and values is not None and not (values and given in values):
            raise ModelError(f"the model's attention needs {name!r}, which is not supported")


def attend(asked: Asked, query: Any, keys: Any, values: Any, mask: Any = None) -> Any:
    """Attention of queries `[rows, heads, T, head_dim]` over `[rows, kv_heads, length, head_dim]`.

    `mask` is True where a query sees a key, `[rows or 1, 1, T, length]`; None: each sees them all.
    Query heads that share a key head become more queries of that head, so no key is repeated.
    """
    rows, heads, count, size = query.shape
    kv_heads = keys.shape[1]
    if kv_heads != heads:
        query = query.reshape(rows, kv_heads, -1, size)
        mask = mask if mask is None or count == 1 else mask.repeat(1, 1, heads // kv_heads, 1)
    if asked.softcap is None:
        out = torch.nn.functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, scale=asked.scaling
        )
    else:
        out = _capped(asked, query, keys, values, mask)
    return out.reshape(rows, heads, count, size)


def _capped(asked: Asked, query: Any, keys: Any, values: Any, mask: Any) -> Any:
    """Scores softly capped before the mask: `cap * tanh(score / cap)`, as in Gemma 2."""
    scaling = query.shape[-1] ** -0.5 if asked.scaling is None else asked.scaling
    scores = torch.matmul(query, keys.transpose(2, 3)) * scaling
    scores = torch.tanh(scores / asked.softcap) * asked.softcap
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    return torch.matmul(weights, values)


class Survey:
    """A pass over one token that asks what the layers are. A lone token attends to itself."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.shapes: list[LayerShape] = []

    def attend(self, asked: Asked, query: Any, key: Any, value: Any) -> Any:
        self.asked.append(asked)
        self.shapes.append(LayerShape(key.shape[1], key.shape[3]))
        return value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)


def _first_seen(position: int, window: int | None) -> int:
    return 0 if window is None else max(0, position + 1 - window)


class ChunkStep:
    """A stretch of one sequence, from position `start` on: it sees what lies before and itself."""

    def __init__(self, cache: KeyValueCache, table: Sequence[int], start: int, count: int) -> None:
        self._cache, self._table = cache, table
        self._start, self._end = start, start + count
        slots = cache.slots(table, start, start + count)
        self._slots = torch.tensor(slots, device=cache.device)
        self._parts: dict[int | None, list[tuple[Span, int, int, Any]]] = {}

    def attend(self, asked: Asked, query: Any, key: Any, value: Any) -> Any:
        self._cache.write(asked.layer, self._slots, key[0], value[0])
        out = torch.empty_like(query)
        for span, first, end, mask in self._parts_of(asked.window):
            keys, values = self._cache.read(asked.layer, span)
            out[:, :, first:end] = attend(asked, query[:, :, first:end], keys, values, mask)
        return out

    def _parts_of(self, window: int | None) -> list[tuple[Span, int, int, Any]]:
        if window not in self._parts:
            begins = range(self._start, self._end, QUERIES)
            self._parts[window] = [self._part(begin, window) for begin in begins]
        return self._parts[window]

    def _part(self, begin: int, window: int | None) -> tuple[Span, int, int, Any]:
        """The keys that the queries from `begin` on see, which queries these are, and the mask."""
        end = min(begin + QUERIES, self._end)
        first = _first_seen(begin, window)
        span = self._cache.span(self._table, first, end)
        mask = _seen(range(begin, end), range(first, end), window, self._cache.device)
        return span, begin - self._start, end - self._start, mask


def _seen(queries: range, keys: range, window: int | None, device: Any) -> Any:
    """`[1, 1, queries, keys]`: a key at the query's own position or before it, in the window.

    By positions, so that the last query sees the last key. What `is_causal=True` stands for in SDPA
    is the other diagonal: the first query would see the first key alone.
    """
    query = torch.arange(queries.start, queries.stop, device=device)[:, None]
    key = torch.arange(keys.start, keys.stop, device=device)
    mask = key <= query
    if window is not None:
        mask &= key > query - window
    return mask[None, None]


class RowsStep:
    """Rows of any sequences, one token each, that attend one after the other.

    A row's numbers are then those of its sequence alone. On a CPU it is also the fastest way for
    all but short rows: as long as blocks follow each other, no key is moved.
    """

    def __init__(
        self, cache: KeyValueCache, tables: Sequence[Sequence[int]], positions: Sequence[int]
    ) -> None:
        self._cache, self._tables, self._positions = cache, tables, positions
        self._slots = slots_of(cache, tables, positions)
        self._spans: dict[int | None, list[Span]] = {}

    def attend(self, asked: Asked, query: Any, key: Any, value: Any) -> Any:
        count = len(self._positions)
        self._cache.write(asked.layer, self._slots, key[0, :, :count], value[0, :, :count])
        spans = self._spans_of(asked.window)
        if count == query.shape[2] == 1:
            return attend(asked, query, *self._cache.read(asked.layer, spans[0]))
        out = [
            attend(asked, row, *self._cache.read(asked.layer, span))
            for row, span in zip(query.split(1, dim=2), spans, strict=False)
        ]
        if count < query.shape[2]:  # rows of padding
            out.append(torch.zeros_like(query[:, :, count:]))
        return torch.cat(out, dim=2)

    def _spans_of(self, window: int | None) -> list[Span]:
        if window not in self._spans:
            self._spans[window] = [
                self._cache.span(table, _first_seen(position, window), position + 1)
                for table, position in zip(self._tables, self._positions, strict=True)
            ]
        return self._spans[window]


def slots_of(
    cache: KeyValueCache, tables: Sequence[Sequence[int]], positions: Sequence[int]
) -> Any:
    size = cache.block_size
    pairs = zip(tables, positions, strict=True)
    slots = [table[place // size] * size + place % size for table, place in pairs]
    return torch.tensor(slots, device=cache.device)


class TogetherStep:
    """The same rows in one call: their blocks gathered to one length, the rest masked."""

    def __init__(
        self, cache: KeyValueCache, tables: Sequence[Sequence[int]], positions: Sequence[int]
    ) -> None:
        self._cache, self._tables, self._positions = cache, tables, positions
        self._slots = slots_of(cache, tables, positions)
        self._plans: dict[int | None, tuple[Any, Any]] = {}

    def attend(self, asked: Asked, query: Any, key: Any, value: Any) -> Any:
        self._cache.write(asked.layer, self._slots, key[0], value[0])
        blocks, mask = self._plan_of(asked.window)
        rows = len(self._positions)
        keys, values = (
            copy[0].unflatten(1, (rows, -1)).transpose(0, 1)
            for copy in self._cache.gather(asked.layer, blocks)
        )
        out = attend(asked, query.transpose(0, 2), keys, values, mask)
        return out.transpose(0, 2)

    def _plan_of(self, window: int | None) -> tuple[Any, Any]:
        if window not in self._plans:
            self._plans[window] = self._plan(window)
        return self._plans[window]

    def _plan(self, window: int | None) -> tuple[Any, Any]:
        """Blocks `[rows * most]` to gather, and what of them each row sees."""
        size, device = self._cache.block_size, self._cache.device
        firsts = [_first_seen(position, window) // size for position in self._positions]
        counts = [
            position // size + 1 - first
            for position, first in zip(self._positions, firsts, strict=True)
        ]
        most = max(counts)
        blocks = [
            list(table[first : first + count]) + [table[first]] * (most - count)
            for table, first, count in zip(self._tables, firsts, counts, strict=True)
        ]
        position = torch.tensor(self._positions, device=device)[:, None]
        key = torch.tensor(firsts, device=device)[:, None] * size
        key = key + torch.arange(most * size, device=device)
        mask = key <= position
        if window is not None:
            mask &= key > position - window
        return torch.tensor(blocks, device=device).flatten(), mask[:, None, None]


ALL_ATTENTION_FUNCTIONS.register(NAME, paged_attention)
