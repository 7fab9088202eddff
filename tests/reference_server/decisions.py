"""How sure a decision was: the margin by which a model in float64 would have drawn the same token.

Greedy: what the best logit is ahead of the second, after penalties and bias. Drawn: how far the
uniform number lies from the edges of the token's stretch of the cumulative distribution, the cut by
top-k, top-p or min-p being sure by the same measure. Written apart from the engine's sampler; from
it comes only the uniform number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from reference_server.engine.chance import key, uniform

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Decision:
    """`margin` in logits where the choice was greedy, else in probability."""

    token: int
    margin: float


@torch.inference_mode()  # type: ignore[untyped-decorator]
def decisions(
    model: Any, prompt: Sequence[int], answer: Sequence[int], body: Body
) -> list[Decision]:
    """What `model` (float64, transformers' own attention) decides after each prefix of `answer`."""
    ids = torch.tensor([[*prompt, *answer[:-1]]], device=model.device)
    rows = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 :].double().cpu()
    keys = torch.tensor([key(body["seed"], 0)] * len(rows))
    uniforms = uniform(keys, torch.arange(len(rows))).tolist()
    return [
        _decision(_shaped(row, prompt, answer[:place], body), body, uniforms[place])
        for place, row in enumerate(rows)
    ]


def _shaped(row: Any, prompt: Sequence[int], answer: Sequence[int], body: Body) -> Any:
    """Penalties and bias, one token after the other."""
    row, factor = row.clone(), body.get("repetition_penalty", 1)
    for token in {*prompt, *answer}:
        row[token] = row[token] * factor if row[token] < 0 else row[token] / factor
    for token, count in Counter(answer).items():
        row[token] -= count * body.get("frequency_penalty", 0) + body.get("presence_penalty", 0)
    for name, bias in body.get("logit_bias", {}).items():
        row[int(name)] += bias
    return row


def _decision(row: Any, body: Body, at: float) -> Decision:
    heat = body["temperature"]
    if not heat:
        best = row.topk(2)
        return Decision(int(best.indices[0]), float(best.values[0] - best.values[1]))
    chances = (row / heat).softmax(-1)
    (_, kept), *others = _cuts(chances, body)
    token, margin = _drawn(chances, kept, at)
    for distance, other in others:
        drawn, room = _drawn(chances, other, at)
        # To draw something else the cut has to move, and then perhaps the edge as well.
        margin = min(margin, max(distance, room) if drawn == token else distance)
    return Decision(token, margin)


def _drawn(chances: Any, kept: Any, at: float) -> tuple[int, float]:
    """The token that `at` falls on among the ids `kept`, and its distance from the edges."""
    weights = torch.zeros_like(chances)
    weights[kept] = chances[kept]
    edges = (weights / weights.sum()).cumsum(-1)
    token = int((edges <= at).sum())
    below = float(edges[token - 1]) if token else -1.0  # nothing is below 0
    above = float(edges[token]) if token < int(kept.max()) else 2.0
    return token, min(at - below, above - at)


def _cuts(chances: Any, body: Body) -> Iterator[tuple[float, Any]]:
    """What may be drawn; then what else might, with the distance from which it would."""
    values, order = chances.sort(descending=True)
    ends = _ends(values, body)
    count = ends[0][1]
    for distance, end in ends:
        yield distance, order[:end]
    if count < len(order):  # the last one in and the first one out may change places
        swapped = torch.cat([order[: count - 1], order[count : count + 1]])
        yield float(values[count - 1] - values[count]), swapped


def _ends(values: Any, body: Body) -> list[tuple[float, int]]:
    """How many of the likeliest may be drawn: the count, one less, one more."""
    whole = len(values)
    if "top_k" in body:
        return [(0.0, body["top_k"])]
    if "top_p" in body:
        before = values.cumsum(-1) - values
        bounds = body["top_p"] - before
    elif "min_p" in body:
        bounds = values - body["min_p"] * values[0]
    else:
        return [(0.0, whole)]
    count = max(1, int((bounds > 0).sum()))
    ends = [(0.0, count)]
    if count > 1:
        ends.append((float(bounds[count - 1]), count - 1))
    if count < whole:
        ends.append((float(-bounds[count]), count + 1))
    return ends
