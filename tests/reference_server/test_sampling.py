"""Sampling against transformers' own processors, against counts, and against itself in company."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference_server.engine.interface import Sampling
from reference_server.engine.runner import UNSOUND, Draw, Token

torch = pytest.importorskip("torch", reason="torch is not installed (make reference installs it)")
theirs = pytest.importorskip("transformers.generation.logits_process")
sampling = pytest.importorskip("reference_server.engine.sampling")
chance = pytest.importorskip("reference_server.engine.chance")

pytestmark = pytest.mark.torch

VOCAB = 97
END = 5
PROMPT = (3, 8, 8, 40)


def logits(rows: int, seed: int, vocab: int = VOCAB, spread: float = 3) -> Any:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * spread


def sampler(
    *asked: Sampling,
    vocab: int = VOCAB,
    seed: int = 11,
    prompt: tuple[int, ...] = PROMPT,
    forced: tuple[int, ...] | None = None,
) -> Any:
    """One slot for each, all of them with one seed."""
    out = sampling.Sampler(len(asked), vocab, frozenset({END}), "cpu")
    for slot, one in enumerate(asked):
        out.open(slot, Draw(one, 0, seed, prompt, forced))
    return out


def ids(tokens: Sequence[Token]) -> list[int]:
    return [token.id for token in tokens]


def columns(*asked: Sampling) -> Any:
    return sampler(*asked)._columns(torch.arange(len(asked)))


def greedy(**more: Any) -> Sampling:
    return Sampling(temperature=0, **more)


# -- what is likeliest ---------------------------------------------------------------------------


def test_temperature_0_is_the_likeliest_token_and_of_equal_ones_the_lowest() -> None:
    given_logits = torch.tensor([[1.0, 7.0, 7.0, 0.0], [2.0, 1.0, 0.0, 2.0]])
    assert ids(sampler(greedy(), greedy(), vocab=4).sample(given_logits, [0, 1])) == [1, 0]


def test_temperature_0_is_the_likeliest_token_among_rows_that_draw() -> None:
    mixed = sampler(Sampling(), greedy(), Sampling(top_k=3), greedy(top_p=0.1))
    for step in range(40):
        rows = logits(4, step, spread=0.1)
        assert ids(mixed.sample(rows, range(4)))[1::2] == rows.argmax(-1).tolist()[1::2]


def test_a_temperature_of_next_to_nothing_draws_the_likeliest_without_overflow() -> None:
    rows = logits(2, 1) * torch.tensor([[1.0], [1e6]])
    tokens = sampler(Sampling(temperature=1e-300), Sampling(temperature=1e-37)).sample(rows, [0, 1])
    assert ids(tokens) == rows.argmax(-1).tolist()


# -- transformers' processors as oracle ----------------------------------------------------------


def kept(asked: Sampling, scores: Any) -> Any:
    """Which ids may be drawn, by ours."""
    chances = (scores / asked.temperature).softmax(-1)
    rows = columns(asked)
    return chances >= chance.least(chances, rows.top_k, rows.top_p, rows.min_p)


def kept_by_theirs(asked: Sampling, scores: Any) -> Any:
    scores = theirs.TemperatureLogitsWarper(asked.temperature)(None, scores)
    if asked.top_k:
        scores = theirs.TopKLogitsWarper(asked.top_k)(None, scores)
    if asked.top_p < 1:
        scores = theirs.TopPLogitsWarper(asked.top_p)(None, scores)
    if asked.min_p > 0:
        scores = theirs.MinPLogitsWarper(asked.min_p)(None, scores)
    return scores > float("-inf")


@pytest.mark.parametrize("seed", range(60))
def test_what_may_be_drawn_is_what_transformers_leaves(seed: int) -> None:
    rng = random.Random(seed)
    asked = Sampling(
        temperature=rng.choice((0.3, 1.0, 1.7)),
        top_k=rng.choice((None, 1, 4, 50, 96, 97)),
        top_p=rng.choice((1.0, 0.95, 0.5, 0.03)),
        min_p=rng.choice((0.0, 0.02, 0.4)),
    )
    scores = logits(1, seed)
    assert torch.equal(kept(asked, scores), kept_by_theirs(asked, scores)), f"seed {seed}: {asked}"


@pytest.mark.parametrize("top_p", [0.2, 0.9, 0.999])
def test_a_nucleus_of_thousands_of_tokens_is_transformers_too(top_p: float) -> None:
    scores, asked = logits(1, 5, vocab=9_000, spread=0.5), Sampling(top_p=top_p)
    ours = kept(asked, scores)
    assert torch.equal(ours, kept_by_theirs(asked, scores))
    assert (int(ours.sum()) > 4096) == (top_p > 0.5)


def test_tokens_as_likely_as_the_last_one_kept_stay() -> None:
    scores = torch.tensor([[0.0, 2.0, 1.0, 1.0, 1.0]])
    for asked in (Sampling(top_k=2), Sampling(top_p=0.6)):
        assert kept(asked, scores).tolist() == [[False, True, True, True, True]]


def penalised(asked: Sampling, scores: Any, answer: list[int], seen: list[int]) -> Any:
    """Row by row, as transformers and the API's formula say."""
    if asked.repetition_penalty != 1:
        process = theirs.RepetitionPenaltyLogitsProcessor(asked.repetition_penalty)
        scores = process(torch.tensor([seen]), scores)
    for token in set(answer):
        count = answer.count(token)
        scores[0, token] -= asked.frequency_penalty * count + asked.presence_penalty
    for token, bias in asked.logit_bias:
        scores[0, token] += bias
    process = theirs.MinNewTokensLengthLogitsProcessor(
        len(PROMPT), asked.min_tokens, torch.tensor([END, *asked.stop_token_ids])
    )
    return process(torch.tensor([seen]), scores)


