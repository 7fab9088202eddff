"""The byte-level text path against oracles that see everything at once."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest

from reference_server.engine.interface import TokenLogprob
from reference_server.engine.text import (
    REPLACEMENT,
    Char,
    StopGate,
    TextPath,
    Utf8,
    spelled,
)
from reference_server.engine.window import Window

ODD = bytes.fromhex(
    "c3a9 e6bca2 f09fabA0 80 c0 c1 e0 80 ed a0 80 f0 80 f4 90 f5 ff 41 0a".replace(" ", "")
)


def pieces(raw: bytes, rng: random.Random) -> Iterator[bytes]:
    while raw:
        size = rng.randint(1, 5)
        yield raw[:size]
        raw = raw[size:]


def unfinished(raw: bytes) -> int:
    """Length of the incomplete but so far well-formed character at the end, by trying ends."""
    for length in (3, 2, 1):
        for missing in range(1, 5 - length):
            for end in itertools.product(b"\x80\x8f\x90\xa0\xbf", repeat=missing):
                with suppress(UnicodeDecodeError):
                    if len((raw[-length:] + bytes(end)).decode()) == 1 and len(raw) >= length:
                        return length
    return 0


@pytest.mark.parametrize("seed", range(60))
def test_any_split_decodes_as_everything_in_one_go_without_the_unfinished_tail(seed: int) -> None:
    rng = random.Random(seed)
    raw = bytes(rng.choice(ODD) for _ in range(rng.randint(0, 60)))
    if seed % 2:
        raw = raw + "漢🫠é".encode()[: rng.randint(1, 9)]
    decoder = Utf8()
    chars = [char for piece in pieces(raw, rng) for char in decoder.feed(piece)]
    text = "".join(char.text for char in chars)
    whole = raw[: len(raw) - unfinished(raw)]
    assert text == whole.decode(errors="replace"), f"seed {seed}: {raw.hex(' ')}"
    assert sum(char.size for char in chars) == len(whole)


def test_a_character_is_shown_with_its_last_byte_and_not_before() -> None:
    decoder = Utf8()
    seen = ["".join(c.text for c in decoder.feed(bytes([byte]))) for byte in "é漢🫠".encode()]
    assert seen == ["", "é", "", "", "漢", "", "", "", "🫠"]


def test_an_invalid_byte_is_shown_at_once() -> None:
    decoder = Utf8()
    assert decoder.feed(b"\xf0\x9f") == []
    assert decoder.feed(b"A") == [Char("\ufffd", 2), Char("A", 1)]
    assert decoder.feed(b"\xff") == [Char("\ufffd", 1)]


# Both sides of every border in Unicode's table 3-7.
BORDERS = bytes.fromhex("41 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")


@pytest.mark.parametrize("first", BORDERS)
def test_a_path_without_stops_shows_byte_by_byte_what_the_strict_decoder_shows(first: int) -> None:
    for rest in itertools.product(BORDERS, repeat=2):
        path, decoder = TextPath(), Utf8()
        for byte in (first, *rest, 0xF0, 0x9F, 0xAB, 0xA0):
            path.feed(bytes([byte]))
            shown = "".join(char.text for char in decoder.feed(bytes([byte])))
            assert path.take() == (shown, ()), bytes((first, *rest)).hex(" ")
        assert path.close() == ("", ())


@pytest.mark.parametrize("seed", range(40))
def test_whole_pieces_of_ascii_are_decoded_as_single_bytes_are(seed: int) -> None:
    rng = random.Random(seed)
    raw = bytes(rng.choice(ODD + b"plain text" * 3) for _ in range(60))
    at_once, one_by_one = Utf8(), Utf8()
    for piece in pieces(raw, rng):
        singles = [char for byte in piece for char in one_by_one.feed(bytes([byte]))]
        assert at_once.feed(piece) == singles, f"seed {seed}"


def gated(text: str, stops: Sequence[str], rng: random.Random) -> tuple[str, bool]:
    gate = StopGate(stops)
    out = ""
    while text and not gate.stopped:
        size = rng.randint(1, 4)
        out += "".join(char.text for char in gate.feed([Char(c, 1) for c in text[:size]]))
        for stop in stops:
            assert stop not in out
        text = text[size:]
    return out + "".join(char.text for char in gate.close()), gate.stopped


@pytest.mark.parametrize("seed", range(400))
def test_stop_strings_cut_where_find_finds_them(seed: int) -> None:
    rng = random.Random(seed)
    text = "".join(rng.choice("aab漢") for _ in range(rng.randint(0, 30)))
    stops = [
        "".join(rng.choice("aab漢") for _ in range(rng.randint(1, 5))) for _ in range(seed % 4)
    ]
    places = [text.find(stop) for stop in stops if stop in text]
    expected = text[: min(places)] if places else text
    note = f"seed {seed}: {text!r} {stops!r}"
    assert gated(text, stops, rng) == (expected, bool(places)), note


def test_a_stop_string_that_overlaps_itself_is_found() -> None:
    assert gated("aabaaabaaac", ["aabaaac"], random.Random(0)) == ("aaba", True)


def test_a_withheld_prefix_is_released_as_soon_as_it_is_no_match() -> None:
    gate = StopGate(["aab"])
    shown = ["".join(c.text for c in gate.feed([Char(char, 1)])) for char in "aaaax"]
    assert shown == ["", "", "a", "a", "aax"]


def test_of_two_stops_the_one_that_begins_first_decides() -> None:
    rng = random.Random(0)
    assert gated("xabcdx", ["bc", "abcd"], rng) == ("x", True)
    assert gated("xabcex", ["bc", "abcd"], rng) == ("xa", True)


def test_what_cannot_begin_a_stop_string_passes_while_nothing_is_held() -> None:
    gate = StopGate(["bc"])
    shown = ["".join(c.text for c in gate.feed([Char(c, 1) for c in text])) for text in ("ac", "b")]
    assert shown == ["ac", ""]
    assert [char.text for char in gate.feed([Char("c", 1), Char("a", 1)])] == []
    assert gate.stopped


def entries(tokens: Sequence[bytes]) -> list[TokenLogprob]:
    return [TokenLogprob(spelled(raw), raw, -0.5) for raw in tokens]


@pytest.mark.parametrize("seed", range(100))
def test_logprobs_spell_each_piece_of_text(seed: int) -> None:
    rng = random.Random(seed)
    raw = "".join(rng.choice("a漢🫠é ") for _ in range(20)).encode()[: rng.randint(1, 60)]
    stops = ["".join(rng.choice("a漢🫠é ") for _ in range(2))]
    path = TextPath(stops, aligned=True)
    for entry in entries(list(pieces(raw, rng))):
        path.feed(entry.raw, entry)
        text, spelled_by = path.take()
        assert b"".join(one.raw for one in spelled_by).decode() == text, f"seed {seed}"
        assert bool(text) == bool(spelled_by)
        if path.stopped:
            break
    text, spelled_by = path.close()
    assert b"".join(one.raw for one in spelled_by).decode() == text, f"seed {seed}"


def lossy(ids: Sequence[int]) -> str:
    return bytes(ids).decode(errors="replace")


def all_or_nothing(ids: Sequence[int]) -> str:
    """As the decoders of byte-fallback tokenizers are: a mark for each byte of what is no text."""
    try:
        return bytes(ids).decode()
    except UnicodeDecodeError:
        return REPLACEMENT * len(ids)


def test_what_stays_unfinished_is_shown_after_three_more_tokens() -> None:
    window = Window(all_or_nothing, bytewise=True)
    assert [window.feed(0xFF) for _ in range(4)] == ["", "", "", REPLACEMENT * 4]
    silent = Window(lambda ids: lossy([one for one in ids if one]))
    assert [silent.feed(token) for token in (0x41, 0xF0, 0, 0, 0)] == ["A", "", "", "", REPLACEMENT]


@pytest.mark.parametrize("bytewise", [False, True])
def test_a_window_shows_a_character_with_its_last_token_and_not_before(bytewise: bool) -> None:
    window = Window(all_or_nothing if bytewise else lossy, bytewise)
    shown = [window.feed(byte) for byte in "aé漢🫠z".encode()]
    assert shown == ["a", "", "é", "", "", "漢", "", "", "", "🫠", "z"]


def test_a_window_shows_a_mark_when_the_next_one_begins() -> None:
    window = Window(lossy)
    assert [window.feed(byte) for byte in b"\xff\xffa"] == ["", REPLACEMENT, REPLACEMENT + "a"]


def test_a_token_that_is_no_whole_text_is_spelled_as_bytes() -> None:
    assert spelled(b" a") == " a"
    assert spelled(b"\xf0\x9f") == "bytes:\\xf0\\x9f"
