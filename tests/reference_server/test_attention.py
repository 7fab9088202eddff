"""Packed rows over a paged cache against each model's own attention, and against themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (make reference installs it)")
pytest.importorskip("transformers", reason="transformers is not installed")
attention = pytest.importorskip("reference_server.engine.attention")
caches = pytest.importorskip("reference_server.engine.cache")
models = pytest.importorskip("tests.reference_server.random_models")

pytestmark = pytest.mark.torch

FAMILIES = ("gpt2", "llama", "qwen3", "mistral", "gemma2", "gemma3")
WIDTHS = (1, 2, 3, 4, 5, 7, 8, 16, 31, 32)
MARGIN = 1e-4  # of a decision: how far the likeliest token is from the second
LENGTH = 41
DTYPES = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"]
)
# Blocks of four, in no order: nothing of it is a slice.
SCATTERED = (9, 3, 17, 1, 12, 30, 5, 22, 8, 2, 27)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Models this small gain nothing from a second one, and lose much on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def off(ours: Any, theirs: Any) -> float:
    return float((ours - theirs).abs().max() / theirs.std())


# -- one sequence ------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chunk", [1, 5, 16, 100])
@pytest.mark.parametrize("table", [SCATTERED, tuple(range(3, 14))], ids=["scattered", "one run"])
def test_a_prompt_in_chunks_has_the_logits_of_the_model_itself(
    family: str, chunk: int, table: tuple[int, ...]
) -> None:
    tokens = models.prompt(LENGTH)
    ours = models.fed(models.runner(family), tokens, table, chunk)
    assert off(ours, models.own_logits(models.pair(family)[0], tokens)) < 1e-4


def test_long_prompts_attend_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = models.prompt(LENGTH)
    monkeypatch.setattr(attention, "QUERIES", 6)
    for family in FAMILIES:
        ours = models.fed(models.runner(family), tokens, SCATTERED, chunk=20)
        assert off(ours, models.own_logits(models.pair(family)[0], tokens)) < 1e-4, family


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("together", [0, 1 << 40], ids=["one after the other", "together"])
def test_rows_of_different_lengths_have_the_logits_of_each_alone(
    family: str, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reference_server.engine.torch_runner.TOGETHER_BYTES", together)
    prompts = [models.prompt(length) for length in (1, 6, 8, 9, 23, 40)]
    runner = models.runner(family)
    free = iter([*SCATTERED, *(block for block in range(64) if block not in SCATTERED)])
    tables = [[next(free) for _ in range(-(-len(p) // 4))] for p in prompts]
    for tokens, table in zip(prompts, tables, strict=True):
        if len(tokens) > 1:
            models.fed(runner, tokens[:-1], table)
    rows = [models.row(*one) for one in zip(prompts, tables, strict=True)]
    own = models.pair(family)[0]
    theirs = torch.stack([models.own_logits(own, tokens)[-1] for tokens in prompts])
    assert off(runner.row_logits(rows), theirs) < 1e-4


def test_only_the_logits_that_are_asked_for_are_computed() -> None:
    runner = models.runner("llama")
    chunk = models.Chunk(0, 0, models.prompt(6), (0, 1), last=False)
    assert runner.prompt_logits(chunk).numel() == 0
    last = models.Chunk(0, 6, models.prompt(2), (0, 1), last=True)
    assert runner.prompt_logits(last).shape == (1, models.VOCABULARY)


# -- what must not matter ----------------------------------------------------------------------


def rows_of(runner: Any, width: int) -> list[Any]:
    """`width` sequences in the cache, eight blocks each, every second one's in no order."""
    rows = []
    for slot in range(width):
        tokens = models.prompt(2 + slot * 7 % 29, seed=slot)
        step = 3 if slot % 2 else 1
        table = [slot * 8 + place * step % 8 for place in range(8)]
        models.fed(runner, tokens[:-1], table)
        rows.append(models.row(tokens, table, slot))
    return rows


def check_widths(family: str, dtype: Any) -> None:
    runner = models.runner(family, blocks=256, batch_invariant=True, dtype=dtype)
    rows = rows_of(runner, 32)
    alone = torch.cat([runner.row_logits([row]) for row in rows])
    for width in WIDTHS:
        assert torch.equal(runner.row_logits(rows[:width]), alone[:width]), width
        assert torch.equal(runner.row_logits(rows[-width:]), alone[-width:]), width


@DTYPES
@pytest.mark.parametrize("family", FAMILIES)
def test_batch_invariant_logits_are_bitwise_equal_at_every_width(family: str, dtype: Any) -> None:
    check_widths(family, dtype)


@pytest.mark.slow
@DTYPES
@pytest.mark.parametrize("family", FAMILIES)
def test_batch_invariant_logits_are_bitwise_equal_with_two_threads(family: str, dtype: Any) -> None:
    torch.set_num_threads(2)
    check_widths(family, dtype)


@pytest.mark.parametrize("family", FAMILIES)
def test_batch_invariant_logits_do_not_depend_on_where_a_prompt_is_cut(family: str) -> None:
    tokens = models.prompt(LENGTH)
    runner = models.runner(family, batch_invariant=True)
    whole = models.fed(runner, tokens, SCATTERED)
    for chunk in (1, 3, 4, 16):
        again = models.runner(family, batch_invariant=True)
        assert torch.equal(models.fed(again, tokens, range(11), chunk), whole), chunk
    assert torch.equal(runner.row_logits([models.row(tokens, SCATTERED)])[0], whole[-1])
    last = models.Chunk(0, 0, tokens, SCATTERED, last=True)
    assert torch.equal(runner.prompt_logits(last)[0], whole[-1])


