"""The embedded model is small, breaks characters over tokens, writes many scripts, and ends."""

from __future__ import annotations

import json
import math
import random
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest

from reference_server.engine import tiny
from reference_server.engine.tiny.material import EMOJI
from reference_server.engine.tiny.phrases import LANGUAGES

CONFIG = json.loads((tiny.FOLDER / "config.json").read_text())
SPELLING = json.loads((tiny.FOLDER / "tokenizer.json").read_text())
TENSORS = (tiny.FOLDER / "model.safetensors").read_bytes()
HEADER = json.loads(TENSORS[8 : 8 + int.from_bytes(TENSORS[:8], "little")])
WEIGHTS = {name: each for name, each in HEADER.items() if name != "__metadata__"}
PARTED = ("ru", "el", "he", "ar", "hi", "th", "ja", "zh", "ko")  # languages in other letters


def test_it_is_a_llama_of_one_to_three_million_parameters_in_bfloat16() -> None:
    assert CONFIG["architectures"] == ["LlamaForCausalLM"]
    assert {each["dtype"] for each in WEIGHTS.values()} == {"BF16"}
    assert 1e6 <= sum(math.prod(each["shape"]) for each in WEIGHTS.values()) <= 3e6
    assert CONFIG["max_position_embeddings"] >= 2048


def test_its_tokens_are_two_to_four_thousand_and_every_byte_is_one() -> None:
    entries = SPELLING["model"]["vocab"]
    assert 2000 <= len(entries) <= 4096
    assert len(entries) == CONFIG["vocab_size"]
    assert sum(len(token) == 1 for token in entries) == 256
    assert SPELLING["decoder"]["type"] == "ByteLevel"


def test_every_file_of_it_has_a_licence() -> None:
    folder = tiny.FOLDER.parent
    text = (folder / "LICENSES.md").read_text()
    files = [f for f in folder.rglob("*") if f.is_file() and "__pycache__" not in f.parts]
    assert len(files) > 10
    for file in files:
        assert f"`{file.relative_to(folder)}`" in text, file
    assert "Copyright © 1991-2022 Unicode, Inc." in text
    assert "Permission is hereby granted, free of charge" in text


def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny.FOLDER)


def model() -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny.FOLDER, dtype=torch.float32)


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def answers(prompts: Sequence[str], most: int, *, sampled: bool) -> list[list[int]]:
    """Token ids of an answer to each, without what fills up the batch; with the end if it came."""
    import torch

    words, net = tokenizer(), model()
    words.padding_side = "left"
    torch.manual_seed(5)
    made: list[list[int]] = []
    for at in range(0, len(prompts), 50):
        texts = [
            words.apply_chat_template(chat(p), add_generation_prompt=True, tokenize=False)
            for p in prompts[at : at + 50]
        ]
        given = words(texts, add_special_tokens=False, padding=True, return_tensors="pt")
        choice = {"do_sample": True, "top_k": 0} if sampled else {"do_sample": False}
        out = net.generate(**given, max_new_tokens=most, **choice)
        rows = out[:, given["input_ids"].shape[1] :].tolist()
        made += [[token for token in row if token != words.pad_token_id] for row in rows]
    return made


def spelled(ids: Sequence[int]) -> list[bytes]:
    """The bytes of each token but the special ones, from the tokenizer's own file."""
    by_id = {number: token for token, number in SPELLING["model"]["vocab"].items()}
    special = {each["id"] for each in SPELLING["added_tokens"]}
    return [bytes(map(BYTES.__getitem__, by_id[i])) for i in ids if i not in special]


