"""What a valid request asks of this very model: that its prompt fits, that its token ids exist."""

from __future__ import annotations

from dataclasses import replace

from reference_server.engine.interface import Engine
from reference_server.wire import fields, tokens
from reference_server.wire.errors import ApiError, invalid
from reference_server.wire.request import Ask


def fitted(engine: Engine, ask: Ask, context: int) -> Ask:
    """With the model's own chat template, the ids of its prompts, and a limit that there is room
    for. `context` in tokens. Takes long for long prompts. Raises ApiError(400)."""
    vocabulary, sampling = engine.vocabulary, ask.sampling
    fields.in_vocabulary(vocabulary, "logit_bias", (token for token, _ in sampling.logit_bias))
    fields.in_vocabulary(vocabulary, "stop_token_ids", sampling.stop_token_ids)
    if ask.messages:
        ask = replace(ask, prompts=(tokens.templated(engine, ask.messages),))
    for prompt in ask.prompts:
        _bounded(engine, prompt, context, ask.api)
    ids = tuple(map(engine.token_ids, ask.prompts))
    longest = max(
        engine.count_tokens(prompt) if known is None else len(known)
        for prompt, known in zip(ask.prompts, ids, strict=True)
    )
    room = context - longest
    if room <= 0:
        raise _too_long(str(longest), context, ask.api)
    limit = sampling.max_tokens
    fitting = replace(sampling, max_tokens=room if limit is None else min(limit, room))
    return replace(ask, sampling=fitting, prompt_ids=ids)


def _bounded(engine: Engine, prompt: str, context: int, api: str) -> None:
    """What is too long by its bytes alone is not cut into tokens: that may take seconds."""
    size, longest = len(prompt.encode()), engine.longest
    if longest is not None and size > context * longest:
        raise _too_long(f"at least {-(-size // longest)}", context, api)


def _too_long(prompt_tokens: str, context: int, api: str) -> ApiError:
    """The prompt alone fills the context."""
    return invalid(
        f"This model's maximum context length is {context} tokens, but the prompt has "
        f"{prompt_tokens} tokens. Please shorten it.",
        "messages" if api == "chat" else "prompt",
        "context_length_exceeded",
    )
