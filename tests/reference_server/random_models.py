"""Small models of each family with random weights, and a vocabulary of plain numbers.

Weights are drawn wide, so that attention is peaked, windows and caps matter, and greedy answers
vary from token to token.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import gguf
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Qwen3Config,
)

from reference_server.engine.batching import BatchingEngine
from reference_server.engine.cache import KeyValueCache
from reference_server.engine.interface import Delta, Event, Message, Sampling, TokenLogprob, Work
from reference_server.engine.probe import survey
from reference_server.engine.runner import Chunk, Draw, Row, Token
from reference_server.engine.sampling import Sampler
from reference_server.engine.text import TextPath
from reference_server.engine.torch_runner import TorchRunner

VOCABULARY = 151
CONTEXT = 128
WINDOW = 7
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}
_GPT2: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "n_positions": CONTEXT,
    "n_embd": 32,
    "n_layer": 3,
    "n_head": 4,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
}
_KINDS = ["sliding_attention", "full_attention", "sliding_attention"]
CONFIGS: dict[str, Any] = {
    "gpt2": lambda: GPT2Config(**_GPT2),
    "llama": lambda: LlamaConfig(**_SIZES),
    "qwen3": lambda: Qwen3Config(**_SIZES),
    "mistral": lambda: MistralConfig(**_SIZES, sliding_window=WINDOW),
    "gemma2": lambda: Gemma2Config(
        **_SIZES,
        sliding_window=WINDOW,
        layer_types=_KINDS,
        query_pre_attn_scalar=5,  # another scale than the head size gives
        attn_logit_softcapping=1.5,
        final_logit_softcapping=20.0,
    ),
    "gemma3": lambda: Gemma3TextConfig(
        **_SIZES, sliding_window=WINDOW, layer_types=_KINDS, query_pre_attn_scalar=5
    ),
}
FAMILIES = tuple(CONFIGS)


@lru_cache(maxsize=16)
def pair(family: str, dtype: Any = torch.float32) -> tuple[Any, Any, Any]:
    """A model as transformers runs it, the same one with our attention, and its layers' shapes."""
    torch.manual_seed(5)
    own = AutoModelForCausalLM.from_config(CONFIGS[family](), attn_implementation="eager").eval()
    with torch.no_grad():
        for name, weight in own.named_parameters():
            if weight.dim() > 1:
                weight.normal_(std=1.0 if "emb" in name or "wte" in name else 0.4)
    own.to(dtype)
    ours = copy.deepcopy(own)
    return own, ours, survey(ours)


def answer(model: Any, prompt: Sequence[int], count: int) -> list[int]:
    """What transformers' own greedy `generate` says, the prompt alone in its batch."""
    ids = torch.tensor([prompt])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False
    )
    return [int(token) for token in out[0, len(prompt) :]]


@torch.inference_mode()  # type: ignore[untyped-decorator]
def own_logits(model: Any, tokens: Sequence[int]) -> Any:
    """`[tokens, vocabulary]` in one pass, by the model itself."""
    return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].float()


class Nobody:
    """A sampler where only logits are wanted."""

    def open(self, slot: int, draw: Draw) -> None: ...

    def close(self, slot: int) -> None: ...

    def sample(self, logits: Any, slots: Sequence[int]) -> list[Token]:
        return [Token(int(logits[row].argmax())) for row in range(len(slots))]

    def scores(self, logits: Any, ids: Sequence[int], top: int) -> list[Token]:
        return []


def runner(
    family: str,
    *,
    blocks: int = 64,
    block_size: int = 4,
    batch_invariant: bool = False,
    slots: int | None = None,
    dtype: Any = torch.float32,
) -> TorchRunner:
    """With `slots` it draws; without, it gives logits alone."""
    _, ours, layers = pair(family, dtype)
    cache = KeyValueCache(layers, blocks=blocks, block_size=block_size, dtype=dtype)
    sampler = Nobody() if slots is None else Sampler(slots, VOCABULARY, frozenset(), "cpu")
    return TorchRunner(ours, cache, sampler, context=CONTEXT, batch_invariant=batch_invariant)


def prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(1000 * seed + length)
    return tuple(torch.randint(VOCABULARY, (length,), generator=generator).tolist())


