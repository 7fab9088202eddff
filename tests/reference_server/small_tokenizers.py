"""Small tokenizers of each kind, trained here on a few lines in many scripts.

Not every character of the tests is in that text, so that bytes are needed for the others.
"""

from __future__ import annotations

import json
from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

TEXT = (
    "The river runs through the garden, and the morning light is on the paper.",
    "Whoever reads this reads it twice: once for the words, once for what they say!",
    "Größe, naïve façade, smörgåsbord, Łódź. Où est le café? ¡Mañana!",
    "Слово за словом, река за рекой. φῶς καὶ λόγος.",
    "漢字と言葉、東京の朝。龜兹城的故事，你好，世界。",
    "바다와 노래, 안녕하세요.",
    "नमस्ते दुनिया, यह एक छोटा वाक्य है।",
    "مرحبا بالعالم، هذا سطر قصير. שלום עולם.",
    "ภาษาไทยไม่มีช่องว่าง",
    "🙂 🫠 👩\u200d👩\u200d👧\u200d👦 🏳\ufe0f\u200d🌈 🇳🇴 e\u0301tude",
)
CONTROL = ("<s>", "</s>", "<unk>", "<|user|>", "<|assistant|>", "<|end|>")
ADDED = ("<think>", "é é", "ñandú")  # of the byte-level one: text, not control
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'system' %}{{ raise_exception('no\nsystem messages') }}{% endif %}"
    "<|{{ m.role }}|>{{ m.content }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def wrapped(tokenizer: Any, **more: Any) -> Any:
    """As transformers has it: `<s>` before every text, `</s>` the end."""
    begin = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = TemplateProcessing("<s> $A", special_tokens=[("<s>", begin)])
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        additional_special_tokens=list(CONTROL[3:]),
        **names | more,
    )


def byte_level(size: int = 500) -> Any:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(CONTROL),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_tokens([AddedToken(text, special=False) for text in ADDED])
    return wrapped(tokenizer)


def byte_fallback(size: int = 500) -> Any:
    """As Llama 2 has it: a space put before the text, taken away by the decoder."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[*CONTROL, *(f"<0x{byte:02X}>" for byte in range(256))],
        limit_alphabet=90,
        show_progress=False,
    )
    tokenizer.train_from_iterator([line.replace(" ", "▁") for line in TEXT], trainer)
    return wrapped(_plain_bytes(tokenizer))


def unigram(size: int = 500) -> Any:
    """As T5 and later SentencePiece models have it: `Metaspace` both ways."""
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=size - 256, special_tokens=list(CONTROL), unk_token="<unk>", show_progress=False
    )
    trained.train_from_iterator(TEXT, trainer)
    pieces = [(name, 0.0) for name in CONTROL]
    pieces += [(f"<0x{byte:02X}>", -20.0) for byte in range(256)]
    known = {name for name, _ in pieces}
    learnt = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    pieces += [
        (name, -2.0 - rank / 50) for rank, (name, _) in enumerate(learnt) if name not in known
    ]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer.add_special_tokens(list(CONTROL))
    return wrapped(tokenizer)


def wordpiece(size: int = 400) -> Any:
    """Tokens without bytes of their own: what one adds depends on the one before."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=list(CONTROL), show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return wrapped(tokenizer)


def _plain_bytes(tokenizer: Any) -> Any:
    """The byte tokens are pieces of the model, not added ones: a trainer knows no other way."""
    whole = json.loads(tokenizer.to_str())
    whole["added_tokens"] = [one for one in whole["added_tokens"] if one["content"] in CONTROL]
    return Tokenizer.from_str(json.dumps(whole))
