"""What a request asks of this very model: prompts that can be too long, ids that may not exist."""

from __future__ import annotations

from typing import Any

import pytest

from reference_server.engine.batching import BatchingEngine
from reference_server.engine.interface import Engine
from reference_server.engine.scripted import ScriptedEngine
from tests.reference_server.client import (
    CHAT,
    COMPLETIONS,
    Reply,
    ask,
    chat,
    completion,
    run,
    serving,
)
from tests.reference_server.fake_model import VOCABULARY, FakeRunner, FakeVocabulary

DETOKENIZE, TOKENIZE = "/detokenize", "/tokenize"


class Counting(FakeVocabulary):
    """How many characters were cut into tokens, over all calls."""

    def __init__(self) -> None:
        self.cut = 0

    def encode(self, prompt: str) -> tuple[int, ...]:
        self.cut += len(prompt)
        return super().encode(prompt)


def with_ids(vocabulary: FakeVocabulary = VOCABULARY) -> BatchingEngine:
    return BatchingEngine(FakeRunner(), vocabulary, max_batch=4)


def posted(path: str, body: object, engine: Engine) -> Reply:
    out: list[Reply] = []

    async def main() -> None:
        async with serving(engine=engine) as running:
            out.append(await running.post(path, body))

    run(main)
    return out[0]


# -- prompts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [chat("a" * 10**6), completion("漢" * 300_000)], ids=["ascii", "wide"]
)
def test_a_prompt_that_is_too_long_by_its_bytes_is_refused_before_it_is_cut(
    body: dict[str, object],
) -> None:
    words = Counting()
    reply = posted(CHAT if "messages" in body else COMPLETIONS, body, with_ids(words))
    assert reply.status == 400
    error = reply.json["error"]
    assert error["code"] == "context_length_exceeded"
    assert "the prompt has at least " in error["message"]
    assert words.cut == 0


@pytest.mark.parametrize("engine", [with_ids, lambda: ScriptedEngine(1, context=1024)])
def test_the_longest_prompt_that_may_be_right_is_counted(engine: Any) -> None:
    """As many bytes as the context can hold: whether they are too many its tokens tell."""
    made = engine()
    size = made.context * made.longest
    for length, said in ((size, "the prompt has "), (size + 1, "the prompt has at least 1025")):
        reply = posted(COMPLETIONS, completion("x" * length), made)
        assert reply.status == 400
        assert said in reply.json["error"]["message"]
        assert ("at least" in reply.json["error"]["message"]) is (length > size)


@pytest.mark.parametrize("stream", [True, False])
def test_a_prompt_is_cut_once(stream: bool) -> None:
    words = Counting()
    body = completion("Tell me more", n=2, stream=stream, return_token_ids=True, max_tokens=2)
    assert posted(COMPLETIONS, body, with_ids(words)).status == 200
    assert words.cut == len("Tell me more")


# -- ids -----------------------------------------------------------------------------------------

SIZE = VOCABULARY.size


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("name", "last", "beyond"),
    [
        ("logit_bias", {str(SIZE - 1): 1}, {"3": 1, str(SIZE): 1}),
        ("stop_token_ids", [0, SIZE - 1], [0, SIZE]),
    ],
)
def test_an_id_that_no_token_has_is_refused_in_one_line(
    path: str, stream: bool, name: str, last: object, beyond: object
) -> None:
    body = chat() if path == CHAT else completion()
    body |= {"max_tokens": 2, "stream": stream}
    assert posted(path, {**body, name: last}, with_ids()).status == 200
    refused = posted(path, {**body, name: beyond}, with_ids())
    assert refused.status == 400
    error = refused.json["error"]
    expected = f"token ids below {SIZE}, the size of the vocabulary"
    assert error["message"] == f"{name}: expected {expected}, got {SIZE}"
    assert error["param"] == name


def test_an_id_that_no_token_has_cannot_be_spelled() -> None:
    assert posted(DETOKENIZE, {"tokens": [SIZE - 1]}, with_ids()).status == 200
    refused = posted(DETOKENIZE, {"tokens": [0, SIZE + 7]}, with_ids())
    assert (refused.status, refused.json["error"]["param"]) == (400, "tokens")
    assert f"got {SIZE + 7}" in refused.json["error"]["message"]


@pytest.mark.parametrize("body", [{}, {"tokens": None}])
def test_without_ids_there_is_nothing_to_spell(body: dict[str, None]) -> None:
    refused = posted(DETOKENIZE, body, with_ids())
    assert (refused.status, refused.json["error"]["param"]) == (400, "tokens")
    assert posted(DETOKENIZE, {"tokens": []}, with_ids()).json == {"prompt": ""}


def test_a_prompt_of_ids_is_refused_in_one_line() -> None:
    refused = posted(COMPLETIONS, completion([1, SIZE + 7]), with_ids())
    assert refused.status == 400
    assert refused.json["error"]["message"].startswith("prompt: expected a string or an array of")


def test_the_scripted_model_has_no_ids_and_passes_over_them() -> None:
    assert ask(chat(logit_bias={"2000000000": 1}, stop_token_ids=[2**31 - 1])).status == 200


# -- /tokenize -----------------------------------------------------------------------------------


def test_a_prompt_and_messages_exclude_each_other() -> None:
    both = {"prompt": "hi", "messages": [{"role": "user", "content": "hi"}]}
    refused = posted(TOKENIZE, both, with_ids())
    assert (refused.status, refused.json["error"]["param"]) == (400, "prompt")
    assert "prompt and messages exclude each other" in refused.json["error"]["message"]
    assert posted(TOKENIZE, {**both, "prompt": None}, with_ids()).status == 200