def fed(runner: TorchRunner, tokens: Sequence[int], table: Sequence[int], chunk: int = 1000) -> Any:
    """Logits of all `tokens`, computed in chunks."""
    parts = []
    for start in range(0, len(tokens), chunk):
        part = tuple(tokens[start : start + chunk])
        parts.append(runner.prompt_logits(Chunk(0, start, part, table, last=False, scored=True)))
    return torch.cat(parts)


def row(tokens: Sequence[int], table: Sequence[int], slot: int = 0) -> Row:
    """The last of `tokens`, the others being in the cache."""
    return Row(slot, tokens[-1], len(tokens) - 1, table)


class Numbers:
    """The prompt "3 14 15" has these three tokens; nothing ends an answer but its limit."""

    size = VOCABULARY
    longest = None  # spaces are free
    ends: frozenset[int] = frozenset()

    def encode(self, prompt: str) -> tuple[int, ...]:
        return tuple(map(int, prompt.split()))

    def encode_answer(self, text: str) -> tuple[int, ...]:
        return self.encode(text)

    def raw(self, token: int) -> bytes:
        return f"{token} ".encode()

    def path(self, stops: Sequence[str], aligned: bool, whole: bool = False) -> TextPath:
        return TextPath(stops, aligned)

    def spell(self, path: TextPath, token: int, entry: TokenLogprob | None = None) -> None:
        path.feed(self.raw(token), entry)

    def chat_prompt(self, messages: Sequence[Message]) -> str:
        raise ValueError("numbers do not chat")


def engine(
    family: str, *, seats: int = 32, prefill_chunk: int = 0, sharing: bool = False, **more: Any
) -> BatchingEngine:
    made = runner(family, slots=seats, **more)
    return BatchingEngine(
        made, Numbers(), max_batch=seats, prefill_chunk=prefill_chunk, prefix_sharing=sharing
    )


def work(name: str, tokens: Iterable[int], count: int, **sampling: Any) -> Work:
    asked = {"temperature": 0.0, "max_tokens": count, **sampling}
    return Work(name, " ".join(map(str, tokens)), Sampling(**asked))


def collect(events: Iterable[Event], into: dict[str, list[int]]) -> None:
    for event in events:
        if isinstance(event, Delta):
            into.setdefault(event.work, []).extend(event.token_ids)


def run(engine: BatchingEngine, *works: Work) -> dict[str, list[int]]:
    """Token ids by request, all submitted at once."""
    out: dict[str, list[int]] = {}
    for one in works:
        engine.submit(one)
    while not engine.idle:
        collect(engine.step(), out)
        engine.check_integrity()
    return out


def write_gguf(file: Path, tokenizer: Any) -> None:
    """A Llama of two layers with random weights, in llama.cpp's format."""
    spelled = sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    tokens = [token for token, _ in spelled]
    rules = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    out = gguf.GGUFWriter(file, "llama")
    out.add_context_length(CONTEXT)
    out.add_embedding_length(32)
    out.add_feed_forward_length(48)
    out.add_block_count(2)
    out.add_head_count(4)
    out.add_head_count_kv(2)
    out.add_rope_dimension_count(8)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_vocab_size(len(tokens))
    out.add_tokenizer_model("gpt2")
    out.add_token_list(tokens)
    out.add_token_merges([rule if isinstance(rule, str) else " ".join(rule) for rule in rules])
    out.add_token_types([3 if token in tokenizer.all_special_tokens else 1 for token in tokens])
    out.add_bos_token_id(tokenizer.bos_token_id)
    out.add_eos_token_id(tokenizer.eos_token_id)
    for name, shape in _gguf_shapes(len(tokens)).items():
        out.add_tensor(f"{name}.weight", (torch.randn(shape) * 0.4).numpy())
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def _gguf_shapes(tokens: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (tokens, 32),
        "output": (tokens, 32),
        "output_norm": (32,),
    }
    wide, narrow = {"attn_q": 32, "attn_output": 32}, {"attn_k": 16, "attn_v": 16}
    for layer in range(2):
        for name, rows in (wide | narrow | {"ffn_gate": 48, "ffn_up": 48}).items():
            shapes[f"blk.{layer}.{name}"] = (rows, 32)
        shapes[f"blk.{layer}.ffn_down"] = (32, 48)
        shapes[f"blk.{layer}.attn_norm"] = shapes[f"blk.{layer}.ffn_norm"] = (32,)
    return shapes
