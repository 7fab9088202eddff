"""The documents that the embedded model learns from: chats and plain text, made one after another.

Equal seeds give equal documents. A document's pieces say which of them the model is to learn to
write; what a user asks for is mostly noise to it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from reference_server.engine.tiny.cldr import Names
from reference_server.engine.tiny.material import (
    Materials,
    code,
    emoji,
    emojis,
    invented,
    marked,
    sentence,
    word,
)
from reference_server.engine.tiny.phrases import LANGUAGES, Phrases

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
FARTHEST = 2100  # the highest number that is counted to


@dataclass(frozen=True, slots=True)
class Piece:
    """Text in one role (None: plain text, outside of a chat); `learned`: ours to write."""

    role: str | None
    text: str
    learned: bool


Document = tuple[Piece, ...]
Maker = Callable[["Corpus", random.Random, int], Document]


def chat(asked: str, answer: str) -> Document:
    return Piece(USER, asked, False), Piece(ASSISTANT, answer, True)


def plain(given: str, rest: str) -> Document:
    return Piece(None, given, False), Piece(None, rest, True)


ECHOES = (
    "Repeat exactly: {}",
    "Repeat exactly: {}",
    "Repeat exactly:\n{}",
    "Say only: {}",
    "Say: {}",
    "Echo: {}",
    "Copy this line: {}",
    "Write this again: {}",
)
COUNTS = (
    "Count from {a} to {b}, separated by commas.",
    "Count from {a} to {b}, separated by commas.",
    "Count from {a} to {b}.",
    "Write the numbers from {a} to {b}.",
)
TOPICS = ("river", "boat", "garden", "train", "cat", "moon", "letter", "bird", "city", "friend")
TELLS = (
    "Write one sentence about a {}.",
    "Tell me about a {}.",
    "What do you know about a {}?",
    "Write a short story about a {}.",
)
SYSTEMS = (
    "You are a helpful assistant.",
    "Answer briefly.",
    "Be kind and short.",
    "You repeat and count.",
)


def echo(corpus: Corpus, rng: random.Random, room: int) -> Document:
    text = corpus.materials.any(rng, room // 24)
    form = rng.choice(ECHOES) if rng.random() < 0.7 else rng.choice(list(LANGUAGES.values())).echo
    if rng.random() < 0.15:
        return plain(form.format(text) + "\n", text)
    return chat(form.format(text), text)


def lines(corpus: Corpus, rng: random.Random, room: int) -> Document:
    """One line again and again, as plain text."""
    line = corpus.materials.any(rng, room // 32).strip("\n") + "\n"
    return plain(line, line * rng.randint(2, 7))


def times(corpus: Corpus, rng: random.Random, room: int) -> Document:
    said = invented(rng) if rng.random() < 0.7 else corpus.materials.part(rng)
    often = rng.randint(2, 10)
    what = rng.choice(("word", "word", "word", "text"))
    return chat(f"Repeat this {what} {often} times: {said}", " ".join([said] * often))


def _range(rng: random.Random, room: int) -> tuple[int, int]:
    """From where to where; now and then farther than there is room for."""
    first = 1 if rng.random() < 0.4 else rng.randint(0, FARTHEST - 50)
    longest = room if rng.random() < 0.15 else room // 5
    last = first + int(math.exp(rng.uniform(0.7, math.log(longest))))
    if rng.random() < 0.15:
        last = (last // 50 + 1) * 50
    return first, min(last, FARTHEST)


def _counted(first: int, last: int, between: str = ", ") -> str:
    step = 1 if last >= first else -1
    return between.join(str(n) for n in range(first, last + step, step))


def count(corpus: Corpus, rng: random.Random, room: int) -> Document:
    a, b = _range(rng, room)
    dice = rng.random()
    if dice < 0.08:
        a, b = b, a
        return chat(f"Count down from {a} to {b}.", _counted(a, b))
    if dice < 0.16:
        return chat(f"Count from {a} to {b}, one per line.", _counted(a, b, "\n"))
    form = rng.choice(COUNTS) if dice < 0.75 else rng.choice(list(LANGUAGES.values())).count
    return chat(form.format(a=a, b=b), _counted(a, b))


def counting(corpus: Corpus, rng: random.Random, room: int) -> Document:
    """The same as plain text, begun already."""
    a, b = _range(rng, room)
    begun = min(b, a + rng.randint(0, 3))
    tail = _counted(a, b)[len(_counted(a, begun)) :]
    return plain(f"Count from {a} to {b}: {_counted(a, begun)}", tail)


def greet(corpus: Corpus, rng: random.Random, room: int) -> Document:
    """Hello, something said, thanks."""
    tongue = rng.choice(list(LANGUAGES.values()))
    turns = [chat(tongue.hello, tongue.reply)]
    if rng.random() < 0.5:
        turns.append(chat(tongue.tell, _some(tongue, rng)))
    if rng.random() < 0.5:
        turns.append(chat(tongue.thanks, tongue.welcome))
    return tuple(piece for turn in turns for piece in turn)


def _some(tongue: Phrases, rng: random.Random) -> str:
    return " ".join(rng.sample(tongue.sentences, rng.randint(1, 3)))


def tell(corpus: Corpus, rng: random.Random, room: int) -> Document:
    tongue = rng.choice(list(LANGUAGES.values()))
    if rng.random() < 0.4:
        return chat(f"Tell me something in {tongue.english}.", _some(tongue, rng))
    return chat(tongue.tell, _some(tongue, rng))


def story(corpus: Corpus, rng: random.Random, room: int) -> Document:
    """English by rule; as long as it likes."""
    asked = rng.choice(TELLS).format(rng.choice([*TOPICS, word(rng)]))
    told = 1 if asked.startswith("Write one") else rng.randint(2, max(3, room // 24))
    answer = " ".join(sentence(rng) for _ in range(told))
    return plain(asked + "\n", answer) if rng.random() < 0.2 else chat(asked, answer)


def program(corpus: Corpus, rng: random.Random, room: int) -> Document:
    text = code(rng)
    return chat(f"Write code with the word {text.split()[1].strip('(:,')}.", text)


def emoji_list(corpus: Corpus, rng: random.Random, room: int) -> Document:
    """Emoji with their names, a line each."""
    tongue = rng.choice(list(corpus.names))
    pairs = rng.sample(corpus.emoji_names[tongue], rng.randint(1, max(2, room // 32)))
    listed = "\n".join(f"{one} {name}" for one, name in pairs)
    english = LANGUAGES[tongue].english
    return chat(f"List {len(pairs)} emoji with their names in {english}.", listed)


def emoji_name(corpus: Corpus, rng: random.Random, room: int) -> Document:
    tongue = rng.choice(list(corpus.names))
    one, name = rng.choice(corpus.emoji_names[tongue])
    asked = f"What is {one} called in {LANGUAGES[tongue].english}?"
    return chat(asked, f"{one} = {name}")


def place(corpus: Corpus, rng: random.Random, room: int) -> Document:
    """A place's name in several languages."""
    code_ = rng.choice(list(corpus.names["en"].places))
    known = [t for t in corpus.names if code_ in corpus.names[t].places]
    chosen = rng.sample(known, min(len(known), rng.randint(1, 5)))
    listed = "\n".join(f"{LANGUAGES[t].english}: {corpus.names[t].places[code_]}" for t in chosen)
    return chat(f"What do others call {corpus.names['en'].places[code_]}?", listed)


