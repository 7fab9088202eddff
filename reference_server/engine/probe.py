"""Is this a model whose attention we can stand in for? Asked once, when it is loaded.

The configuration may already say no; a pass over one token shows what each layer asks for; and two
prompts, cut into chunks, scattered over blocks and decoded side by side, must give the logits
that the model gives by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from reference_server.engine.attention import NAME, Asked, ModelError, Survey
from reference_server.engine.cache import KeyValueCache, LayerShape
from reference_server.engine.runner import Chunk, Draw, Row, Token
from reference_server.engine.torch_runner import TorchRunner

_KNOWN_LAYERS = {"full_attention", "sliding_attention"}
_GROWING_ROPE = {"dynamic", "longrope"}
_LENGTHS, _CHUNK, _DECODED = (37, 22), 16, 3
# In standard deviations of the logits. A 270M model in bfloat16 differs by 0.03 from itself when
# other, equally right kernels compute it, and by six times that at single positions.
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1}


def check_config(config: Any) -> None:
    """Raises ModelError for what no packed row could do."""
    if config.is_encoder_decoder:
        raise ModelError("an encoder-decoder model; only decoders are supported")
    if strange := set(getattr(config, "layer_types", None) or ()) - _KNOWN_LAYERS:
        raise ModelError(f"layers of type {min(strange)} are not supported")
    if growing := _rope_types(config) & _GROWING_ROPE:
        # Its frequencies follow the longest sequence of the pass, here that of a neighbour.
        raise ModelError(f"rotary embeddings of type {min(growing)} are not supported")
    if getattr(config, "max_position_embeddings", None) is None:
        raise ModelError("the configuration does not say how long a context may be")


def _rope_types(config: Any) -> set[str]:
    """Of all layers. transformers has one set of parameters, or one for each type of layer."""
    parameters = getattr(config, "rope_parameters", None) or {}
    each = [parameters, *(one for one in parameters.values() if isinstance(one, dict))]
    return {str(one.get("rope_type")) for one in each}


@torch.inference_mode()  # type: ignore[untyped-decorator]
def survey(model: Any) -> list[LayerShape]:
    """Switch the model to our attention and see what its layers keep. Raises ModelError."""
    if getattr(model, "_is_stateful", False):
        raise ModelError("the model keeps a state other than keys and values")
    model.set_attn_implementation(NAME)
    seen = Survey()
    zero = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    try:
        model(input_ids=zero, position_ids=zero, use_cache=False, paged=seen)
    except TypeError as error:
        raise ModelError(f"the model does not take packed rows: {error}") from error
    if [asked.layer for asked in seen.asked] != list(range(model.config.num_hidden_layers)):
        raise ModelError("not every layer attends once through transformers' attention interface")
    _check_windows(model.config, seen.asked)
    return seen.shapes


def _check_windows(config: Any, asked: list[Asked]) -> None:
    """The windows that arrive are those that are configured: no probe is long enough to tell."""
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        kinds = ["sliding_attention"] * len(asked)
    for layer, kind in zip(asked, kinds, strict=True):
        window = config.sliding_window if kind == "sliding_attention" and _slides(config) else None
        if layer.window != window:
            raise ModelError(f"layer {layer.layer} has a window that it does not hand on")


def _slides(config: Any) -> bool:
    return getattr(config, "sliding_window", None) is not None


class _Nobody:
    """A sampler for passes whose logits are all that is wanted."""

    def open(self, slot: int, draw: Draw) -> None: ...

    def close(self, slot: int) -> None: ...

    def sample(self, logits: Any, slots: Any) -> list[Token]:
        return []

    def scores(self, logits: Any, ids: Any, top: int) -> list[Token]:
        return []


def probe(model: Any, layers: list[LayerShape], *, batch_invariant: bool = False) -> int:
    """Compare packed logits with the model's own. Returns their width. Raises ModelError."""
    context = model.config.max_position_embeddings
    vocabulary = model.get_input_embeddings().weight.shape[0]
    prompts = [
        [(7 * place * place + 3 * place + length) % vocabulary for place in range(length)]
        for length in (min(length, context) for length in _LENGTHS)
    ]
    own = _own_logits(model, prompts)
    cache = KeyValueCache(layers, blocks=32, block_size=4, dtype=model.dtype, device=model.device)
    runner = TorchRunner(model, cache, _Nobody(), context=context, batch_invariant=batch_invariant)
    packed = _packed_logits(runner, prompts)
    worst = max(_distance(*pair) for pair in zip(packed, own, strict=True))
    if not worst <= _TOLERANCE[model.dtype]:  # a NaN is not
        off = f"off by {worst:.1g} standard deviations"
        raise ModelError(f"packed rows give other logits than the model by itself, {off}")
    return int(own[0].shape[-1])


@torch.inference_mode()  # type: ignore[untyped-decorator]
def _own_logits(model: Any, prompts: list[list[int]]) -> list[Any]:
    """By transformers' eager attention, each prompt alone and in one pass."""
    model.set_attn_implementation("eager")
    try:
        ids = [torch.tensor([prompt], device=model.device) for prompt in prompts]
        return [model(input_ids=one, use_cache=False).logits[0].float() for one in ids]
    finally:
        model.set_attn_implementation(NAME)


def _packed_logits(runner: TorchRunner, prompts: list[list[int]]) -> list[Any]:
    """Chunks of one prompt and then of the other, their last tokens as rows of common steps."""
    tables = [range(index, 32, len(prompts))[::-1] for index in range(len(prompts))]
    logits = [
        list(_chunk_logits(runner, prompt[:-_DECODED], table))
        for prompt, table in zip(prompts, tables, strict=True)
    ]
    for back in range(_DECODED, 0, -1):
        rows = [
            Row(index, prompt[-back], len(prompt) - back, tables[index])
            for index, prompt in enumerate(prompts)
        ]
        for kept, row in zip(logits, runner.row_logits(rows), strict=True):
            kept.append(row[None])
    return [torch.cat(parts) for parts in logits]


def _chunk_logits(runner: TorchRunner, tokens: list[int], table: range) -> Iterator[Any]:
    for start in range(0, len(tokens), _CHUNK):
        part = tuple(tokens[start : start + _CHUNK])
        yield runner.prompt_logits(Chunk(0, start, part, table, last=False, scored=True))


def _distance(packed: Any, own: Any) -> float:
    """Root mean square of the difference at each position, averaged, in standard deviations."""
    off = (packed - own).square().mean(dim=-1).sqrt()
    return float(off.mean() / own.std())