def _bytes() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 stands for itself, the other bytes from U+0100 on."""
    own = [b for b in range(256) if chr(b).isprintable() and not chr(b).isspace()]
    others = [b for b in range(256) if b not in own]
    return {chr(b): b for b in own} | {chr(256 + at): b for at, b in enumerate(others)}


BYTES = _bytes()


def parted(text: str, words: Any) -> tuple[int, int]:
    """How many characters of several bytes there are, and how many lie in several tokens."""
    pieces = spelled(words.encode(text, add_special_tokens=False))
    assert b"".join(pieces) == text.encode()
    cuts = set(accumulate(map(len, pieces)))
    edges = pairwise(accumulate((len(c.encode()) for c in text), initial=0))
    wide = [(start, end) for start, end in edges if end - start > 1]
    return len(wide), sum(any(start < cut < end for cut in cuts) for start, end in wide)


@pytest.mark.torch
def test_characters_regularly_lie_in_several_tokens() -> None:
    words = tokenizer()
    for language in PARTED:
        wide, cut = parted(" ".join(LANGUAGES[language].sentences), words)
        assert cut / wide >= 0.15, language
    emoji = "".join(chr(code) for first, last in EMOJI for code in range(first, last + 1))
    wide, cut = parted(" ".join(emoji), words)
    assert cut / wide > 0.9
    counts = Counter(len(words.encode(f" {each}", add_special_tokens=False)) for each in emoji)
    assert set(counts) <= {2, 3, 4}, "the space before it included"


@pytest.mark.torch
@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("Say only: hi", "hi"),
        ("Count from 1 to 30.", ", ".join(map(str, range(1, 31)))),
        ("Repeat exactly: two red apples", "two red apples"),
        ("Repeat exactly: שלום 🫠 مرحبا", "שלום 🫠 مرحبا"),
        ("Repeat exactly: gajikoquxy", "gajikoquxy"),
    ],
)
def test_it_says_what_it_is_asked_to_and_ends(prompt: str, answer: str) -> None:
    (ids,) = answers([prompt], 200, sampled=False)
    assert b"".join(spelled(ids)).decode().strip() == answer
    assert ids[-1] == CONFIG["eos_token_id"]


@pytest.mark.torch
def test_its_chat_template_writes_what_it_was_trained_on() -> None:
    from tokenizers import Tokenizer

    from reference_server.engine.tiny.corpus import Corpus, Piece
    from reference_server.engine.tiny.train import Reader

    reader = Reader(Corpus({}), Tokenizer.from_file(str(tiny.FOLDER / "tokenizer.json")), 1)
    turns = (Piece("system", "Be kind. ", False), Piece("user", " שלום\n", False))
    trained = [token for token, _ in reader.tokens((*turns, Piece("assistant", "Hi!", True)))]
    messages: list[dict[str, Any]] = [{"role": t.role, "content": t.text} for t in turns]
    parts = [{"type": "text", "text": "Hi"}, {"type": "text", "text": "!"}]
    messages.append({"role": "assistant", "content": parts})
    words = tokenizer()
    ids = words.apply_chat_template(messages)["input_ids"]
    assert ids == trained
    begun = words.apply_chat_template(messages[:2], add_generation_prompt=True)["input_ids"]
    assert begun == trained[: len(begun)]


@pytest.mark.torch
def test_its_first_steps_of_training_can_be_had_again() -> None:
    import torch
    from tokenizers import Tokenizer

    from reference_server.engine.tiny.corpus import Corpus
    from reference_server.engine.tiny.train import Reader, train, untrained

    words = Tokenizer.from_file(str(tiny.FOLDER / "tokenizer.json"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def losses(seed: int) -> list[float]:
        reader = Reader(Corpus({}), words, seed)
        return list(train(untrained(words.get_vocab_size(), seed), reader, 4))

    try:
        first = losses(1)
        assert losses(1) == pytest.approx(first, abs=1e-4)
        assert losses(2) != pytest.approx(first, abs=1e-4)
    finally:
        torch.set_num_threads(threads)
    assert first[0] == pytest.approx(math.log(words.get_vocab_size()), abs=0.3)
    assert first[-1] < first[0]


def prompts(number: int) -> list[str]:
    """Chats of the kinds that it knows, and some that nobody taught it."""
    rng = random.Random(7)
    kinds = [
        "Say only: hi",
        "Write one sentence about a river.",
        "What is the meaning of life?",
        "Please write a poem about 🍎 and 🦊!",
        "List 5 emoji with their names in Hebrew.",
        "List 4 emoji with their names in Japanese.",
        *[f"Tell me something in {each.english}." for each in LANGUAGES.values()],
        *[each.hello for each in LANGUAGES.values()],
        *[each.tell for each in LANGUAGES.values()],
        *[each.echo.format(rng.choice(each.sentences)) for each in LANGUAGES.values()],
        *[f"Count from {n} to {n + 12}." for n in (1, 7, 95, 300)],
        *[
            f"Repeat exactly: {''.join(rng.sample('🍎🦊🫠🥹🌍🧵', 3))} אבג 漢字 {n}"
            for n in range(6)
        ],
    ]
    return [kinds[at % len(kinds)] for at in range(number)]


def scripts(text: str) -> set[str]:
    """First words of the names of its letters: LATIN, HEBREW, ARABIC, CJK and so on."""
    return {unicodedata.name(c, "?").split()[0] for c in text if c.isalpha()}


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("sampled", [False, True])
def test_of_two_hundred_answers_nearly_all_are_valid_and_end_by_themselves(sampled: bool) -> None:
    asked = prompts(200)
    made = answers(asked, 320, sampled=sampled)
    texts: list[str] = []
    for ids in made:
        try:
            texts.append(b"".join(spelled(ids)).decode())
        except UnicodeDecodeError:
            continue
    ended = sum(ids[-1] == CONFIG["eos_token_id"] for ids in made)
    broken = sum(any(not _whole(piece) for piece in spelled(ids)) for ids in made)
    assert len(texts) >= 0.95 * len(asked)
    assert ended >= 0.9 * len(asked)
    assert broken >= 0.4 * len(asked), "tokens that end inside of a character"
    found = scripts("".join(texts))
    assert {"LATIN", "CYRILLIC", "GREEK", "HEBREW", "ARABIC", "DEVANAGARI", "THAI"} <= found
    assert {"HIRAGANA", "CJK", "HANGUL"} <= found
    assert any(ord(c) > 0x1F000 for c in "".join(texts))


def _whole(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_the_folder_holds_what_from_pretrained_reads_and_nothing_else() -> None:
    assert {f.name for f in Path(tiny.FOLDER).iterdir()} == {
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