SHAPES = (
    greedy(repetition_penalty=1.3),
    greedy(repetition_penalty=0.7),
    greedy(presence_penalty=1.5),
    greedy(frequency_penalty=0.6),
    greedy(presence_penalty=-2.0, frequency_penalty=0.3, repetition_penalty=1.1),
    greedy(logit_bias=((7, 4.0), (8, -100.0), (END, 3.0))),
    greedy(min_tokens=12, stop_token_ids=(9, 10), ignore_eos=True),
    greedy(),
    greedy(min_tokens=30, logit_bias=((END, 100.0), (9, 100.0)), presence_penalty=0.4),
)


def test_penalties_bias_and_least_lengths_are_what_transformers_and_the_formula_say() -> None:
    mixed, answers = sampler(*SHAPES), [list[int]() for _ in SHAPES]
    favoured = torch.zeros(VOCAB)
    favoured[[END, 7, 8, 9, 40]] = 2.5
    for step in range(50):
        rows = logits(len(SHAPES), step, spread=1) + favoured - (10 if step % 2 else 0)
        tokens = ids(mixed.sample(rows, range(len(SHAPES))))
        for row, (asked, answer) in enumerate(zip(SHAPES, answers, strict=True)):
            scores = rows[row : row + 1].clone()
            expected = int(penalised(asked, scores, answer, [*PROMPT, *answer]).argmax())
            assert tokens[row] == expected, f"step {step}: {asked}"
            answer.append(expected)
    assert END in answers[6][12:]
    assert END in answers[7]


# -- chance --------------------------------------------------------------------------------------


def test_the_random_numbers_are_those_of_splitmix64() -> None:
    # The first five of the seed 1234567, as the generator's authors' C code prints them.
    published = (
        *(6457827717110365317, 3203168211198807973, 9817491932198370423),
        *(4593380528125082431, 16408922859458223821),
    )
    key = torch.full((5,), 1234567)
    ours = chance.uniform(key, torch.arange(5)).tolist()
    assert ours == [(word >> 11) / 2**53 for word in published]


def test_choices_and_seeds_have_numbers_of_their_own() -> None:
    keys = {chance.key(seed, choice) for seed in range(-20, 20) for choice in range(20)}
    assert len(keys) == 800
    assert chance.key(3, 1) == chance.key(3 + 2**64, 1)


def chi_square(counts: Any, expected: Any) -> float:
    some = expected > 0
    assert int(counts[~some].sum()) == 0, "drawn, though it has no chance"
    return float(((counts[some] - expected[some]) ** 2 / expected[some]).sum())


