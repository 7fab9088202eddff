"""What of a decode step is the model's own: transformers' forward pass beside ours and the floor.

    python -m tests.benchmarks.own_pass [--write]      (--write: results/own_pass.md)

The floor of `engine.py` is linear layers and attention. A model's own modules do more: norms,
rotations, activations, and Python between them. So its own pass over a `DynamicCache`, one token a
row, the likeliest one told, is measured in turns with a step of our runner and the floor.
Processor time of one thread; ratios are medians of those of neighbours.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from transformers import DynamicCache
from transformers.utils import logging

from reference_server.engine.runner import Draw, Row
from tests.benchmarks.engine import BLOCK, GREEDY, Floor, Subject, gpt2, prompt, subject, tiny

RESULT = Path(__file__).parent / "results" / "own_pass.md"
ROWS, CONTEXT = (1, 8, 32), 64


def timed(run: Callable[[], object]) -> float:
    start = time.thread_time()
    run()
    return time.thread_time() - start


def ours(subject: Subject, rows: int) -> Callable[[], object]:
    runner, each = subject.runner(rows, CONTEXT), CONTEXT // BLOCK
    made = []
    for slot in range(rows):
        runner.open(slot, Draw(GREEDY, 0, 0, (1,)))
        made.append(Row(slot, slot, CONTEXT - 1, range(slot * each, (slot + 1) * each)))
    return partial(runner.decode, made)


def own(subject: Subject, rows: int) -> Callable[[], object]:
    """The model as transformers has it, the token that it computes taken back each time."""
    cache = DynamicCache(config=subject.own.config)
    texts = [prompt(row, CONTEXT - 1, subject.vocabulary) for row in range(rows)]
    subject.own(input_ids=torch.tensor(texts), past_key_values=cache, use_cache=True)
    token = torch.zeros(rows, 1, dtype=torch.long)
    places = torch.full((rows, 1), CONTEXT - 1)

    def step() -> None:
        out = subject.own(
            input_ids=token, past_key_values=cache, position_ids=places, use_cache=True
        )
        out.logits[:, -1].argmax(-1).tolist()
        cache.crop(-1)

    return step


@torch.inference_mode()  # type: ignore[untyped-decorator]
def row(subject: Subject, rows: int, rounds: int) -> str:
    floor = partial(Floor(subject, rows, CONTEXT).step, CONTEXT)
    runs: tuple[Callable[[], object], ...] = (ours(subject, rows), own(subject, rows), floor)
    for run in runs:
        run()
    times = [tuple(timed(run) for run in runs) for _ in range(rounds)]
    middle = statistics.median
    mine, theirs, least = map(middle, zip(*times, strict=True))
    to_floor = middle(b / c for _, b, c in times), middle(a / c for a, _, c in times)
    return (
        f"| {subject.name} | {rows} | {least * 1e3:.1f} | {theirs * 1e3:.1f} | {mine * 1e3:.1f} "
        f"| {to_floor[0]:.2f} | {to_floor[1]:.2f} | {middle(a / b for a, b, _ in times):.2f} |"
    )


def table() -> Iterator[str]:
    yield (
        "| model | rows | floor, ms | transformers' own pass, ms | ours, ms | own / floor "
        "| ours / floor | ours / own |"
    )
    yield "|---|" + "---:|" * 7
    for name, build, rounds in (("GPT-2's size", gpt2, 9), ("the embedded model", tiny, 100)):
        model = subject(name, build())
        for rows in ROWS:
            yield row(model, rows, rounds)
    yield ""
    yield f"Contexts of {CONTEXT} tokens; processor time, one thread."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    lines = []
    for line in table():
        print(line, flush=True)
        lines.append(line)
    if asked.write:
        RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
