"""From a request body to an `Ask`: what the client wants, validated, in the server's own terms.

Beside the API's own parameters those are read that the usual open servers know: top_k, min_p,
repetition_penalty, min_tokens, ignore_eos, stop_token_ids and return_token_ids, as vLLM has them.
Accepted and without effect: user, metadata, store, service_tier, and keys that nobody knows; on the
scripted model also everything that is about a distribution, ids or the model's own end: top_p,
top_k, min_p, the penalties, logit_bias, min_tokens, ignore_eos, stop_token_ids.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reference_server.engine.interface import Message, Sampling
from reference_server.wire import fields
from reference_server.wire.errors import invalid
from reference_server.wire.fields import Object

MOST_CHOICES = 128
MOST_PROMPTS = 32
_SEED = 2**63
_TOKENS = 2**31
_MOST_BIASES = 1024
_MOST_STOP_IDS = 128


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call the answer must be made of; `arguments` is JSON text."""

    name: str
    arguments: str

    @property
    def written(self) -> str:
        """What the model generates: the name is paid for like any other text."""
        return f"{self.name}\n{self.arguments}"


@dataclass(frozen=True, slots=True)
class Ask:
    """A valid request. `prompts` is what the model sees: one for chat.

    For chat that is the scripted model's form, by which tools and formats are answered; a model
    with a template of its own is asked for the prompt of `messages`.
    """

    api: str  # "chat" or "completions"
    model: str
    prompts: tuple[str, ...]
    sampling: Sampling
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    echo: bool = False
    calls: tuple[Call, ...] = ()
    answer: str | None = None
    messages: tuple[Message, ...] = ()  # of a chat
    return_token_ids: bool = False
    prompt_ids: tuple[tuple[int, ...] | None, ...] = ()  # of each prompt, once it is cut

    @property
    def choices(self) -> int:
        return self.n * len(self.prompts)


def completions(body: Object) -> Ask:
    """The legacy route. Raises ApiError(400)."""
    limit = fields.integer(body, "max_tokens", 0, _TOKENS)
    logprobs = fields.integer(body, "logprobs", 0, 5)
    base = sampling(body, 16 if limit is None else limit)
    if fields.integer(body, "best_of", 1, 20) not in (None, 1, body.get("n")):
        raise invalid("best_of: only n is supported", "best_of", "unsupported_parameter")
    if body.get("suffix") is not None:
        raise invalid("suffix is not supported", "suffix", "unsupported_parameter")
    return common(
        Ask(
            api="completions",
            model=model_of(body),
            prompts=_prompts(body),
            sampling=replace(base, logprobs=logprobs),
            echo=bool(fields.boolean(body, "echo")),
        ),
        body,
    )


def _prompts(body: Object) -> tuple[str, ...]:
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return (prompt,)
    expected = f"a string or an array of 1 to {MOST_PROMPTS} strings"
    if not isinstance(prompt, list) or not 1 <= len(prompt) <= MOST_PROMPTS:
        raise fields.wrong("prompt", expected, prompt)
    if not all(isinstance(item, str) for item in prompt):
        raise fields.wrong("prompt", expected, prompt)
    return tuple(prompt)


def model_of(body: Object) -> str:
    """The model asked for: the first thing to be wrong about."""
    if not isinstance(body.get("model"), str):
        raise fields.wrong("model", "the name of a model", body.get("model"))
    return str(body["model"])


def sampling(body: Object, max_tokens: int | None) -> Sampling:
    """What chat and completions share. The limit and `logprobs` are the route's."""
    least = fields.integer(body, "min_tokens", 0, _TOKENS) or 0
    if max_tokens is not None and least > max_tokens:
        expected = f"at most the {max_tokens} tokens that the answer may have"
        raise fields.wrong("min_tokens", expected, least)
    # 0 and -1 are other servers' words for "off".
    top_k = fields.integer(body, "top_k", -1, _TOKENS)
    return Sampling(
        max_tokens=max_tokens,
        temperature=_number(body, "temperature", 0, 2, 1),
        seed=fields.integer(body, "seed", -_SEED, _SEED - 1),
        stop=fields.stops(body),
        top_p=_number(body, "top_p", 0, 1, 1),
        top_k=top_k if top_k is not None and top_k > 0 else None,
        min_p=_number(body, "min_p", 0, 1, 0),
        repetition_penalty=_number(body, "repetition_penalty", 0.01, 100, 1),
        presence_penalty=_number(body, "presence_penalty", -2, 2, 0),
        frequency_penalty=_number(body, "frequency_penalty", -2, 2, 0),
        logit_bias=_biases(body),
        min_tokens=least,
        ignore_eos=bool(fields.boolean(body, "ignore_eos")),
        stop_token_ids=fields.token_ids(body, "stop_token_ids", _MOST_STOP_IDS),
    )


def _number(body: Object, name: str, low: float, high: float, default: float) -> float:
    value = fields.number(body, name, low, high)
    return default if value is None else value


def _biases(body: Object) -> tuple[tuple[int, float], ...]:
    """JSON has no numbers as keys: token ids are written as strings, in one way each."""
    given = fields.mapping(body, "logit_bias") or {}
    if len(given) > _MOST_BIASES:
        raise fields.wrong("logit_bias", f"at most {_MOST_BIASES} tokens", len(given))
    for token, bias in given.items():
        if not (token.isascii() and token.isdigit() and token == str(int(token[:11]))):
            raise fields.wrong("logit_bias", "token ids as keys", token)
        if not fields.is_token_id(int(token)):
            raise fields.wrong("logit_bias", "token ids below 2^31 as keys", token)
        if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
            raise fields.wrong("logit_bias", f"a number from -100 to 100 for {token!r}", bias)
    return tuple((int(token), float(bias)) for token, bias in given.items())


def common(ask: Ask, body: Object) -> Ask:
    """Adds what says how to answer: stream, its options, n, token ids."""
    stream = bool(fields.boolean(body, "stream"))
    options = fields.mapping(body, "stream_options")
    if options is not None and not stream:
        raise invalid("stream_options is only allowed with stream", "stream_options")
    usage = fields.boolean(options or {}, "include_usage", "stream_options.include_usage")
    fields.boolean(options or {}, "include_obfuscation", "stream_options.include_obfuscation")
    n = fields.integer(body, "n", 1, MOST_CHOICES)
    ask = replace(ask, stream=stream, include_usage=bool(usage), n=1 if n is None else n)
    ask = replace(ask, return_token_ids=bool(fields.boolean(body, "return_token_ids")))
    if ask.choices > MOST_CHOICES:
        raise fields.wrong("n", f"at most {MOST_CHOICES} choices over all prompts", n)
    return ask
