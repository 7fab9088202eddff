"""From a `Work` to a `Request`: token ids, how many tokens may follow, whether it can ever run."""

from __future__ import annotations

from dataclasses import dataclass

from reference_server.engine.interface import FinishReason, Work
from reference_server.engine.runner import Vocabulary
from reference_server.engine.sequence import Request, Sequence


class Refusal(Exception):
    """Why a request can never run, in one line."""


@dataclass(frozen=True, slots=True)
class Intake:
    """`context`: the most tokens of prompt and answer; `cache`: tokens that all blocks hold."""

    vocabulary: Vocabulary
    context: int
    cache: int

    def request(self, work: Work, seed: int) -> Request:
        """The request with all its choices. Raises Refusal."""
        try:
            known = work.prompt_ids
            prompt = self.vocabulary.encode(work.prompt) if known is None else known
            request = Request(work, prompt, seed)
            request.open = [self._choice(request, index) for index in range(work.n)]
        except Exception as error:  # a tokenizer's own, of whatever type
            raise Refusal(f"the prompt has no tokens: {one_line(error)}") from error
        self._check(len(request.prompt), request.open[0].most)
        return request

    def _choice(self, request: Request, index: int) -> Sequence:
        sampling, answer = request.work.sampling, request.work.answer
        path = self.vocabulary.path(sampling.stop, sampling.logprobs is not None)
        if sampling.min_tokens:
            path.watch(())  # not yet
        limit = self._limit(len(request.prompt), sampling.max_tokens)
        if answer is None:
            return Sequence(request, index, path, limit, FinishReason.LENGTH)
        forced = self.vocabulary.encode_answer(answer)
        if len(forced) < limit:
            return Sequence(request, index, path, len(forced), FinishReason.STOP, forced)
        return Sequence(request, index, path, limit, FinishReason.LENGTH, forced)

    def _limit(self, prompt: int, asked: int | None) -> int:
        """Tokens that may follow the prompt. Who asks for no number gets what there is."""
        if asked is None:
            # The last token is never fed to the model, so it needs no place in the cache.
            asked = self.cache - prompt + 1
        return max(0, min(self.context - prompt, asked))

    def _check(self, prompt: int, most: int) -> None:
        if not prompt:
            raise Refusal("the prompt has no tokens")
        if prompt > self.context:
            raise Refusal(f"the prompt has {prompt} tokens, the model's context is {self.context}")
        if most > self.cache:
            why = f"prompt and answer may need {most} tokens of cache, there are {self.cache}"
            raise Refusal(why)


def one_line(error: Exception) -> str:
    """What an exception says, up to its first line's end."""
    first = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first}"
