"""What a user says in one turn, and the talk that several of them make. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from conformance.capture import Json
from loadgen.lengths import Length
from loadgen.parts import Part
from loadgen.prompts import Conversation
from loadgen.spelling import OPENING, Spelling


@dataclass(frozen=True, slots=True)
class Turn:
    """`text` None: the file gave messages. `wanted`: tokens that it should have, None: not said;
    `limit`: max_tokens of the answer."""

    messages: list[Json]
    text: str | None
    wanted: int | None
    limit: int


def talk(turns: Sequence[Turn], said: Sequence[str]) -> Iterator[Json]:
    """The messages of all turns, each followed by its answer as far as that is known."""
    for number, turn in enumerate(turns):
        yield from turn.messages
        if number < min(len(said), len(turns) - 1):
            yield {"role": "assistant", "content": said[number]}


def given(part: Part, unit: int, turn: int, limit: int) -> Turn:
    """From the file: a turn of the unit's conversation, or one prompt after another."""
    prompt = part.prompts[unit % len(part.prompts)]
    if isinstance(prompt, Conversation):
        own = prompt.limit(turn) if part.by_answers else None
        return Turn(_asked(prompt, turn), prompt.asked[turn], None, own or limit)
    if turn:
        prompt = part.prompts[(unit * part.most_turns + turn) % len(part.prompts)]
    if isinstance(prompt, Conversation):
        prompt = prompt.asked[0]
    if isinstance(prompt, str):
        return Turn([{"role": "user", "content": prompt}], prompt, None, limit)
    return Turn(prompt if isinstance(prompt, list) else [], None, None, limit)


def _asked(prompt: Conversation, turn: int) -> list[Json]:
    system: list[Json] = []
    if prompt.system is not None and not turn:
        system = [{"role": "system", "content": prompt.system}]
    return [*system, {"role": "user", "content": prompt.asked[turn]}]


@lru_cache(maxsize=1024)
def prefix_of(name: str, length: Length, spelling: Spelling) -> tuple[str, int]:
    """The text of that name, and its tokens.

    A word that is always the same comes first: the others all have a space before them.
    """
    rng = Random(name)
    tokens = length.draw(rng)
    words = spelling.text(rng, tokens - 1 - spelling.prefix)
    return " ".join([OPENING, *([words] if words else [])]), tokens
