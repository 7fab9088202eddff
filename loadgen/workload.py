"""What each request asks: request number i is a function of the seed and i alone. Pure.

Only fields of the published API are sent: strict servers refuse others. Without a tokenizer a
generated prompt has one short English word for each token it should have; what it really cost is
what the server's usage says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from conformance.capture import Json
from conformance.dossier import CHAT
from conformance.errors import SpecError, UsageError
from loadgen.clients import NOBODY, ORDINARY, Client, Clients
from loadgen.lengths import Length
from loadgen.traces import Arrival

MOST_PROMPTS = 1_000_000
MARK_DIGITS = 12  # hexadecimal ones
INPUT, OUTPUT = Length("fixed", 128), Length("fixed", 64)
FILE_AT_MOST = 256 << 20  # bytes
# Common words that byte-pair vocabularies mostly hold whole, with their space.
_WORDS = """\
time year people way day man thing woman life child world school state family student group
country problem hand part place case week company system program question work number night
point home water room mother area money story fact month lot right study book eye job word
business issue side kind head house service friend father power hour game line end member law
car city name team minute idea body back parent face level office door health person art war
party result change morning reason research girl guy moment air teacher force education"""
WORDS = tuple(_WORDS.split())


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. Tokens are what was meant, None where nothing was said.

    `mark`: text that stands in no other request's prompt. `body`: the JSON as it is sent.
    `prompt_hash`: the first 16 hex digits of SHA-256 over the prompt's JSON.
    """

    index: int
    body: bytes
    prompt_hash: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    mark: str | None = None
    client: Client = ORDINARY


@dataclass(frozen=True, slots=True)
class Workload:
    """What to ask. `prompts`: as a file gave them, used in turn; empty: generated ones.

    `greedy`: at temperature 0, so that an endpoint may repeat itself.
    """

    api: str
    model: str
    seed: int | str
    input_length: Length = INPUT
    output_length: Length = OUTPUT
    prompts: tuple[Json, ...] = ()
    trace: tuple[Arrival, ...] = ()
    clients: Clients = NOBODY
    greedy: bool = False

    def ask(self, index: int) -> Ask:
        """Request number `index`, the same whenever and wherever it is made."""
        rng = Random(f"{self.seed}:request:{index}")
        wanted, limit = self.input_length.draw(rng), self.output_length.draw(rng)
        if self.trace:
            arrival = self.trace[index % len(self.trace)]
            wanted = wanted if arrival.input_tokens is None else arrival.input_tokens
            limit = limit if arrival.output_tokens is None else max(1, arrival.output_tokens)
        if self.prompts:
            return self._asked(index, self.prompts[index % len(self.prompts)], None, limit, None)
        mark = f"{rng.getrandbits(4 * MARK_DIGITS):0{MARK_DIGITS}x}"
        return self._asked(index, _generated(rng, mark, wanted), wanted, limit, mark)

    def unit(self, index: int) -> int:
        """What request `index` belongs to and is played with, in one place: itself."""
        return index

    def _asked(
        self, index: int, prompt: Json, wanted: int | None, limit: int, mark: str | None
    ) -> Ask:
        member = _member(self.api, prompt)
        body: dict[str, Json] = {
            "model": self.model,
            **member,
            "max_tokens": limit,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"temperature": 0} if self.greedy else {}),
        }
        client = self.clients.of(self.seed, index)
        return Ask(index, _json(body), hash_of(member), wanted, limit, mark, client)


def _generated(rng: Random, mark: str, words: int) -> str:
    """The mark comes first, so that no two prompts share a prefix that a cache could know."""
    return " ".join([f"[{mark}]", *rng.choices(WORDS, k=words)])


def _member(api: str, prompt: Json) -> dict[str, Json]:
    """The prompt as the API spells it."""
    if api == CHAT:
        text = isinstance(prompt, str)
        return {"messages": [{"role": "user", "content": prompt}] if text else prompt}
    return {"prompt": prompt}


def hash_of(prompt: Mapping[str, Json]) -> str:
    """Names a prompt without showing it."""
    return hashlib.sha256(_json(dict(prompt))).hexdigest()[:16]


def _json(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def load_prompts(path: Path, api: str) -> tuple[Json, ...]:
    """One prompt a line: text, or JSON `{"prompt": …}` or, for chat, `{"messages": […]}`.

    Raises SpecError and UsageError.
    """
    try:
        if path.stat().st_size > FILE_AT_MOST:
            raise UsageError(f"{path}: expected at most {FILE_AT_MOST >> 20} MiB")
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_prompts(text.split("\n"), api, str(path))


def parse_prompts(lines: Sequence[str], api: str, name: str) -> tuple[Json, ...]:
    """The same from lines; empty ones are left out."""
    numbered = [(n, line.rstrip("\r")) for n, line in enumerate(lines, 1) if line.strip()]
    if not 1 <= len(numbered) <= MOST_PROMPTS:
        raise UsageError(f"{name}: expected 1 to {MOST_PROMPTS} prompts, got {len(numbered)}")
    return tuple(_prompt(line, api, name, number) for number, line in numbered)


def _prompt(line: str, api: str, name: str, number: int) -> Json:
    if not line.lstrip().startswith("{"):
        return line
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise SpecError(name, number, "line", "expected text or one JSON object") from None
    prompt, messages = value.get("prompt"), value.get("messages")
    if isinstance(prompt, str) and prompt:
        return prompt
    if api == CHAT and isinstance(messages, list) and messages:
        return messages
    other = " or messages" if api == CHAT else ""
    raise SpecError(name, number, "prompt", f"expected text{other} that is not empty")
