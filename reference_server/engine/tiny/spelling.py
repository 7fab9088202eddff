"""Learns the embedded model's byte-level BPE, and writes it as transformers keep one.

All 256 bytes are tokens; merges are learned from text in which Latin letters are many and the
others few, so that most other characters and emoji stay in two to four pieces.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

ENTRIES = 2560
PAD, BOS, END = "<|pad|>", "<|bos|>", "<|end|>"
ROLES = {"system": "<|system|>", "user": "<|user|>", "assistant": "<|assistant|>"}
SPECIALS = (PAD, BOS, END, *ROLES.values())
# Words with the space before them, digits one by one, runs of marks and emoji, line ends, spaces.
PIECES = r" ?[\p{L}\p{M}]+| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\s*[\r\n]+|\s+(?!\S)|\s+"
TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
{{- '<|' + message.role + '|>' -}}
{%- if message.content is string -%}
{{- message.content -}}
{%- else -%}
{%- for part in message.content or [] if part.type == 'text' -%}{{- part.text -}}{%- endfor -%}
{%- endif -%}
{{- eos_token -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}
"""


def learn(texts: Iterable[str], entries: int = ENTRIES) -> Any:
    """A `tokenizers.Tokenizer` of at most `entries` tokens; equal texts give equal ones."""
    spelling = Tokenizer(models.BPE())
    spelling.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    spelling.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=entries,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    spelling.train_from_iterator(texts, trainer)
    bos = (BOS, spelling.token_to_id(BOS))
    spelling.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[bos]),
        ]
    )
    return spelling


def save(spelling: Any, folder: Path, context: int) -> None:
    """tokenizer.json, tokenizer_config.json and the chat template."""
    fast = PreTrainedTokenizerFast(
        tokenizer_object=spelling,
        bos_token=BOS,
        eos_token=END,
        pad_token=PAD,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
