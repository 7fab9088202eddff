"""What the scripted engine answers: a function of prompt and randomness, no model.

It follows the plain instructions that tests of real models use (count, repeat, say only), goes on
with a prompt made of one repeated line, and otherwise writes words in many scripts.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from reference_server.engine.interface import Message

_COUNT = re.compile(r"count (?:up )?from (\d{1,6})(?: up)? to (\d{1,6})", re.IGNORECASE)
_COUNT_ON = re.compile(r"count (?:up )?from (\d{1,6})", re.IGNORECASE)
_BEGUN = re.compile(r": ((?:\d+, ?)+)\Z")  # the prompt has begun to count
_TIMES = re.compile(r"\b(\d{1,3}) times\b", re.IGNORECASE)
_LITERAL = re.compile(
    r"(?:\A|[.\n] *)(?:please )?(?:repeat|say|print|echo|write|output|reply|answer|respond)"
    r"\b([^:\n]{0,120}):[ \n]?(.+)",
    re.IGNORECASE | re.DOTALL,
)
_MOST_NUMBERS = 5_000

# Words of many scripts; several have characters that no usual vocabulary holds as one token.
_VOCABULARY = (
    "the river stream token answer little garden between morning quiet because under paper light "
    "naïve façade Größe smörgåsbord Łódź φῶς λόγος река слово город 漢字 東京 言葉 龜兹 한국어 "
    "바다 노래 ภาษา น้ำใจ नमस्ते क्षत्रिय مرحبا كتاب שלום דבר 🙂 🫠 🥹 🇳🇴 ①② "
    "👩\u200d👩\u200d👧\u200d👦 🏳\ufe0f\u200d🌈 e\u0301tude"
)
_WORDS = tuple(_VOCABULARY.split())
_MARKS = (".", ",", ",", ";", " –", "!", "?", ".\n\n", ":\n  - ")


def answer(prompt: str, rng: random.Random) -> str:
    """The whole text the model would give, were there no limit and no stop string."""
    asked = last_message(prompt)
    return _counted(asked) or _literal(asked) or _continued(prompt) or _words(rng)


def chat_prompt(messages: Sequence[Message]) -> str:
    """The scripted model's chat template."""
    parts = [f"<|{message.role}|>{message.content}<|end|>" for message in messages]
    return "".join(parts) + "<|assistant|>"


def last_message(prompt: str) -> str:
    """The last user message of a chat prompt; the whole of any other."""
    head, mark, tail = prompt.rpartition("<|user|>")
    return tail.split("<|end|>")[0] if mark else head + tail


def _counted(asked: str) -> str | None:
    found = _COUNT.search(asked)
    if found:
        first, last = int(found[1]), int(found[2])
    elif open_ended := _COUNT_ON.search(asked):
        first = int(open_ended[1])
        last = first + 99
    else:
        return None
    step = 1 if last >= first else -1
    numbers = [str(n) for n in range(first, last + step, step)[:_MOST_NUMBERS]]
    begun = _BEGUN.search(asked)
    if begun and begun[1].replace(" ", "").split(",")[:-1] == numbers[: begun[1].count(",")]:
        return " " + ", ".join(numbers[begun[1].count(",") :])
    return ", ".join(numbers)


def _literal(asked: str) -> str | None:
    found = _LITERAL.search(asked)
    if not found:
        return None
    times = _TIMES.search(found[1])
    return "\n".join([found[2]] * (int(times[1]) if times else 1))


def _continued(prompt: str) -> str | None:
    """A prompt that ends in one line repeated: the line goes on eight times more."""
    lines = prompt.rstrip("\n").split("\n")
    if len(lines) < 3 or len(set(lines[-3:])) != 1 or not lines[-1].strip():
        return None
    return ("" if prompt.endswith("\n") else "\n") + "\n".join([lines[-1]] * 8)


def _words(rng: random.Random) -> str:
    out: list[str] = []
    for _ in range(rng.randint(24, 56)):
        out.append(rng.choice(_WORDS))
        if rng.random() < 0.16:
            out[-1] += rng.choice(_MARKS)
    return " ".join(out) + "."
