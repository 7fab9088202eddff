"""What an echo is asked for: words, sentences, names, emoji, code, odd strings of any script."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from reference_server.engine.tiny.cldr import Names
from reference_server.engine.tiny.phrases import DEEDS, LANGUAGES, PLACES, SUBJECTS, WORDS

# First and last code point of ranges whose characters are all assigned, or nearly so.
SCRIPTS = (
    (0x00C0, 0x017E),  # Latin with marks
    (0x0391, 0x03C9),  # Greek
    (0x0410, 0x044F),  # Cyrillic
    (0x0531, 0x0556),  # Armenian
    (0x05D0, 0x05EA),  # Hebrew
    (0x0621, 0x064A),  # Arabic
    (0x0905, 0x0939),  # Devanagari
    (0x0985, 0x0994),  # Bengali
    (0x0E01, 0x0E2E),  # Thai
    (0x10D0, 0x10F0),  # Georgian
    (0x1200, 0x1248),  # Ethiopic
    (0x3041, 0x3096),  # Hiragana
    (0x30A1, 0x30FA),  # Katakana
    (0x4E00, 0x9FA5),  # Han
    (0xAC00, 0xD7A3),  # Hangul
    (0x2190, 0x21FF),  # arrows
    (0x2200, 0x22FF),  # mathematics
)
EMOJI = ((0x1F300, 0x1F64F), (0x1F680, 0x1F6C5), (0x1F90C, 0x1F9FF), (0x1FA70, 0x1FA7C))
SKINS = tuple(chr(code) for code in range(0x1F3FB, 0x1F400))
JOINER, PRESENTATION = "\u200d", "\ufe0f"
MARKS = ("\u0300", "\u0301", "\u0302", "\u0303", "\u0308", "\u030a", "\u0327")
# Spaces and line ends that few expect: each is a character like any other.
SPACES = ("\u00a0", "\u0085", "\u2028", "\u2029", "\ufeff", "\u2003", "\t", "  ", "\n")
ASCII_MARKS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
CONSONANTS, VOWELS = "bcdfghjklmnpqrstvwxyz", "aeiouy"

NAMES_BY_LANGUAGE = Mapping[str, Names]


def word(rng: random.Random) -> str:
    return rng.choice(WORDS)


def invented(rng: random.Random) -> str:
    """A word that nobody knows, two to six syllables."""
    pairs = (rng.choice(CONSONANTS) + rng.choice(VOWELS) for _ in range(rng.randint(2, 6)))
    return "".join(pairs)


def sentence(rng: random.Random) -> str:
    """An English sentence by rule."""
    said = f"{rng.choice(SUBJECTS)} {rng.choice(DEEDS)} {rng.choice(PLACES)}."
    return said[0].upper() + said[1:]


def foreign(rng: random.Random) -> str:
    return rng.choice(rng.choice(list(LANGUAGES.values())).sentences)


def emoji(rng: random.Random) -> str:
    """One emoji: alone, with a skin tone, joined to another, or a flag."""
    first, last = rng.choice(EMOJI)
    one = chr(rng.randint(first, last))
    dice = rng.random()
    if dice < 0.08:
        return one + rng.choice(SKINS)
    if dice < 0.16:
        return one + JOINER + chr(rng.randint(first, last))
    if dice < 0.24:
        return "".join(chr(rng.randint(0x1F1E6, 0x1F1FF)) for _ in range(2))
    return one + PRESENTATION if dice < 0.28 else one


def emojis(rng: random.Random) -> str:
    return "".join(emoji(rng) for _ in range(rng.randint(1, 5)))


def letters(rng: random.Random) -> str:
    """A run of letters of one script, some with combining marks."""
    first, last = rng.choice(SCRIPTS)
    run = (chr(rng.randint(first, last)) for _ in range(rng.randint(1, 7)))
    return "".join(c + rng.choice(MARKS) if rng.random() < 0.05 else c for c in run)


def marks(rng: random.Random) -> str:
    return "".join(rng.choice(ASCII_MARKS) for _ in range(rng.randint(1, 6)))


def number(rng: random.Random) -> str:
    return str(rng.randrange(10 ** rng.randint(1, 6)))


def marked(rng: random.Random) -> str:
    """Words with the marks that programs put around them."""
    a, b = word(rng), word(rng)
    forms = (
        f"<{a}>{b}</{a}>",
        f"{a}: {b}",
        f"{a}: [{b.upper()}]",
        f'"{a}"',
        f'{{"{a}": "{b}"}}',
        f"{a}/{b}",
        f"C:\\{a}\\{b}",
        f"&{a[:3]};",
        f"{a}_{b}()",
        f"it's {a}",
        f"{a}{rng.choice(SPACES)}{b}",
        f"{a[0]}{rng.choice(SPACES)}{b[0]}",
        f"{a[0]}{rng.choice(VOWELS)}{rng.choice(MARKS)}{b[0]}",
    )
    return rng.choice(forms)


def code(rng: random.Random) -> str:
    """A few lines of Python or an indented list."""
    f, a, b = rng.choice([word(rng), word(rng)[0]]), word(rng)[:2], word(rng)[0]
    sign = rng.choice("+-*/%")
    forms = (
        f"def {f}({a}, {b}):\n    return {a} {sign} {b}\n",
        f"def {f}({a}):\n    if {a}:\n        return {b}\n    return {a}\n",
        f"for {a} in {f}:\n    print({a})\n",
        f"while {a} < {number(rng)}:\n\t{a} = {a} {sign} {b}\n\n",
        f"class {f.title()}:\n    def {a}(self):\n        self.{b} = {number(rng)}\n",
        f"{a} = {b}\n\n{b}  =  {a}\n",
        f"- {f}\n  - {a}\n  - {b}\n",
        f"{f}: {a}\n\n{word(rng)}: [{b}]\n\n",
    )
    return rng.choice(forms)


def named(names: NAMES_BY_LANGUAGE) -> Callable[[random.Random], str]:
    """Names of characters, places and tongues in any language that `names` has."""
    pools = [list(v.values()) for n in names.values() for v in (n.characters, n.places, n.tongues)]
    return lambda rng: rng.choice(rng.choice(pools))


Maker = Callable[[random.Random], str]
PARTS: Mapping[Maker, float] = {
    word: 5,
    invented: 4,
    sentence: 1.5,
    foreign: 2,
    emojis: 3,
    letters: 4,
    marks: 1,
    number: 1,
    marked: 3,
}


class Materials:
    """Strings to say again. `names` may be empty: then there are fewer kinds of them."""

    def __init__(self, names: NAMES_BY_LANGUAGE) -> None:
        self._makers: list[Maker] = list(PARTS)
        self._weights = list(PARTS.values())
        if names:
            self._makers.append(named(names))
            self._weights.append(4)

    def part(self, rng: random.Random) -> str:
        (make,) = rng.choices(self._makers, self._weights)
        return make(rng)

    def any(self, rng: random.Random, most: int) -> str:
        """A part, several in a row, or code; `most` parts at most."""
        dice = rng.random()
        if dice < 0.4:
            return self.part(rng)
        if dice < 0.52:
            return "".join(code(rng) for _ in range(rng.randint(1, 1 + most // 8)))
        parts: Sequence[str] = [self.part(rng) for _ in range(rng.randint(2, max(2, most)))]
        return rng.choice((" ", " ", " ", "\n", ", ")).join(parts)
