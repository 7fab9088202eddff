"""Prompts of a file: lines of text or JSON, or conversations in the form of ShareGPT.

A prompt is text, a list of chat messages, or a Conversation, whose human turns are what is asked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from conformance.capture import Json
from conformance.dossier import CHAT
from conformance.errors import SpecError, UsageError

MOST_PROMPTS = 1_000_000
FILE_AT_MOST = 1 << 30  # bytes
DEEPEST = 100  # levels of messages; json writes as deep as the stack allows
_HUMAN, _SYSTEM = ("human", "user"), "system"


@dataclass(frozen=True, slots=True)
class Conversation:
    """`asked`: what the human said, turn by turn. `answered`: words of the answer to each, None
    where the file has none."""

    asked: tuple[str, ...]
    answered: tuple[int | None, ...]
    system: str | None = None

    def limit(self, turn: int) -> int | None:
        """max_tokens for as long an answer as the file's: its words times 4/3."""
        words = self.answered[turn] if turn < len(self.answered) else None
        return None if not words else max(1, -(-words * 4 // 3))


Prompt: TypeAlias = "Json | Conversation"


def has_answers(prompts: Sequence[Prompt]) -> bool:
    """Is there a conversation whose answers tell how long an answer may be?"""
    return any(isinstance(each, Conversation) and any(each.answered) for each in prompts)


def load_prompts(path: Path, api: str) -> tuple[Prompt, ...]:
    """One prompt a line: text, or JSON `{"prompt": …}` or, for chat, `{"messages": […]}`.

    Or conversations, `{"conversations": [{"from": "human", "value": …}, …]}`, one a line or in one
    JSON array. Raises SpecError and UsageError.
    """
    try:
        if path.stat().st_size > FILE_AT_MOST:
            raise UsageError(f"{path}: expected at most {FILE_AT_MOST >> 20} MiB")
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    array = _array(text, path) if text.lstrip()[:1] == "[" else None
    if array is not None:
        return _all(((n, each) for n, each in enumerate(array, 1)), api, str(path))
    return parse_prompts(text.split("\n"), api, str(path))


def _array(text: str, path: Path) -> list[Json] | None:
    """None where it is text after all that begins with a bracket."""
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError) as error:
        if path.suffix != ".json":
            return None
        raise SpecError(str(path), 1, "file", f"expected a JSON array: {error}"[:120]) from None
    return value if isinstance(value, list) else None


def parse_prompts(lines: Sequence[str], api: str, name: str) -> tuple[Prompt, ...]:
    """The same from lines; empty ones are left out."""
    numbered = ((n, line.rstrip("\r")) for n, line in enumerate(lines, 1) if line.strip())
    return _all(((n, _value(line, name, n)) for n, line in numbered), api, name)


def _value(line: str, name: str, number: int) -> Json:
    if not line.lstrip().startswith("{"):
        return line
    try:
        value: Json = json.loads(line)
    except (ValueError, RecursionError):
        raise SpecError(name, number, "line", "expected text or one JSON object") from None
    return value


def _all(numbered: Iterable[tuple[int, Json]], api: str, name: str) -> tuple[Prompt, ...]:
    """Conversations in which nobody asks anything are left out."""
    found = [_prompt(value, api, name, number) for number, value in numbered]
    asked = tuple(each for each in found if each is not None)
    if not 1 <= len(asked) <= MOST_PROMPTS:
        raise UsageError(f"{name}: expected 1 to {MOST_PROMPTS} prompts, got {len(asked)}")
    return asked


def _prompt(value: Json, api: str, name: str, number: int) -> Prompt:
    if isinstance(value, str) and value:
        return value
    members = value if isinstance(value, dict) else {}
    if "conversations" in members:
        return _conversation(members["conversations"], name, number)
    prompt, messages = members.get("prompt"), members.get("messages")
    if isinstance(prompt, str) and prompt:
        return prompt
    if api == CHAT and isinstance(messages, list) and messages:
        if (wrong := _unsendable(messages)) is not None:
            raise SpecError(name, number, "messages", wrong)
        return messages
    other = " or messages" if api == CHAT else ""
    raise SpecError(name, number, "prompt", f"expected text{other} that is not empty")


def _unsendable(messages: Json) -> str | None:
    """RFC 8259 section 6: "Numeric values that cannot be represented in the grammar … are not
    permitted"; Python reads them, and 1e999, and would write Infinity."""
    waiting: list[tuple[Json, int]] = [(messages, 1)]
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, float) and not math.isfinite(value):
            return f"expected numbers that JSON can say, got {value}"
        within = list(value.values()) if isinstance(value, dict) else value
        if isinstance(within, list):
            if depth > DEEPEST:
                return f"expected at most {DEEPEST} levels"
            waiting += [(each, depth + 1) for each in within]
    return None


def _conversation(said: Json, name: str, number: int) -> Conversation | None:
    asked: list[str] = []
    answered: list[int | None] = []
    system = None
    for who, value in _said(said, name, number):
        if who in _HUMAN:
            asked.append(value)
            answered.append(None)
        elif who == _SYSTEM and not asked:
            system = value
        elif asked and answered[-1] is None:
            answered[-1] = len(value.split())
    return Conversation(tuple(asked), tuple(answered), system) if asked else None


def _said(said: Json, name: str, number: int) -> Iterator[tuple[str, str]]:
    for each in said if isinstance(said, list) else [None]:
        who, value = (each.get("from"), each.get("value")) if isinstance(each, Mapping) else (0, 0)
        if not isinstance(who, str) or not isinstance(value, str):
            expected = "expected a list of objects with the texts from and value"
            raise SpecError(name, number, "conversations", expected)
        if value.strip():
            yield who, value
