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
from loadgen.traces import BLOCK


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
def prefix_of(name: str, side: str, length: Length, spelling: Spelling) -> tuple[str, int]:
    """The text of that name, and its tokens. Another side has as many, in other words.

    A word that is always the same comes first: the others all have a space before them.
    """
    rng = Random(name)
    tokens = length.draw(rng)
    rng = Random(f"{name}:{side}") if side else rng
    words = spelling.text(rng, tokens - 1 - spelling.prefix)
    return " ".join([OPENING, *([words] if words else [])]), tokens


def blocks_of(name: str, blocks: Sequence[int], tokens: float, spelling: Spelling) -> str:
    """So many tokens of text: BLOCK for each block, fewer for the last, which may be none at all.

    Texts of one `name` whose blocks begin alike begin alike: what a block says hangs on its own
    number and on how much those before it came to. The word in front is as in `prefix_of`.
    """
    texts, made = [OPENING], 1.0
    for number, block in enumerate(blocks, 1):
        reach = tokens if number == len(blocks) else min(BLOCK * number, tokens)
        text, cost = _block(f"{name}:{block}", reach - made, spelling)
        made += cost
        texts += [text] if text else []
    return " ".join(texts)


@lru_cache(maxsize=1024)
def _block(name: str, tokens: float, spelling: Spelling) -> tuple[str, float]:
    """The text of that name, and what it really came to."""
    text = spelling.text(Random(name), tokens)
    return text, spelling.cost(text)
