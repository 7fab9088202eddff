"""`/tokenize` and `/detokenize`, in the form in which vLLM has them."""

from __future__ import annotations

from collections.abc import Sequence

from reference_server.engine.interface import Engine, Message
from reference_server.seams import Document
from reference_server.wire import chat_request, fields
from reference_server.wire.errors import invalid
from reference_server.wire.fields import Object

_MOST_IDS = 2**20


def tokenize(engine: Engine, body: Object) -> Document:
    """`tokens` is null where the model's tokens have no numbers. Raises ApiError(400)."""
    text = prompt_of(engine, body)
    ids = engine.token_ids(text)
    count = engine.count_tokens(text) if ids is None else len(ids)
    return {
        "count": count,
        "max_model_len": engine.context,
        "tokens": None if ids is None else list(ids),
        "token_strs": None,
    }


def prompt_of(engine: Engine, body: Object) -> str:
    """What the model would see of `prompt`, or of `messages` in its own template."""
    if body.get("messages") is None:
        return fields.text(body, "prompt", "prompt")
    if body.get("prompt") is not None:
        raise invalid("prompt and messages exclude each other", "prompt")
    return templated(engine, chat_request.messages_of(body))


def templated(engine: Engine, messages: Sequence[Message]) -> str:
    """The prompt of a chat. Raises ApiError(400) where the model's template does."""
    try:
        return engine.chat_prompt(messages)
    except ValueError as error:
        raise invalid(f"messages: {error}", "messages") from None


def detokenize(engine: Engine, body: Object) -> Document:
    """Raises ApiError(400)."""
    if body.get("tokens") is None:
        raise invalid("tokens: expected an array of token ids, got none", "tokens")
    ids = fields.token_ids(body, "tokens", _MOST_IDS)
    fields.in_vocabulary(engine.vocabulary, "tokens", ids)
    text = engine.text_of(ids)
    if text is None:
        raise invalid("the tokens of this model have no ids", "tokens", "unsupported_parameter")
    return {"prompt": text}
