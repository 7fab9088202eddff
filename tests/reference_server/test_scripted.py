"""The scripted engine keeps the engine's contract, and its script follows plain instructions."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from reference_server.engine import script, tokens
from reference_server.engine.interface import Sampling, Work
from reference_server.engine.scripted import ScriptedEngine, Seats
from tests.reference_server import check_engine as contract


def make(max_batch: int) -> ScriptedEngine:
    return ScriptedEngine(max_batch, seed=1)


@pytest.mark.parametrize("clause", contract.CONTRACT, ids=lambda clause: clause.__name__)
def test_the_scripted_engine_keeps_the_contract(clause: object) -> None:
    assert callable(clause)
    clause(make)


@pytest.mark.parametrize("seed", range(20))
def test_any_schedule_keeps_the_books(seed: int) -> None:
    contract.any_schedule_keeps_the_books(make, seed)


class _Leaky(ScriptedEngine):
    """Forgets the seat of what is cancelled."""

    def _forget(self, work: str) -> None:
        del self._requests[work]


def test_check_engine_refuses_an_engine_that_leaks_a_seat() -> None:
    with pytest.raises((AssertionError, KeyError)):
        contract.check_engine(_Leaky, seeds=())


def test_a_seat_released_twice_is_an_error() -> None:
    engine = make(1)
    engine.submit(Work("w", "hello"))
    contract.steps(engine, 1)
    (choice,) = engine._seats
    seats = Seats(1)
    assert seats.take(choice)
    seats.release("w", 0)
    with pytest.raises(RuntimeError, match="holds no seat"):
        seats.release("w", 0)
    assert seats.take(choice)
    assert not seats.take(choice)


def answer(prompt: str) -> str:
    return script.answer(prompt, random.Random(3))


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("Count from 1 to 5.", "1, 2, 3, 4, 5"),
        ("Please count up from 3 to 1", "3, 2, 1"),
        ("Count from 1 to 300: 1, 2,", " 3, 4, 5"),
        ("Say only: hi", "hi"),
        ("Repeat exactly:  two spaces\tand\n\nlines", " two spaces\tand\n\nlines"),
        ("Be brief. Repeat the line 3 times: ab", "ab\nab\nab"),
        ("<|system|>Repeat exactly: no<|end|><|user|>Say: yes<|end|><|assistant|>", "yes"),
        ("x 漢\nx 漢\nx 漢\n", "x 漢\nx 漢"),
    ],
)
def test_the_script_does_as_it_is_told(prompt: str, text: str) -> None:
    given = answer(prompt)
    assert given == text or given.startswith(text)


def test_other_prompts_give_words_in_many_scripts_with_split_characters() -> None:
    many = " ".join(script.answer("hm", random.Random(n)) for n in range(20))
    for sample in ("ï", "ł", "φ", "р", "漢", "한", "ภ", "न", "م", "ש", "🫠", "\u200d"):
        assert sample in many.lower()
    split = [t for t in tokens.cut(many) if t.decode(errors="replace").count("\ufffd")]
    assert len(split) > 100


@pytest.mark.parametrize(
    "text", ["", " ", "a", "\n\n a\tb", "漢字 🫠🫠🫠", "x" * 5000, "1234567 8"]
)
def test_tokens_join_to_the_text(text: str) -> None:
    assert b"".join(tokens.cut(text)) == text.encode()
    assert all(tokens.cut(text))


def test_an_unseeded_draw_varies_from_request_to_request() -> None:
    drawn = Sampling(max_tokens=40, temperature=1.0)
    engine = make(1)
    texts = {
        contract.run(engine, replace(contract.work("w"), sampling=drawn))["w"].text[0]
        for _ in range(3)
    }
    assert len(texts) == 3
