"""From a request body to an `Ask`: what the client wants, validated, in the server's own terms.

Accepted and without effect on the scripted model: top_p, the penalties, logit_bias, user, metadata,
store, service_tier, and keys that are not the API's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reference_server.engine.interface import Sampling
from reference_server.wire import fields
from reference_server.wire.errors import ApiError, invalid
from reference_server.wire.fields import Object

MOST_CHOICES = 128
MOST_PROMPTS = 32
_SEED = 2**63
_TOKENS = 2**31


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
    """A valid request. `prompts` is what the model sees: one for chat."""

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

    @property
    def choices(self) -> int:
        return self.n * len(self.prompts)


def completions(body: Object) -> Ask:
    """The legacy route. Raises ApiError(400)."""
    limit = fields.integer(body, "max_tokens", 0, _TOKENS)
    logprobs = fields.integer(body, "logprobs", 0, 5)
    base = replace(sampling(body), max_tokens=16 if limit is None else limit)
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


def sampling(body: Object) -> Sampling:
    """What chat and completions share. `max_tokens` and `logprobs` are left to the route."""
    temperature = fields.number(body, "temperature", 0, 2)
    fields.number(body, "top_p", 0, 1)
    fields.number(body, "presence_penalty", -2, 2)
    fields.number(body, "frequency_penalty", -2, 2)
    _biases(body)
    return Sampling(
        temperature=1.0 if temperature is None else temperature,
        seed=fields.integer(body, "seed", -_SEED, _SEED - 1),
        stop=fields.stops(body),
    )


def _biases(body: Object) -> None:
    for token, bias in (fields.mapping(body, "logit_bias") or {}).items():
        if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
            raise fields.wrong("logit_bias", f"a number from -100 to 100 for {token!r}", bias)


def common(ask: Ask, body: Object) -> Ask:
    """Adds what says how to answer: stream, its options, n."""
    stream = bool(fields.boolean(body, "stream"))
    options = fields.mapping(body, "stream_options")
    if options is not None and not stream:
        raise invalid("stream_options is only allowed with stream", "stream_options")
    usage = fields.boolean(options or {}, "include_usage", "stream_options.include_usage")
    fields.boolean(options or {}, "include_obfuscation", "stream_options.include_obfuscation")
    n = fields.integer(body, "n", 1, MOST_CHOICES)
    ask = replace(ask, stream=stream, include_usage=bool(usage), n=1 if n is None else n)
    if ask.choices > MOST_CHOICES:
        raise fields.wrong("n", f"at most {MOST_CHOICES} choices over all prompts", n)
    return ask


def too_long(prompt_tokens: int, limit: int, api: str) -> ApiError:
    """The prompt alone fills the context."""
    return invalid(
        f"This model's maximum context length is {limit} tokens, but the prompt has "
        f"{prompt_tokens} tokens. Please shorten it.",
        "messages" if api == "chat" else "prompt",
        "context_length_exceeded",
    )
