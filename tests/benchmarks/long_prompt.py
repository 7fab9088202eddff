"""Eight streams run, and a prompt as long as the context arrives: with and without chunks.

    python -m tests.benchmarks.long_prompt [--quick] [--clock cpu] [--threads N] [--write]

Computed in one piece, the prompt holds up everybody for as long as it takes. In chunks each step
computes a part of it and then a token for all, so the others go on and the prompt waits for them.
Gaps are between two tokens of one running stream as the engine gives them; the settings take turns.
`--clock cpu` counts this process's own time alone: with one thread, what a machine that does
nothing else would show. `--write` renders results/long_prompt.md.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GPT2Config
from transformers.utils import logging

from reference_server.engine.batching import BatchingEngine
from reference_server.engine.interface import Delta, Failure, Sampling, Work
from tests.benchmarks.engine import BLOCK, Numbers, Subject, prompt, subject, tiny

RESULTS = Path(__file__).parent / "results" / "long_prompt.md"
STREAMS, PROMPT, BEFORE = 8, 32, 12  # steps of the streams before the long prompt comes
CHUNKS = (0, 256, 64)
LONG = "long"
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
Clock = Callable[[], float]


def half_a_gpt2() -> Any:
    """Half of GPT-2's layers, two thirds of its width, its context and vocabulary."""
    torch.manual_seed(1)
    sizes = {"n_layer": 6, "n_embd": 512, "n_head": 8}
    config = GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)
    return AutoModelForCausalLM.from_config(config)


@dataclass(slots=True)
class Run:
    """Seconds. Gaps by when they ended: before the long prompt came, and until its first token."""

    quiet: list[float] = field(default_factory=list)
    held_up: list[float] = field(default_factory=list)
    first: float = 0.0  # from its arrival to its first token

    @property
    def tokens(self) -> int:
        """That one running stream got while the prompt was computed."""
        return len(self.held_up) // STREAMS


def run(subject: Subject, chunk: int, clock: Clock) -> Run:
    context = subject.ours.config.max_position_embeddings
    most = BEFORE + 2 + (-(-context // chunk) + 1 if chunk else 2)
    seats = STREAMS + 1
    room = PROMPT + most + -(-context // seats) + 2 * BLOCK  # of each, on an average
    engine = BatchingEngine(
        subject.runner(seats, room),
        Numbers(),
        max_batch=seats,
        prefill_chunk=chunk,
        prefix_sharing=False,
    )
    for number in range(STREAMS):
        engine.submit(asking(str(number), prompt(number, PROMPT, subject.vocabulary), most))
    times: dict[str, list[float]] = defaultdict(list)
    while len(times[str(STREAMS - 1)]) < BEFORE:
        _step(engine, times, clock)
    engine.submit(asking(LONG, prompt(STREAMS, context - 1, subject.vocabulary), 1))
    came = clock()
    while not times[LONG]:
        _step(engine, times, clock)
    _step(engine, times, clock)
    return _told(times, came)


def asking(name: str, tokens: Sequence[int], most: int) -> Work:
    return Work(name, " ".join(map(str, tokens)), Sampling(temperature=0.0, max_tokens=most))


def _step(engine: BatchingEngine, times: dict[str, list[float]], clock: Clock) -> None:
    for event in engine.step():
        assert not isinstance(event, Failure), event
        if isinstance(event, Delta):
            times[event.work].append(clock())


def _told(times: dict[str, list[float]], came: float) -> Run:
    first = times[LONG][0]
    made = Run(first=first - came)
    all_run = times[str(STREAMS - 1)][2]  # their own prompts are computed, the first steps done
    for own in times.values():
        # The gap in which the long one's first token falls counts.
        for begin, end in pairwise(own):
            if all_run <= begin and end <= came:
                made.quiet.append(end - begin)
            elif came < end and begin <= first:
                made.held_up.append(end - begin)
    return made


# -- telling -------------------------------------------------------------------------------------


def table(runs: dict[int, list[Run]]) -> Iterator[str]:
    yield (
        "| prefill chunk | worst gap before, ms | worst gap while it is computed, ms "
        "| median gap, ms | its first token after, ms | tokens of each stream until then |"
    )
    yield "|" + " ---: |" * 6
    for chunk, made in runs.items():
        cells = (
            median(max(one.quiet) for one in made) * 1e3,
            median(max(one.held_up) for one in made) * 1e3,
            median(median(one.held_up) for one in made) * 1e3,
            median(one.first for one in made) * 1e3,
        )
        shown = " | ".join(f"{cell:.1f}" if cell < 100 else f"{cell:.0f}" for cell in cells)
        yield f"| {chunk or 'off'} | {shown} | {median(one.tokens for one in made):.0f} |"


def report(name: str, subject: Subject, rounds: int, clock: str) -> Iterator[str]:
    size = sum(weight.numel() for weight in subject.own.parameters())
    context = subject.ours.config.max_position_embeddings
    run(subject, CHUNKS[1], CLOCKS[clock])  # warms up
    runs: dict[int, list[Run]] = {chunk: [] for chunk in CHUNKS}
    for _ in range(rounds):
        for chunk in CHUNKS:
            runs[chunk].append(run(subject, chunk, CLOCKS[clock]))
    yield f"### {name}, {size / 1e6:.1f} million parameters, float32"
    yield ""
    yield (
        f"{STREAMS} streams run when a prompt of {context - 1} tokens arrives; medians of {rounds}"
        f" runs; threads: {torch.get_num_threads()}; clock: {clock}."
    )
    yield ""
    yield from table(runs)
    yield ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="the embedded model alone, one run")
    parser.add_argument("--threads", type=int, default=1, help="of torch (%(default)s)")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--write", action="store_true", help=f"render {RESULTS.name}")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    logging.disable_progress_bar()
    rounds, clock = 1 if options.quick else 3, options.clock
    lines = list(report("The embedded model", subject("tiny", tiny()), rounds, clock))
    if not options.quick:
        lines += report("A random model like GPT-2", subject("gpt2", half_a_gpt2()), rounds, clock)
    print("\n".join(lines))
    if options.write:
        RESULTS.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
