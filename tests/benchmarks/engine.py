"""The batching engine beside its floor and beside transformers, in one process, in turns.

python tests/benchmarks/engine.py [--quick] [--threads N] [--write]

--write: results/engine.md; with --quick results/engine_quick.md

The floor is what no engine can leave out: every linear layer of the model over one token a row, and
attention (SDPA) over a contiguous cache for each layer, of the same lengths. A step of ours, one
with batch invariance and one of the floor are taken in turns, so that other work on the machine
meets all three; ratios are medians of the ratios of such neighbours. transformers' continuous
batching and its `generate` run to the end in turns with these, by the clock between first and last
token, so that start-up and prompts are left out for everybody.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    ContinuousBatchingConfig,
    GenerationConfig,
    GPT2Config,
    LlamaConfig,
)
from transformers.utils import logging

from reference_server.engine.batching import BatchingEngine
from reference_server.engine.cache import KeyValueCache
from reference_server.engine.interface import Message, Sampling, TokenLogprob, Work
from reference_server.engine.models import TINY, ModelError, find
from reference_server.engine.probe import survey
from reference_server.engine.runner import Draw, Row
from reference_server.engine.sampling import Sampler
from reference_server.engine.text import TextPath
from reference_server.engine.torch_runner import TorchRunner

RESULT = Path(__file__).parent / "results" / "engine.md"
WIDTHS = (1, 2, 4, 8, 16, 32)
CONTEXTS = (64, 256, 512)
PROMPT, NEW = 32, 64
BLOCK = 16
GREEDY = Sampling(temperature=0.0, max_tokens=NEW)
median = statistics.median


def gpt2() -> Any:
    """124 million parameters, as GPT-2 small has them, drawn at random."""
    torch.manual_seed(1)
    return AutoModelForCausalLM.from_config(GPT2Config(bos_token_id=None, eos_token_id=None))


def tiny() -> Any:
    """The embedded model; where it is not built yet, a random one of its size."""
    with suppress(ModelError):
        return AutoModelForCausalLM.from_pretrained(find(TINY).place, dtype=torch.float32)
    torch.manual_seed(1)
    sizes = {"hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 3072}
    return AutoModelForCausalLM.from_config(LlamaConfig(**sizes, **heads))


def prompt(row: int, length: int, vocabulary: int) -> list[int]:
    """No two begin alike, so that nobody's cache finds anything."""
    return [(row * 131 + place * 7 + 3) % vocabulary for place in range(length)]


# -- ours --------------------------------------------------------------------------------------


class Numbers:
    """A vocabulary without text: what it costs to spell is measured elsewhere."""

    size = 0
    longest = None
    ends: frozenset[int] = frozenset()

    def encode(self, prompt: str) -> tuple[int, ...]:
        return tuple(map(int, prompt.split()))

    encode_answer = encode

    def raw(self, token: int) -> bytes:
        return b"x"

    def path(self, stops: Sequence[str], aligned: bool, whole: bool = False) -> TextPath:
        return TextPath(stops, aligned)

    def spell(self, path: TextPath, token: int, entry: TokenLogprob | None = None) -> None:
        path.feed(b"x", entry)

    def chat_prompt(self, messages: Sequence[Message]) -> str:
        raise ValueError


