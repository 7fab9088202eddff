"""Where training starts: weights at random, but for heads that can copy from the first step on.

Repeating what was said takes two heads in a row: one that looks at the token before, and one that
looks for where the present token stood already and says what came after it there. Few minutes of
training would not find them. So they are written here, roughly, and training does the rest:

- every embedding gets a part in common, so that a head can look at places alone;
- layer 0, head 0 looks one token back and notes that token in a corner of its own (`noted`);
- layer 1, heads 0 and 2 compare the present token with those notes and pass on what stands there.
"""

from __future__ import annotations

from typing import Any

import torch

COMMON, OWN = 0.3, 0.23  # lengths of the embeddings' common part and, about, of their own
LOOK_BACK = 8.0  # scales of queries and keys: the sharper, the larger
MATCH = 3.0
NOTE, SAY = 0.15, 0.5  # how loud what is noted and said is beside an embedding
SLOW = 6  # pairs of a head's dimensions from this one on hardly turn over a hundred tokens


def begin(model: Any) -> None:
    """Write the heads into a fresh Llama of two layers or more with heads of 32 dimensions."""
    config = model.config
    size, head, half = config.hidden_size, config.head_dim, config.head_dim // 2
    slow = [*range(SLOW, half), *range(half + SLOW, head)]
    basis = torch.linalg.qr(torch.randn(size, size)).Q.T
    common, noted, seen = basis[0], basis[1 : 1 + len(slow)], basis[1 + len(slow) :][: len(slow)]
    said = basis[1 + len(slow) :]
    one, two = (layer.self_attn for layer in model.model.layers[:2])
    with torch.no_grad():
        model.model.embed_tokens.weight += COMMON * common
        _look_back(one, common, config)
        one.v_proj.weight[:head] = _rows(seen, slow, head)
        one.o_proj.weight[:, :head] = NOTE * _rows(noted, slow, head).T
        for at in (0, 1):  # a key-value head of each two query heads
            kept = said[at * head : (at + 1) * head]
            query, key = (
                slice(2 * at * head, (2 * at + 1) * head),
                slice(at * head, (at + 1) * head),
            )
            two.q_proj.weight[query] = MATCH * _rows(seen, slow, head)
            two.k_proj.weight[key] = MATCH * _rows(noted, slow, head)
            two.v_proj.weight[key] = kept
            two.o_proj.weight[:, query] = SAY * kept.T


def _rows(rows: Any, places: list[int], height: int) -> Any:
    """`rows` at `places` of a matrix that is zero elsewhere."""
    out = torch.zeros(height, rows.shape[1])
    out[places] = rows
    return out


def _look_back(attention: Any, common: Any, config: Any) -> None:
    """Query and key that only depend on places, turned so that they meet at a distance of one."""
    half, head = config.head_dim // 2, config.head_dim
    base = config.rope_parameters["rope_theta"]
    turn = base ** (-torch.arange(half) / half)  # radians a token, by pair
    share = COMMON / (COMMON**2 + OWN**2) ** 0.5
    scale = LOOK_BACK / (config.hidden_size**0.5 * share)
    fast = (torch.arange(half) < SLOW).float()
    query = torch.cat([fast, torch.zeros(half)])
    key = torch.cat([torch.cos(turn) * fast, torch.sin(turn) * fast])
    attention.q_proj.weight[:head] = scale * query[:, None] * common
    attention.k_proj.weight[:head] = scale * key[:, None] * common