DRAWS = (
    Sampling(),
    Sampling(temperature=0.5),
    Sampling(temperature=1.8, top_k=5),
    Sampling(top_p=0.8),
    Sampling(min_p=0.1, temperature=1.2),
    Sampling(top_k=6, top_p=0.9, min_p=0.05),
)


@pytest.mark.parametrize("asked", DRAWS)
def test_tokens_come_as_often_as_their_chance_says(asked: Sampling) -> None:
    scores, rows, steps = logits(1, 3, vocab=12, spread=1.5), 256, 40
    drawing = sampling.Sampler(rows, 12, frozenset(), "cpu")
    for slot in range(rows):
        drawing.open(slot, Draw(asked, choice=slot % 4, seed=slot // 4, prompt=PROMPT))
    counts = torch.zeros(12)
    for _ in range(steps):
        tokens = torch.tensor(ids(drawing.sample(scores.expand(rows, -1), range(rows))))
        counts += tokens.bincount(minlength=12)
    chances = (scores / asked.temperature).softmax(-1) * kept_by_theirs(asked, scores)
    expected = (chances / chances.sum()).squeeze(0) * rows * steps
    # 11 degrees of freedom at most: 31.3 is passed once in a thousand seeds.
    assert chi_square(counts, expected) < 31.3


def test_neighbouring_positions_choices_and_seeds_tell_nothing_of_each_other() -> None:
    keys = torch.tensor([[chance.key(s, c) for c in range(40)] for s in range(40)])
    numbers = chance.uniform(keys.unsqueeze(-1), torch.arange(40)) - 0.5
    assert abs(float(numbers.mean())) < 0.005
    for axis in range(3):
        near = numbers.narrow(axis, 0, 39) * numbers.narrow(axis, 1, 39)
        assert abs(float(near.mean()) * 12) < 0.02, axis


def test_a_weight_is_drawn_exactly_up_to_its_last_share() -> None:
    weights, share = torch.tensor([[0, 2, 0, 1, 1]]), 0.25
    drawn = [
        int(chance.inverse(weights.clone(), torch.tensor([[number]], dtype=torch.float64)))
        for number in (0.0, 2 * share - 1e-12, 2 * share, 3 * share, 1 - 2**-53)
    ]
    assert drawn == [1, 1, 3, 4, 4]


# -- company -------------------------------------------------------------------------------------

ZOO = (
    *DRAWS,
    *SHAPES,
    Sampling(logprobs=3),
    Sampling(temperature=0.7, repetition_penalty=1.4, logprobs=0, top_p=0.7),
    Sampling(frequency_penalty=0.5, min_tokens=6, logit_bias=((END, 5.0),), top_k=20),
)
STEPS = 12


def alone(asked: Sampling, row: int) -> list[Token]:
    one = sampling.Sampler(1, VOCAB, frozenset({END}), "cpu")
    one.open(0, Draw(asked, choice=row, seed=row, prompt=PROMPT))
    return [one.sample(logits(len(ZOO), s)[row : row + 1], [0])[0] for s in range(STEPS)]


@pytest.mark.parametrize("seed", range(6))
def test_a_row_gives_the_same_tokens_alone_and_in_any_company(seed: int) -> None:
    """Rows come and go, in any order and in any slots; log-probabilities are equal to the bit."""
    rng = random.Random(seed)
    slots = rng.sample(range(40), len(ZOO))
    together = sampling.Sampler(40, VOCAB, frozenset({END}), "cpu")
    for row, asked in enumerate(ZOO):
        together.open(slots[row], Draw(asked, choice=row, seed=row, prompt=PROMPT))
    out: list[list[Token]] = [[] for _ in ZOO]
    while unfinished := [row for row, tokens in enumerate(out) if len(tokens) < STEPS]:
        rows = rng.sample(unfinished, rng.randint(1, len(unfinished)))
        given_logits = torch.stack([logits(len(ZOO), len(out[row]))[row] for row in rows])
        tokens = together.sample(given_logits, [slots[row] for row in rows])
        for row, token in zip(rows, tokens, strict=True):
            out[row].append(token)
    for row, asked in enumerate(ZOO):
        assert out[row] == alone(asked, row), f"seed {seed}: {asked}"


def test_a_slot_forgets_its_last_choice_also_beside_one_that_asks_for_everything() -> None:
    everything = greedy(logit_bias=((90, 0.1),), presence_penalty=0.1, min_tokens=90)
    first = Sampling(frequency_penalty=2, logit_bias=((PROMPT[1], 50.0),), min_tokens=9, top_k=1)
    used = sampler(first, everything)
    for step in range(5):
        used.sample(logits(2, step, spread=0.3), [0, 1])
    for asked in (Sampling(), Sampling(repetition_penalty=1.2), greedy(presence_penalty=2.0)):
        used.close(0)
        used.open(0, Draw(asked, choice=0, seed=11, prompt=PROMPT))
        fresh = sampler(asked)
        for step in range(5):
            rows = logits(2, step, spread=0.3)
            rows[:, PROMPT[1]] += 2  # what the last choice was made to say
            assert used.sample(rows, [0, 1])[:1] == fresh.sample(rows[:1], [0])


def operations(rows: int) -> int:
    mixed = sampler(*(ZOO[row % len(ZOO)] for row in range(rows)))
    mixed.sample(logits(rows, 0), range(rows))
    with torch.profiler.profile() as seen:
        mixed.sample(logits(rows, 1), range(rows))
    return sum(event.count for event in seen.key_averages() if event.key.startswith("aten::"))


def test_a_batch_of_any_width_is_one_computation() -> None:
    assert operations(18) == operations(36)


# -- log-probabilities, forced tokens, edges -----------------------------------------------------


def test_logprobs_are_of_the_models_own_distribution_best_first() -> None:
    asked = Sampling(temperature=0.2, logprobs=4, logit_bias=((6, 100.0),), top_k=1)
    rows = logits(1, 9)
    token = sampler(asked).sample(rows, [0])[0]
    logs = rows.double().log_softmax(-1)[0]
    assert token.id == 6
    assert token.logprob == pytest.approx(float(logs[6]), abs=1e-5)
    assert [one for one, _ in token.top] == logs.topk(4).indices.tolist()
    assert [log for _, log in token.top] == pytest.approx(logs.topk(4).values.tolist(), abs=1e-5)


def test_what_has_no_chance_at_all_has_a_number_that_json_can_write() -> None:
    rows = torch.tensor([[0.0, float("-inf"), 1.0]])
    for token in sampler(greedy(logprobs=3), vocab=3, forced=(1,)).sample(rows, [0]):
        assert (token.logprob, token.top[2]) == (-9999.0, (1, -9999.0))


def test_a_draw_that_asks_for_no_logprobs_gets_none_beside_one_that_does() -> None:
    quiet, none, two = sampler(greedy(), greedy(logprobs=0), greedy(logprobs=2)).sample(
        logits(3, 2), [0, 1, 2]
    )
    assert (quiet.logprob, quiet.top) == (None, ())
    assert none.logprob is not None
    assert none.top == ()
    assert two.top[0] == (two.id, two.logprob)
    assert len(two.top) == 2


def test_forced_tokens_come_whatever_the_model_wants_with_the_models_opinion() -> None:
    forced = sampler(greedy(logprobs=1, presence_penalty=2.0), forced=(9, END, 9))
    rows = logits(1, 4)
    tokens = [forced.sample(rows, [0])[0] for _ in range(3)]
    assert ids(tokens) == [9, END, 9]
    assert tokens[0].logprob == pytest.approx(float(rows.log_softmax(-1)[0, 9]), abs=1e-6)


def test_only_the_forced_rows_are_forced() -> None:
    mixed = sampler(greedy(), greedy())
    mixed.open(1, Draw(greedy(), choice=0, seed=1, prompt=PROMPT, forced=(17,)))
    rows = logits(2, 8)
    assert ids(mixed.sample(rows, [0, 1])) == [int(rows[0].argmax()), 17]


def test_an_end_may_be_drawn_under_ignore_eos_but_not_before_the_least_length() -> None:
    rows = torch.zeros(1, VOCAB)
    rows[0, END] = 50
    patient = sampler(Sampling(ignore_eos=True, min_tokens=2))
    drawn = [patient.sample(rows, [0])[0].id for _ in range(4)]
    assert END not in drawn[:2]
    assert drawn[2:] == [END, END]


def test_ids_that_the_model_has_not_change_nothing() -> None:
    odd = greedy(
        logit_bias=((VOCAB, 100.0), (10**9, 100.0)),
        min_tokens=3,
        stop_token_ids=(VOCAB, 7000),
        repetition_penalty=1.1,
    )
    one = sampler(odd, prompt=(VOCAB + 3, 2))
    assert ids(one.sample(logits(1, 6), [0])) == logits(1, 6).argmax(-1).tolist()


def test_scores_are_the_log_probabilities_of_the_given_tokens() -> None:
    rows = logits(3, 7)
    scores = sampler(greedy()).scores(rows, [1, 2, 3], 2)
    logs = rows.log_softmax(-1)
    assert ids(scores) == [1, 2, 3]
    assert [one.logprob for one in scores] == [float(logs[row, row + 1]) for row in range(3)]
    assert [one.top[0][0] for one in scores] == rows.argmax(-1).tolist()
    assert sampler(greedy()).scores(rows[:0], [], 2) == []


def test_the_logits_stay_as_they_were() -> None:
    rows = logits(len(ZOO), 3)
    before = rows.clone()
    sampler(*ZOO).sample(rows, range(len(ZOO)))
    assert torch.equal(rows, before)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    temperature=st.floats(0.01, 2),
    top_k=st.none() | st.integers(1, 120),
    top_p=st.floats(0, 1),
    min_p=st.floats(0, 1),
    seed=st.integers(-(2**63), 2**63 - 1),
    at=st.integers(0, 1000),
)
def test_whatever_is_asked_something_that_is_allowed_is_drawn_and_again_the_same(
    temperature: float, top_k: int | None, top_p: float, min_p: float, seed: int, at: int
) -> None:
    asked = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    scores = logits(1, at)
    once, again = (sampler(asked, seed=seed).sample(scores, [0])[0].id for _ in range(2))
    assert once == again
    assert bool(kept(asked, scores)[0, once])


# -- logits that are no numbers ------------------------------------------------------------------

INFINITE, NAN = float("inf"), float("nan")
ANY = (greedy(), Sampling(), Sampling(top_p=0.5), greedy(logprobs=2), Sampling(top_k=3, logprobs=5))
PENAL = Sampling(repetition_penalty=2.0, frequency_penalty=1.0, min_tokens=3, logit_bias=((1, 5),))


@pytest.mark.parametrize("what", [NAN, INFINITE, "all out"])
@pytest.mark.parametrize("asked", [*ANY, PENAL], ids=range(6))
def test_a_row_without_numbers_is_marked_and_its_neighbours_draw_as_before(
    what: Any, asked: Sampling
) -> None:
    rows = logits(4, 3)
    whole = sampler(asked, *ANY[:2], asked).sample(rows.clone(), range(4))
    rows[0, 7 if what != "all out" else slice(None)] = -INFINITE if what == "all out" else what
    mixed = sampler(asked, *ANY[:2], asked)
    assert mixed.sample(rows, range(4)) == [UNSOUND, *whole[1:]]
    later = mixed.sample(logits(3, 4), range(1, 4))
    assert all(isinstance(token, Token) for token in later)


@pytest.mark.parametrize("asked", [*ANY, PENAL], ids=range(6))
def test_minus_infinity_is_no_chance_and_nothing_worse(asked: Sampling) -> None:
    rows = logits(1, 3)
    rows[0, : VOCAB // 2] = -INFINITE
    (token,) = sampler(asked).sample(rows, [0])
    assert token.id >= VOCAB // 2


def test_scores_of_rows_without_numbers_are_marked() -> None:
    rows = logits(3, 5)
    rows[1, 2] = NAN
    first, second, third = sampler(greedy()).scores(rows, [1, 2, 3], 2)
    assert second is UNSOUND
    assert isinstance(first, Token)
    assert isinstance(third, Token)
    assert first.logprob == pytest.approx(float(rows[0].log_softmax(-1)[1]))
