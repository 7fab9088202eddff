"""Trains the embedded model from nothing and writes its folder. Not imported by the server.

    python -m reference_server.engine.tiny.train --out FOLDER [--steps N] [--seed N]
        [--start FOLDER]

One thread, so that equal seeds give equal losses on a machine. README.md has the figures.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from reference_server.engine.tiny import beginning, cldr, spelling
from reference_server.engine.tiny.corpus import Corpus, Document, spelling_texts
from reference_server.engine.tiny.phrases import LANGUAGES

CONTEXT = 4096
# Rows × tokens of a step and how often: short ones to learn fast, long ones to reach far.
SHAPES = {(6, 256): 0.7, (3, 512): 0.2, (1, 1536): 0.1}
GIVEN = 0.1  # share of the tokens that are learned where a user, not the model, would write
SHARPER = 1.75  # logits of the saved model, beside the trained one's
PEAK, WARM_UP, COOL_DOWN = 3e-3, 100, 300  # learning rate; steps up to it and down from it


@dataclass(frozen=True, slots=True)
class Batch:
    """Tensors [rows, tokens]: `ids`, and whether to learn to foretell each of them."""

    ids: Any
    learned: Any


class Reader:
    """Cuts documents into rows of tokens; a row begins with a document and ends inside of one."""

    def __init__(self, corpus: Corpus, tokenizer: Any, seed: int) -> None:
        self._corpus, self._tokenizer = corpus, tokenizer
        self._rng = random.Random(f"documents {seed}")
        self._bos, self._end = (tokenizer.token_to_id(t) for t in (spelling.BOS, spelling.END))
        self._roles = {r: tokenizer.token_to_id(t) for r, t in spelling.ROLES.items()}

    def batch(self) -> Batch:
        ((rows, tokens),) = self._rng.choices(list(SHAPES), list(SHAPES.values()))
        filled = [self._row(tokens) for _ in range(rows)]
        ids = torch.tensor([[token for token, _ in row] for row in filled])
        return Batch(ids, torch.tensor([[learned for _, learned in row] for row in filled]))

    def _row(self, tokens: int) -> list[tuple[int, bool]]:
        row: list[tuple[int, bool]] = []
        while len(row) < tokens:
            row += self.tokens(self._corpus.document(self._rng, tokens))
        return row[:tokens]

    def tokens(self, document: Document) -> Iterator[tuple[int, bool]]:
        """Each token and whether to learn it; as the chat template would write it, or plain."""
        yield self._bos, False
        for piece in document:
            if piece.role is not None:
                yield self._roles[piece.role], False
            for token in self._tokenizer.encode(piece.text, add_special_tokens=False).ids:
                yield token, piece.learned or self._rng.random() < GIVEN
            if piece.role is not None or piece is document[-1]:
                yield self._end, piece.learned


def untrained(entries: int, seed: int) -> Any:
    """The model before its first step, float32; equal for equal seeds."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=entries,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config)
    beginning.begin(model)
    return model


def _share(step: int, steps: int) -> float:
    """The learning rate's share of the peak: up in a line, flat, down in a line at the end."""
    return min(1.0, (step + 1) / WARM_UP, (steps - step) / COOL_DOWN)


def _optimizers(model: Any) -> list[Any]:
    """Muon for the matrices inside, AdamW for the embedding and the norms."""
    inner = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    outer = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    return [
        torch.optim.Muon(inner, lr=PEAK, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(outer, lr=PEAK, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]


def loss_of(model: Any, batch: Batch) -> Any:
    """Mean negative log-likelihood of a learned token, in nats; the others are not looked at."""
    learned = batch.learned[:, 1:]
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(input_ids=batch.ids[:, :-1], use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[learned])
    return torch.nn.functional.cross_entropy(logits.float(), batch.ids[:, 1:][learned])


def train(model: Any, reader: Reader, steps: int) -> Iterator[float]:
    """Train in place; the loss of every step, `steps` of them."""
    optimizers = _optimizers(model)
    rates = [
        torch.optim.lr_scheduler.LambdaLR(each, lambda step: _share(step, steps))
        for each in optimizers
    ]
    model.train()
    for _ in range(steps):
        loss = loss_of(model, reader.batch())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for each, rate in zip(optimizers, rates, strict=True):
            each.step()
            rate.step()
            each.zero_grad()
        yield float(loss.detach())


def sharpen(model: Any) -> None:
    """Fold a temperature below 1 into the last norm: drawing at 1 then says rarer nonsense.

    The likeliest token stays the same. Minutes of training leave much doubt over many tokens.
    """
    with torch.no_grad():
        model.model.norm.weight *= SHARPER


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """The folder that `from_pretrained` reads, weights in bfloat16."""
    model.to(torch.bfloat16).eval()
    model.generation_config = GenerationConfig(pad_token_id=0, bos_token_id=1, eos_token_id=2)
    model.save_pretrained(folder)
    spelling.save(tokenizer, folder, CONTEXT)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="train", description="train the embedded model")
    parser.add_argument("--out", type=Path, required=True, help="the model's folder")
    parser.add_argument("--steps", type=int, default=4200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=Path, help="a folder to go on from, not from nothing")
    parser.add_argument("--cldr", type=Path, default=cldr.FOLDER)
    asked = parser.parse_args(argv)
    torch.set_num_threads(1)
    names = {tongue: cldr.read(asked.cldr, tongue) for tongue in LANGUAGES}
    if asked.start:
        tokenizer = Tokenizer.from_file(str(asked.start / "tokenizer.json"))
        model = LlamaForCausalLM.from_pretrained(asked.start, dtype=torch.float32)
        with torch.no_grad():
            model.model.norm.weight /= SHARPER
    else:
        tokenizer = spelling.learn(spelling_texts(names, asked.seed))
        model = untrained(tokenizer.get_vocab_size(), asked.seed)
    reader = Reader(Corpus(names), tokenizer, asked.seed)
    recent: list[float] = []
    began = time.monotonic()
    for step, loss in enumerate(train(model, reader, asked.steps), 1):
        recent.append(loss)
        if step % 50 == 0 or step == asked.steps:
            mean = sum(recent) / len(recent)
            seconds = time.monotonic() - began
            print(json.dumps({"step": step, "loss": round(mean, 4), "s": round(seconds)}))
            recent.clear()
    sharpen(model)
    save(model, tokenizer, asked.out)


if __name__ == "__main__":
    main()
