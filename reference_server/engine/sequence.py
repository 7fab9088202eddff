"""The state of one request and of each of its choices: tokens, text, and why a choice ends.

A choice is one *sequence*: the prompt and what was generated after it. Nothing here knows slots'
or blocks' numbers beyond keeping them; the scheduler deals them out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reference_server.engine.blocks import name_of
from reference_server.engine.interface import Delta, FinishReason, TokenLogprob, Work
from reference_server.engine.runner import Token, Vocabulary
from reference_server.engine.text import TextPath, spelled


@dataclass(slots=True, eq=False)
class Request:
    """What the choices of one `Work` share."""

    work: Work
    prompt: tuple[int, ...]
    seed: int
    open: list[Sequence] = field(default_factory=list)  # the choices that have not ended
    started: bool = False
    paused: bool = False
    generated: int = 0
    found: int = 0  # tokens of the prompt that were in the cache when it got its first seat
    scores: list[Token | None] = field(default_factory=list)  # of the prompt's tokens, for echo


@dataclass(slots=True, eq=False)
class Sequence:
    """One choice. Positions 0 … `computed` - 1 of its tokens are in the cache."""

    request: Request
    index: int
    path: TextPath
    limit: int  # tokens it may generate
    at_limit: FinishReason  # why it ends there
    forced: tuple[int, ...] | None = None
    generated: list[int] = field(default_factory=list)
    unreported: list[int] = field(default_factory=list)  # generated since the last Delta
    finish: FinishReason | None = None
    # What it holds while it runs.
    slot: int | None = None
    opened: bool = False  # the runner knows it
    table: list[int] = field(default_factory=list)
    computed: int = 0
    names: list[bytes] = field(default_factory=list)  # of its full blocks, as far as needed yet

    @property
    def key(self) -> tuple[str, int]:
        return self.request.work.id, self.index

    @property
    def most(self) -> int:
        """Tokens that will ever be in the cache: the last one is not fed to the model again."""
        return len(self.request.prompt) + max(0, self.limit - 1)

    @property
    def owed(self) -> int:
        """Tokens it may still generate."""
        return self.limit - len(self.generated)

    @property
    def prefilled(self) -> bool:
        return self.computed >= len(self.request.prompt)

    @property
    def scored(self) -> bool:
        """Whether it computes the scores of the prompt, for itself and the choices after it."""
        work = self.request.work
        return self.index == 0 and work.echo and work.sampling.logprobs is not None

    def tokens(self, start: int, stop: int) -> list[int]:
        """Of prompt and answer together."""
        prompt = self.request.prompt
        begun = max(0, start - len(prompt)), max(0, stop - len(prompt))
        return [*prompt[start:stop], *self.generated[slice(*begun)]]

    def name(self, place: int, block_size: int) -> bytes:
        """The name of its full block at `place` of the table."""
        while len(self.names) <= place:
            start = len(self.names) * block_size
            before = self.names[-1] if self.names else b""
            self.names.append(name_of(self.tokens(start, start + block_size), before))
        return self.names[place]

    def accept(self, token: Token, vocabulary: Vocabulary) -> None:
        """Take the next token. A token that ends the choice is counted, but is no text."""
        sampling = self.request.work.sampling
        if sampling.min_tokens and len(self.generated) == sampling.min_tokens:
            self.path.watch(sampling.stop)
        self.generated.append(token.id)
        self.unreported.append(token.id)
        self.request.generated += 1
        if self._ends_with(token.id, vocabulary.ends):
            self.finish = FinishReason.STOP
            return
        entry = None if sampling.logprobs is None else logprob(token, vocabulary)
        vocabulary.spell(self.path, token.id, entry)
        if self.path.stopped:
            self.finish = FinishReason.STOP
        elif not self.owed:
            self.finish = self.at_limit

    def _ends_with(self, token: int, ends: frozenset[int]) -> bool:
        sampling = self.request.work.sampling
        if self.forced is not None or len(self.generated) <= sampling.min_tokens:
            return False
        return token in sampling.stop_token_ids or (token in ends and not sampling.ignore_eos)

    def report(self) -> Delta | None:
        """What became certain since the last time."""
        text, entries = self.path.take()
        if self.finish:
            rest, last = self.path.close()
            text, entries = text + rest, entries + last
            if self.path.stopped:
                self.finish = FinishReason.STOP
        if not (text or self.finish):
            return None
        ids, self.unreported = tuple(self.unreported), []
        return Delta(*self.key, text, len(ids), entries, self.finish, ids)


def logprob(token: Token, vocabulary: Vocabulary) -> TokenLogprob:
    """A token's score as the answer shows it."""
    raw = vocabulary.raw(token.id)
    others = ((vocabulary.raw(other), score) for other, score in token.top)
    top = tuple((spelled(each), each, score) for each, score in others)
    return TokenLogprob(spelled(raw), raw, token.logprob, top)


def echo(sequence: Sequence, vocabulary: Vocabulary) -> Delta:
    """The prompt, given back before the answer, with its scores if there are any.

    The very first token has no score: nothing stands before it.
    """
    request = sequence.request
    if request.work.sampling.logprobs is None:
        return Delta(*sequence.key, request.work.prompt, 0)
    path = vocabulary.path((), aligned=True, whole=True)
    for token, score in zip(request.prompt, request.scores, strict=True):
        vocabulary.spell(path, token, logprob(score or Token(token), vocabulary))
    text, entries = path.take()
    rest, last = path.close()
    return Delta(*sequence.key, text + rest, 0, entries + last)