@dataclass(frozen=True, slots=True)
class Subject:
    """One model as transformers runs it, and the same weights with our attention."""

    name: str
    own: Any
    ours: Any
    layers: Any
    vocabulary: int

    def runner(self, rows: int, tokens: int, invariant: bool = False) -> TorchRunner:
        blocks = rows * -(-tokens // BLOCK)
        cache = KeyValueCache(self.layers, blocks=blocks, block_size=BLOCK)
        for store in (*cache._keys, *cache._values):
            store.fill_(0.5)  # fresh zeros are one page of memory, read again and again
        sampler = Sampler(rows, self.vocabulary, frozenset(), "cpu")
        context = self.ours.config.max_position_embeddings
        return TorchRunner(self.ours, cache, sampler, context=context, batch_invariant=invariant)


def subject(name: str, model: Any) -> Subject:
    own = model.eval()
    own.set_attn_implementation("sdpa")
    memo = {id(tensor): tensor for tensor in own.parameters()}  # the weights are shared
    ours = copy.deepcopy(own, memo)
    return Subject(name, own, ours, survey(ours), own.config.vocab_size)


def engine_steps(subject: Subject, rows: int, invariant: bool) -> Iterator[float]:
    """Seconds of each step in which all rows, and nothing else, were decoded."""
    runner = subject.runner(rows, PROMPT + NEW, invariant)
    engine = BatchingEngine(runner, Numbers(), max_batch=rows, prefill_chunk=0)
    for row in range(rows):
        text = " ".join(map(str, prompt(row, PROMPT, subject.vocabulary)))
        engine.submit(Work(str(row), text, GREEDY))
    for _ in engine.step():
        pass
    while not engine.idle:
        start = time.perf_counter()
        for _ in engine.step():
            pass
        yield time.perf_counter() - start


def runner_step(subject: Subject, rows: int, context: int) -> Callable[[], float]:
    """One decode step over caches of `context` tokens, whatever is in them."""
    runner = subject.runner(rows, context)
    each = context // BLOCK
    made = []
    for slot in range(rows):
        runner.open(slot, Draw(GREEDY, 0, 0, (1,)))
        made.append(Row(slot, slot, context - 1, range(slot * each, (slot + 1) * each)))
    decode: Callable[[], object] = partial(runner.decode, made)
    return partial(timed, decode)


# -- the floor ---------------------------------------------------------------------------------


class Floor:
    """Linear layers and SDPA, called one after the other; the longest context is allocated once."""

    def __init__(self, subject: Subject, rows: int, longest: int) -> None:
        config = subject.own.config
        self._heads = config.num_attention_heads
        self._linears = [
            (module, torch.randn(1, rows, weight.shape[0 if transposed else 1]))
            for module in subject.own.modules()
            if (transposed := type(module).__name__ == "Conv1D")
            or type(module).__name__ == "Linear"
            for weight in [module.weight]
        ]
        self._caches = [
            torch.full((2, rows, layer.kv_heads, longest, layer.head_dim), 0.5)
            for layer in subject.layers
        ]

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def step(self, length: int) -> None:
        for module, given in self._linears:
            module(given)
        for keys, values in self._caches:
            rows, kv_heads, _, size = keys.shape
            query = keys.new_ones(rows, kv_heads, self._heads // kv_heads, size)
            torch.nn.functional.scaled_dot_product_attention(
                query, keys[:, :, :length], values[:, :, :length]
            )


# -- transformers ------------------------------------------------------------------------------

SETTINGS: dict[str, Any] = {"do_sample": False, "eos_token_id": -1, "pad_token_id": 0}


def continuous(subject: Subject, rows: int) -> float:
    """Tokens per second between first and last token of `generate_batch`."""
    out = subject.own.generate_batch(
        [prompt(row, PROMPT, subject.vocabulary) for row in range(rows)],
        generation_config=GenerationConfig(max_new_tokens=NEW, **SETTINGS),
        record_timestamps=True,
        continuous_batching_config=ContinuousBatchingConfig(
            page_size=32, num_blocks=rows * 4 + 8, max_batch_tokens=max(256, rows * PROMPT)
        ),
    )
    times = sorted(stamp for one in out.values() for stamp in one.timestamps)
    assert len(times) == rows * NEW, "continuous batching lost tokens"
    return float((len(times) - rows) / (times[-1] - times[rows - 1]))


class Clock:
    """A streamer that notes when tokens come."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: Any) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None: ...


def one_after_another(subject: Subject) -> float:
    """Tokens per second of `generate`, whose rows wait for each other: the same for any number."""
    clock = Clock()
    ids = torch.tensor([prompt(0, PROMPT, subject.vocabulary)])
    settings = GenerationConfig(max_new_tokens=NEW, **SETTINGS)
    subject.own.generate(
        ids, attention_mask=torch.ones_like(ids), generation_config=settings, streamer=clock
    )
    times = clock.times[1:]  # the first is the prompt's
    return (len(times) - 1) / (times[-1] - times[0])


# -- measuring ---------------------------------------------------------------------------------


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


@dataclass(frozen=True, slots=True)
class Width:
    """Medians; seconds a step, ratios of neighbouring steps, tokens per second."""

    rows: int
    ours: float
    invariant: float
    floor: float
    to_floor: float
    to_ours: float  # of the invariant step
    continuous: float
    generate: float


def measure(subject: Subject, rows: int, rounds: int) -> Width:
    floor = Floor(subject, rows, PROMPT + NEW)
    floor.step(PROMPT)
    others: list[tuple[float, float]] = []
    triples: list[tuple[float, float, float]] = []
    for _ in range(rounds):
        others.append((continuous(subject, rows), one_after_another(subject)))
        ours, invariant = (engine_steps(subject, rows, invariant) for invariant in (False, True))
        for length, plain, even in zip(count(PROMPT + 1), ours, invariant, strict=False):
            triples.append((plain, even, timed(partial(floor.step, length))))
    return Width(
        rows,
        ours=median(plain for plain, _, _ in triples),
        invariant=median(even for _, even, _ in triples),
        floor=median(least for _, _, least in triples),
        to_floor=median(plain / least for plain, _, least in triples),
        to_ours=median(even / plain for plain, even, _ in triples),
        continuous=median(theirs for theirs, _ in others),
        generate=median(alone for _, alone in others),
    )


def cell(subject: Subject, rows: int, context: int, steps: int) -> tuple[float, float]:
    """Seconds of a step of ours, and its ratio to the floor's."""
    step, floor = runner_step(subject, rows, context), Floor(subject, rows, context)
    step(), floor.step(context)
    pairs = [(step(), timed(partial(floor.step, context))) for _ in range(steps)]
    return (
        median(mine for mine, _ in pairs),
        median(mine / least for mine, least in pairs),
    )


# -- telling -----------------------------------------------------------------------------------


def widths_table(widths: Sequence[Width]) -> Iterator[str]:
    yield (
        "| rows | step, ms | floor, ms | step / floor | tokens/s | invariant / plain "
        "| continuous batching, tokens/s | ours / it | generate, tokens/s |"
    )
    yield "|" + " ---: |" * 9
    for one in widths:
        speed = one.rows / one.ours
        yield (
            f"| {one.rows} | {one.ours * 1e3:.1f} | {one.floor * 1e3:.1f} | {one.to_floor:.2f} "
            f"| {speed:.0f} | {one.to_ours:.2f} | {one.continuous:.0f} "
            f"| {speed / one.continuous:.2f} | {one.generate:.0f} |"
        )
    first, last = widths[0], widths[-1]
    gain = last.rows / last.ours * first.ours / first.rows
    yield ""
    yield f"{last.rows} rows have {gain:.1f} times the throughput of {first.rows}."


def contexts_table(cells: dict[tuple[int, int], tuple[float, float]]) -> Iterator[str]:
    contexts = sorted({context for _, context in cells})
    yield "| rows | " + " | ".join(f"context {c}: ms, / floor" for c in contexts) + " |"
    yield "|" + " ---: |" * (len(contexts) + 1)
    for rows in sorted({rows for rows, _ in cells}):
        shown = (cells[rows, context] for context in contexts)
        yield f"| {rows} | " + " | ".join(f"{s * 1e3:.1f}, {r:.2f}" for s, r in shown) + " |"


def report(subject: Subject, quick: bool) -> Iterator[str]:
    size = sum(weight.numel() for weight in subject.own.parameters())
    yield f"### {subject.name}, {size / 1e6:.1f} million parameters, float32"
    yield ""
    yield f"Prompts of {PROMPT} tokens, {NEW} new ones; {torch.get_num_threads()} threads."
    yield ""
    widths = (1, 32) if quick else WIDTHS
    yield from widths_table([measure(subject, rows, 1 if quick else 2) for rows in widths])
    yield ""
    contexts = (64, 512) if quick else CONTEXTS
    steps = 5 if quick else 9
    yield from contexts_table(
        {(r, c): cell(subject, r, c, steps) for r in widths for c in contexts}
    )
    yield ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two widths, one round")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--only", choices=["gpt2", "tiny"])
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    torch.set_num_threads(asked.threads)
    made = {"gpt2": ("GPT-2's size", gpt2), "tiny": ("The embedded model", tiny)}
    lines = []
    for key, (name, build) in made.items():
        if asked.only in (None, key):
            for line in report(subject(name, build()), asked.quick):
                lines.append(line)
                print(line, flush=True)
    if asked.write:
        lines.append(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the end.")
        result = RESULT.with_stem("engine_quick") if asked.quick else RESULT
        result.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
