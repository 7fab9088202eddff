"""From probabilities to a token: what may be drawn, and which one is.

Randomness is counted, not streamed: the uniform number of a token is a function of seed, choice and
position. The inverse of the cumulative distribution over ascending token ids makes it a token.
Weights are integers there, so sums are exact: no order of summation, no width of the batch and no
kernel can move a boundary. A row draws the same token alone and in any company.
"""

from __future__ import annotations

import torch
from torch import Tensor

# A token's weight is its probability in units of 2**-44; what is less likely is never drawn.
UNITS = float(1 << 44)
_PREFIXES = (256, 4096)  # top-p looks at that many likeliest tokens before it looks at all


def least(chances: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """The smallest probability that may be drawn, [rows, 1]: top-k, then top-p, then min-p.

    Each of the three keeps the likeliest tokens down to some probability, so one number says it
    all. `chances` are [rows, vocab], the others [rows, 1]: int64, 0 being off, and twice float32.
    The likeliest token always stays.
    """
    floor = torch.zeros_like(min_p)
    deepest = min(int(top_k.max()), chances.shape[-1])
    if deepest:
        best = chances.topk(deepest).values
        last = best.gather(-1, (top_k.clamp(max=deepest) - 1).clamp(min=0))
        floor = torch.where(top_k > 0, last, floor)
    if bool((top_p < 1).any()):
        floor = torch.maximum(floor, _nucleus(chances.masked_fill(chances < floor, 0), top_p))
    return torch.maximum(floor, min_p * chances.amax(-1, keepdim=True))


def _nucleus(chances: Tensor, top_p: Tensor) -> Tensor:
    """The probability of the last of the fewest likeliest tokens that make up `top_p` of all."""
    whole = (chances * UNITS).long().sum(-1, keepdim=True).double() * top_p
    for depth in (*_PREFIXES, chances.shape[-1]):
        best = chances.topk(min(depth, chances.shape[-1])).values
        weights = (best * UNITS).long()
        before = weights.cumsum(-1) - weights
        inside = (before.double() < whole).sum(-1, keepdim=True).clamp(min=1)
        if bool(((inside < depth) | (top_p >= 1)).all()):
            break
    return torch.where(top_p < 1, best.gather(-1, inside - 1), 0)


def inverse(weights: Tensor, chance: Tensor) -> Tensor:
    """The id at which the running sum of `weights` [rows, vocab] passes `chance` of the whole.

    int64 weights, which are overwritten; `chance` float64 [rows, 1] in [0, 1).
    """
    sums = weights.cumsum_(-1)
    whole = sums[:, -1:]
    goal = torch.minimum((chance * whole.double()).long(), whole - 1)
    return torch.searchsorted(sums, goal, right=True).squeeze(-1)


# -- counted randomness --------------------------------------------------------------------------

# SplitMix64 (Steele, Lea and Flood 2014, figure 17). Its state advances by a constant, so that the
# n-th number of a seed is computed without the ones before. As int64 the constants wrap.
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = (1 << 64) - 1


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _mixed(word: int) -> int:
    word = (word ^ word >> 30) * _FIRST & _WORD
    word = (word ^ word >> 27) * _SECOND & _WORD
    return word ^ word >> 31


def key(seed: int, choice: int) -> int:
    """Where the numbers of one choice begin. Any seed: it is taken modulo 2**64."""
    return _signed(_mixed(_mixed(seed + _STEP & _WORD) + (choice + 1) * _STEP & _WORD))


def uniform(keys: Tensor, position: Tensor) -> Tensor:
    """float64 in [0, 1), as a function of `keys` and `position` (int64 of one shape)."""
    word = keys + (position + 1) * _signed(_STEP)
    word = (word ^ _shifted(word, 30)) * _signed(_FIRST)
    word = (word ^ _shifted(word, 27)) * _signed(_SECOND)
    return _shifted(word ^ _shifted(word, 31), 11).double() * 2.0**-53


def _shifted(word: Tensor, by: int) -> Tensor:
    """To the right with zeros coming in; int64's own shift brings the sign."""
    return (word >> by) & ((1 << (64 - by)) - 1)
