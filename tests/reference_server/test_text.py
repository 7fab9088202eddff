"""The byte-level text path against oracles that see everything at once."""

from __future__ import annotations

import codecs
import random
from collections.abc import Iterator, Sequence

import pytest

from reference_server.engine.interface import TokenLogprob
from reference_server.engine.text import Char, StopGate, TextPath, Utf8, spelled

ODD = bytes.fromhex(
    "c3a9 e6bca2 f09fabA0 80 c0 c1 e0 80 ed a0 80 f0 80 f4 90 f5 ff 41 0a".replace(" ", "")
)


def pieces(raw: bytes, rng: random.Random) -> Iterator[bytes]:
    while raw:
        size = rng.randint(1, 5)
        yield raw[:size]
        raw = raw[size:]


def unfinished(raw: bytes) -> int:
    """Length of the incomplete but so far well-formed character at the end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(raw)
    return len(decoder.getstate()[0])


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


def test_a_token_that_is_no_whole_text_is_spelled_as_bytes() -> None:
    assert spelled(b" a") == " a"
    assert spelled(b"\xf0\x9f") == "bytes:\\xf0\\x9f"