@DTYPES
@pytest.mark.parametrize("family", FAMILIES)
def test_decisions_with_a_margin_do_not_depend_on_the_width(family: str, dtype: Any) -> None:
    """In bfloat16 the margin is what its eight bits leave of logits of this size."""
    runner = models.runner(family, blocks=256, dtype=dtype)
    rows = rows_of(runner, 32)
    alone = torch.cat([runner.row_logits([row]) for row in rows])
    best = alone.topk(2).values
    margin = MARGIN if dtype == torch.float32 else float(alone.abs().max()) / 16
    exceptions = []
    for width in WIDTHS:
        chosen = runner.row_logits(rows[:width]).argmax(-1)
        for place in (chosen != alone[:width].argmax(-1)).nonzero().flatten().tolist():
            exceptions.append((width, place, float(best[place, 0] - best[place, 1])))
    decided = float((best[:, 0] - best[:, 1] > margin).float().mean())
    assert decided > 0.3, "the margin leaves next to nothing to compare"
    assert [one for one in exceptions if one[2] > margin] == [], exceptions


@pytest.mark.parametrize("together", [0, 1 << 40], ids=["one after the other", "together"])
def test_what_a_former_owner_left_in_a_block_is_not_read(
    together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even what no mask can hide: 0 * NaN is NaN."""
    monkeypatch.setattr("reference_server.engine.torch_runner.TOGETHER_BYTES", together)
    prompts = [models.prompt(6, seed=1), models.prompt(9, seed=2)]
    logits = []
    for left in (0.0, float("nan")):
        runner = models.runner("llama", blocks=8)
        for layer in range(3):
            everywhere = torch.full((2, 32, 8), left)
            runner._cache.write(layer, torch.arange(32), everywhere, everywhere)
        tables = [(0, 1), (5, 3, 6)]
        for tokens, table in zip(prompts, tables, strict=True):
            models.fed(runner, tokens[:-1], table, chunk=3)
        rows = [models.row(*one) for one in zip(prompts, tables, strict=True)]
        logits.append(runner.row_logits(rows))
    assert torch.equal(logits[0], logits[1])


# -- keywords ----------------------------------------------------------------------------------


def call(**keywords: Any) -> Any:
    module = torch.nn.Identity()
    module.layer_idx = 0
    query, key = torch.zeros(1, 2, 1, 4), torch.zeros(1, 1, 1, 4)
    mask = keywords.pop("attention_mask", None)
    paged = keywords.pop("paged", attention.Survey())
    return attention.paged_attention(module, query, key, key, mask, paged=paged, **keywords)


@pytest.mark.parametrize(
    "name", ["s_aux", "position_bias", "alibi", "attention_mask", "cu_seq_lens_q", "indices"]
)
def test_an_unknown_keyword_that_says_something_refuses_the_model(name: str) -> None:
    with pytest.raises(attention.ModelError, match=f"needs '{name}', which is not supported"):
        call(**{name: torch.ones(2)})


@pytest.mark.parametrize("keywords", [{"dropout": 0.5}, {"is_causal": False}, {"anything": False}])
def test_a_known_keyword_with_another_meaning_refuses_too(keywords: dict[str, Any]) -> None:
    with pytest.raises(attention.ModelError, match="not supported"):
        call(**keywords)


def test_keywords_that_say_nothing_pass() -> None:
    out, weights = call(
        s_aux=None, dropout=0.0, is_causal=True, position_ids=torch.ones(1), use_cache=False
    )
    assert out.shape == (1, 1, 2, 4)
    assert weights is None


def test_a_model_that_drops_the_step_is_refused() -> None:
    with pytest.raises(attention.ModelError, match="does not hand keywords on"):
        call(paged=None)


# -- the cache ---------------------------------------------------------------------------------


def small_cache() -> Any:
    cache = caches.KeyValueCache([caches.LayerShape(2, 3)], blocks=8, block_size=4)
    numbers = torch.arange(32.0)[None, :, None].expand(2, 32, 3)
    cache.write(0, torch.arange(32), numbers, -numbers)
    return cache


@pytest.mark.parametrize(
    ("table", "places"),
    [
        ((2, 3, 4), list(range(9, 18))),
        ((5, 0, 7), [21, 22, 23, 0, 1, 2, 3, 28, 29]),
        ((3, 2, 1), [13, 14, 15, 8, 9, 10, 11, 4, 5]),
    ],
)
def test_a_span_is_read_in_the_order_of_the_sequence(
    table: tuple[int, ...], places: list[int]
) -> None:
    cache = small_cache()
    keys, values = cache.read(0, cache.span(table, 1, 10))
    assert keys.shape == (1, 2, 9, 3)
    assert keys[0, 1, :, 2].tolist() == places
    assert values[0, 0, :, 0].tolist() == [-place for place in places]


def test_a_sequence_whose_blocks_follow_each_other_is_not_copied() -> None:
    cache = small_cache()
    keys, _ = cache.read(0, cache.span((2, 3, 4), 0, 12))
    scattered, _ = cache.read(0, cache.span((4, 2), 0, 8))
    cache.write(0, torch.tensor([8, 16]), torch.full((2, 2, 3), 99.0), torch.zeros(2, 2, 3))
    assert keys[0, 0, 0, 0] == 99
    assert scattered[0, 0, 0, 0] == 16


def test_gathering_reuses_its_buffers() -> None:
    cache = small_cache()
    first, _ = cache.read(0, cache.span((4, 2, 0), 0, 12))
    again, _ = cache.read(0, cache.span((3, 1), 0, 8))
    assert first.data_ptr() == again.data_ptr()
