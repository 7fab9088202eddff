"""From a name to an engine: find the model, let transformers read it, check it, size its cache.

Everything that can be wrong with a model is found here, before the server listens, and said in one
line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    modeling_gguf_pytorch_utils,
)
from transformers.utils import logging

from reference_server.engine.attention import ModelError
from reference_server.engine.batching import BatchingEngine
from reference_server.engine.blocks import needed
from reference_server.engine.cache import KeyValueCache, LayerShape
from reference_server.engine.probe import check_config, probe, survey
from reference_server.engine.sampling import Sampler
from reference_server.engine.torch_runner import TorchRunner
from reference_server.engine.vocabulary import TokenizerVocabulary

__all__ = ["ModelError", "load", "runner_for"]

TINY = "tiny"
TEMPLATE = "chat_template.jinja"  # the name that transformers gives it in a model's folder
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CACHE_BYTES = 2 * 1024**3  # what the cache takes at most, unless its blocks are given


@dataclass(frozen=True, slots=True)
class Source:
    """What transformers is told: a folder or a hub id, and the GGUF file in the folder, if any."""

    place: str
    options: dict[str, str]


def load(
    name: str,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    max_batch: int = 16,
    kv_blocks: int | None = None,
    block_size: int = 16,
    prefill_chunk: int = 256,
    prefix_sharing: bool = True,
    batch_invariant: bool = False,
    seed: int | None = None,
    threads: int | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> BatchingEngine:
    """An engine over the model `name`: "tiny", a folder, a GGUF file, or a hub id.

    `kv_blocks` of `block_size` tokens are the cache; None: enough for `max_batch` full contexts, at
    most `CACHE_BYTES`. `threads`: torch's, for the whole process; None: as it thinks fit. `tell`
    gets a line where loading takes long. Raises ModelError, whose message is one line.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    with _named(name):
        kind = _checked(device, dtype)
        source = find(name)
        with _in_one_line():
            model, tokenizer = _read(source, kind, device, tell)
        runner, vocabulary = runner_for(
            model,
            tokenizer,
            max_batch=max_batch,
            kv_blocks=kv_blocks,
            block_size=block_size,
            batch_invariant=batch_invariant,
        )
        return BatchingEngine(
            runner,
            vocabulary,
            max_batch=max_batch,
            prefill_chunk=prefill_chunk,
            prefix_sharing=prefix_sharing,
            seed=seed,
        )


def runner_for(
    model: Any,
    tokenizer: Any,
    *,
    max_batch: int,
    kv_blocks: int | None = None,
    block_size: int = 16,
    batch_invariant: bool = False,
) -> tuple[TorchRunner, TokenizerVocabulary]:
    """A checked model behind the two doors. Raises ModelError."""
    check_config(model.config)
    layers = survey(model)
    width = probe(model, layers, batch_invariant=batch_invariant)
    context = model.config.max_position_embeddings
    if kv_blocks is None:
        kv_blocks = _default_blocks(layers, model.dtype, max_batch, context, block_size)
    cache = KeyValueCache(
        layers, blocks=kv_blocks, block_size=block_size, dtype=model.dtype, device=model.device
    )
    vocabulary = TokenizerVocabulary(tokenizer, model.generation_config.eos_token_id)
    sampler = Sampler(max_batch, width, vocabulary.ends, model.device)
    runner = TorchRunner(model, cache, sampler, context=context, batch_invariant=batch_invariant)
    return runner, vocabulary


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except ModelError as error:
        raise ModelError(f"model {name}: {error}") from error


@contextmanager
def _in_one_line() -> Iterator[None]:
    """What transformers says of files it cannot read, often in paragraphs. Which exceptions it and
    the libraries below it raise is written nowhere, so it is any."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise ModelError(f"{type(error).__name__}: {first}") from error


def _checked(device: str, dtype: str) -> Any:
    if device.split(":")[0] not in ("cpu", "cuda"):
        raise ModelError(f"device {device} is not supported; cpu and cuda are")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ModelError("there is no CUDA device here")
    if dtype not in DTYPES:
        raise ModelError(f"dtype {dtype} is not supported; {' and '.join(DTYPES)} are")
    return DTYPES[dtype]


def find(name: str) -> Source:
    """Where the model is. What is no path here may be one of the hub's models."""
    if name == TINY:
        return _in_folder(Path(str(files("reference_server.engine.tiny") / "model")))
    path = Path(name).expanduser()
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelError("a file, but not a .gguf; a model's folder is named as a whole")
        return Source(str(path.parent), {"gguf_file": path.name})
    if path.is_dir():
        return _in_folder(path)
    if name.startswith(("/", ".", "~")) or name.count("/") != 1:
        raise ModelError("there is no such folder or file")
    return Source(name, {})


def _in_folder(folder: Path) -> Source:
    if (folder / "config.json").exists():
        return Source(str(folder), {})
    found = sorted(folder.glob("*.gguf"))
    if len(found) != 1:
        raise ModelError(f"the folder has no config.json and {len(found)} .gguf files")
    return Source(str(folder), {"gguf_file": found[0].name})


def _read(
    source: Source, dtype: Any, device: str, tell: Callable[[str], None] = lambda line: None
) -> tuple[Any, Any]:
    """Model and tokenizer, as transformers reads them. No code of the model's own is run."""
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    config = AutoConfig.from_pretrained(source.place, **source.options)
    check_config(config)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelError(f"a {config.model_type} model does not generate text")
    tokenizer = _tokenizer(source)
    if file := source.options.get("gguf_file"):
        tell(f"loading {Path(source.place) / file}")
    with _without_bars():
        model, notes = AutoModelForCausalLM.from_pretrained(
            source.place,
            **source.options,
            dtype=dtype,
            attn_implementation="eager",
            output_loading_info=True,
        )
    if missing := notes["missing_keys"]:
        raise ModelError(f"{len(missing)} tensors are not in its files, {min(missing)} is one")
    if device == "cpu":
        _unmap(model)
    return model.eval().to(device), tokenizer


@contextmanager
def _without_bars() -> Iterator[None]:
    """transformers' switch for progress bars does not reach the one of its GGUF reader."""
    shown = modeling_gguf_pytorch_utils.tqdm
    modeling_gguf_pytorch_utils.tqdm = partial(shown, disable=True)
    try:
        yield
    finally:
        modeling_gguf_pytorch_utils.tqdm = shown


@torch.no_grad()  # type: ignore[untyped-decorator]
def _unmap(model: Any) -> None:
    """Weights of the file's own type are views of the file, which is mapped into memory.

    Whoever then writes over the file in place (cp, an interrupted download that goes on) would end
    the server with SIGBUS, or change the model under it. So they are copied, one after the other.
    """
    for weight in (*model.parameters(), *model.buffers()):
        weight.data = weight.data.clone()


def _tokenizer(source: Source) -> Any:
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.place, **source.options)
    except Exception as error:
        raise ModelError("there is no tokenizer that transformers can read") from error
    template = Path(source.place) / TEMPLATE
    if not tokenizer.chat_template and template.is_file():
        # The GGUF file of a base model names none, and transformers then looks in no other place.
        tokenizer.chat_template = template.read_text()
    return tokenizer


def _default_blocks(
    layers: Sequence[LayerShape], dtype: Any, max_batch: int, context: int, block_size: int
) -> int:
    elements = sum(2 * layer.kv_heads * layer.head_dim for layer in layers)
    affordable: int = CACHE_BYTES // (elements * dtype.itemsize * block_size)
    return max(1, min(max_batch * needed(context, block_size), affordable))
