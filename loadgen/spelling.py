"""Prompts of so many tokens, made of words: what each word costs, and what is always there. Pure.

Common words with a space before them are pieces of their own to nearly every tokenizer, so their
costs add up. Who learnt the costs is `by`; without that a word counts as a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from random import Random

from conformance.capture import Json

BY_WORDS = "one English word a token"
BY_ENDPOINT = "the endpoint's /tokenize"
BY_USAGE = "calibrated from usage"
BY_FILE = "the tokenizer file"
# Common words that byte-pair vocabularies mostly hold whole, with their space.
_WORDS = """\
time year people way day man thing woman life child world school state family student group
country problem hand part place case week company system program question work number night
point home water room mother area money story fact month lot right study book eye job word
business issue side kind head house service friend father power hour game line end member law
car city name team minute idea body back parent face level office door health person art war
party result change morning reason research girl guy moment air teacher force education"""
WORDS = tuple(dict.fromkeys(_WORDS.split()))
OPENING = "The"  # stands before a first word that would else have no space
ENOUGH = 16  # words of one token; with so many the others are left out
NEAR = 64  # tokens from the end: from here on it is seen to that the rest can be filled

MARK_DIGITS = 12  # hexadecimal ones
_DIGITS, _LETTERS = "0123456789", "abcdef"
_PAIRS = MARK_DIGITS // 2
_MARKS = (len(_DIGITS) * len(_LETTERS)) ** _PAIRS
_APART = 28_834_650_787  # has no factor of _MARKS, and is about its golden section


def mark_of(seed: int | str, unit: int) -> str:
    """Hexadecimal digits that no other unit of the seed has, as long as there are 4·10¹⁰ of them.

    A digit and a letter in turn: tokenizers hold them apart, so every mark costs the same.
    """
    rest = (_first_mark(seed) + unit * _APART) % _MARKS
    found = []
    for _ in range(_PAIRS):
        rest, digit = divmod(rest, len(_DIGITS))
        rest, letter = divmod(rest, len(_LETTERS))
        found.append(_DIGITS[digit] + _LETTERS[letter])
    return "".join(found)


@lru_cache(maxsize=16)
def _first_mark(seed: int | str) -> int:
    return Random(f"{seed}:mark").randrange(_MARKS)


@dataclass(frozen=True, slots=True)
class Spelling:
    """`costs`: tokens of each word, empty where all cost `per_word`. `constant`: tokens of a prompt
    without any word (template and mark); `prefix`: those that a shared prefix adds to its text;
    `behind`: those that it has more, or fewer, where the mark stands last and OPENING first.
    `checked`: what a sample said of it, in words.
    """

    by: str = BY_WORDS
    words: tuple[str, ...] = WORDS
    costs: tuple[int, ...] = ()
    per_word: float = 1.0
    constant: float = 0.0
    prefix: float = 0.0
    behind: float = 0.0
    checked: str | None = None

    def text(self, rng: Random, tokens: float) -> str:
        """Words that cost so many tokens, or as nearly as words can; none for less than one."""
        if self.costs:
            return " ".join(self._filled(rng, round(tokens)))
        return " ".join(rng.choices(self.words, k=max(0, round(tokens / self.per_word))))

    def cost(self, text: str) -> float:
        """What `text` made of so many tokens really has."""
        words = text.split()
        if not self.costs:
            return len(words) * self.per_word
        of = dict(zip(self.words, self.costs, strict=True))
        return sum(of[word] for word in words)

    def _filled(self, rng: Random, left: int) -> list[str]:
        found, reached = [], _reached(self.costs)
        while left > 0:
            at = rng.randrange(len(self.words))
            if left <= NEAR:
                while left not in reached:
                    left -= 1
                fitting = [n for n, c in enumerate(self.costs) if left - c in reached]
                if not fitting:
                    break
                at = rng.choice(fitting)
            found.append(self.words[at])
            left -= self.costs[at]
        return found

    def described(self) -> dict[str, Json]:
        """What a report says of it."""
        return {
            "input_tokens_by": self.by,
            "tokens_a_word": None if self.costs else round(self.per_word, 4),
            "tokens_of_template_and_mark": self.constant if self.by != BY_WORDS else None,
            "tokens_checked": self.checked,
        }


@lru_cache(maxsize=16)
def _reached(costs: tuple[int, ...]) -> frozenset[int]:
    """The sums up to NEAR that words can have."""
    found = {0}
    for total in range(1, NEAR + 1):
        if any(total - cost in found for cost in costs):
            found.add(total)
    return frozenset(found)


PLAIN_WORDS = Spelling()


def learnt(by: str, costs: Sequence[int]) -> Spelling:
    """From the tokens of each of WORDS. Words of one token alone, where there are enough."""
    single = tuple(word for word, cost in zip(WORDS, costs, strict=True) if cost == 1)
    if len(single) >= ENOUGH:
        return Spelling(by, single)
    return Spelling(by, WORDS, tuple(costs))


def costs_from(ids: Sequence[int], between: int, words: int) -> tuple[int, ...] | None:
    """Tokens of each word from those of a text in which `between` stands around every one.

    None where they do not come apart like that.
    """
    costs = []
    at = [n for n, each in enumerate(ids) if each == between]
    if len(at) != words + 1:
        return None
    for start, end in pairwise(at):
        costs.append(end - start - 1)
    return tuple(costs) if min(costs, default=0) > 0 else None