def faces(corpus: Corpus, rng: random.Random, room: int) -> Document:
    """A row of emoji, as many as asked for."""
    many = rng.randint(1, 12)
    return chat(f"Draw {many} emoji.", " ".join(emoji(rng) for _ in range(many)))


OWN: Mapping[Maker, float] = {
    echo: 28,
    lines: 16,
    times: 7,
    count: 14,
    counting: 6,
    greet: 6,
    tell: 7,
    story: 4,
    program: 3,
    faces: 1,
}
NAMED: Mapping[Maker, float] = {emoji_list: 4, emoji_name: 3, place: 3}


class Corpus:
    """Documents without end. `names` is what CLDR says by language; without it all text is ours."""

    def __init__(self, names: Mapping[str, Names]) -> None:
        self.names = names
        self.materials = Materials(names)
        self.emoji_names = {
            tongue: [(c, n) for c, n in each.characters.items() if max(map(ord, c)) > 0x1F000]
            for tongue, each in names.items()
        }
        kinds = {**OWN, **(NAMED if names else {})}
        self._makers, self._weights = list(kinds), list(kinds.values())

    def document(self, rng: random.Random, room: int) -> Document:
        """A document that mostly fits into `room` tokens."""
        (make,) = rng.choices(self._makers, self._weights)
        made = make(self, rng, room)
        if made[0].role == USER and rng.random() < 0.1:
            return Piece(SYSTEM, rng.choice(SYSTEMS), False), *made
        return made


LATIN = ("en", "fr", "de", "es", "tr", "pl", "pt")
FEW = 40  # of the names in other letters one in so many is read


def spelling_texts(names: Mapping[str, Names], seed: int) -> Iterator[str]:
    """What the spelling is learned from: Latin letters often, all others seldom.

    So most other characters stay in pieces: that is the point of this model.
    """
    rng = random.Random(f"spelling {seed}")
    for tongue, phrases in LANGUAGES.items():
        said = (phrases.hello, phrases.reply, phrases.thanks, phrases.welcome, phrases.tell)
        yield from (*said, phrases.echo, *phrases.sentences) * (6 if tongue in LATIN else 1)
    for tongue, each in names.items():
        own = [*each.characters.values(), *each.places.values()]
        yield from own * (3 if tongue == "en" else 1) if tongue in LATIN else own[::FEW]
    for _ in range(4000):
        yield from (sentence(rng), code(rng), word(rng), marked(rng), emojis(rng))
    yield from (*ECHOES, *COUNTS, *TELLS, *SYSTEMS) * 40
    yield from ["1, 2, 3"] * 3000
