"""Stop strings against the reference server's text path: what is right passes, each bug shows."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from conformance.cuts import places
from conformance.cuts.fates import Fate, cut_at, fate
from conformance.scenarios.stop_cut import chosen
from reference_server.engine import script, tokens
from reference_server.engine.text import TextPath
from reference_server.faults import gates
from reference_server.faults.gates import Gate

TEXTS = 500
MOST = 120  # characters
COUNT = ", ".join(map(str, range(1, 60)))
Make = Callable[[Sequence[str]], Gate]

LEAKS: dict[str, tuple[Make, Fate]] = {
    "nothing is held back": (gates.NothingHeld, Fate.LEAKED),
    "one piece is held back": (gates.OnePieceHeld, Fate.LEAKED),
    "one character is held back": (gates.OneCharacterHeld, Fate.LEAKED),
    "a list is not held back": (gates.LongestAwaited, Fate.LEAKED),
    "places are counted in bytes": (gates.ByteOffsets, Fate.LEAKED),
    "pieces are searched one by one": (gates.WithinOnePiece, Fate.PASSED),
    "only where a piece begins": (gates.AtStartOfPiece, Fate.PASSED),
    "only where a piece ends": (gates.AtEndOfPiece, Fate.PASSED),
    "no falling back": (gates.NoFallback, Fate.PASSED),
    "only ASCII": (gates.OnlyAscii, Fate.PASSED),
    "only the first of a list": (gates.OnlyFirst, Fate.PASSED),
    "the piece goes with it": (gates.PieceDropped, Fate.LOST),
    "too much is cut": (gates.TooMuchCut, Fate.LOST),
    "a string is a list": (gates.CharactersOfString, Fate.LOST),
    "it is taken out": (gates.TakenOut, Fate.WENT_ON),
    "the first text is not searched": (gates.NotAtStart, Fate.PASSED),
    "lost at the end": (gates.LostAtEnd, Fate.LOST),
    "lost in the middle": (gates.LostOnMiss, Fate.DROPPED),
    "twice in the middle": (gates.TwiceOnMiss, Fate.DOUBLED),
    "too late": (gates.LateOnMiss, Fate.DISORDERED),
}


def text_of(seed: int) -> str:
    """Words of all scripts, every third text a count, every fourth a line that repeats itself."""
    rng = random.Random(seed)
    text = script.answer("", rng)[:MOST]
    if seed % 3 == 0:
        text = COUNT[rng.randrange(40) :][:MOST]
    return text[:25] * 5 if seed % 4 == 0 else text


def pieces_of(text: str, stops: Sequence[str] = ()) -> tuple[str, ...]:
    """As the text path shows the text's byte-level tokens."""
    path, out = TextPath(stops), []
    for raw in tokens.cut(text):
        path.feed(raw)
        out.append(path.take()[0])
        if path.stopped:
            break
    out.append(path.close()[0])
    return tuple(piece for piece in out if piece)


def gated(gate: Gate, pieces: Sequence[str], *, limited: bool = False) -> str:
    out = []
    for piece in pieces:
        out.append(gate.feed(piece))
        if gate.stopped:
            return "".join(out)
    return "".join([*out, gate.close(limited)])


@functools.cache
def stop_lists(seed: int) -> tuple[tuple[str, ...], ...]:
    return tuple(_stop_lists(seed, CONTROLS[seed]))


def _stop_lists(seed: int, pieces: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """What the scenario chooses, and a stop string of every other class."""
    for wide in (False, True):
        for stop in chosen(pieces, wide=wide).values():
            yield tuple(map(str, stop)) if isinstance(stop, list) else (str(stop),)
    text, rng = "".join(pieces), random.Random(seed)
    classes: dict[tuple[bool, bool, bool, int], str] = {}
    for _ in range(40):
        start = rng.randrange(len(text))
        stop = text[start : start + rng.randint(1, 9)]
        place = places.place_at(pieces, start, start + len(stop))
        classes[place.middle, place.overlaps, place.wide, min(place.spans, 3)] = stop
    yield from ((stop,) for stop in classes.values())
    at = rng.randrange(len(text))
    yield (text[at : at + 5] + places.IMPOSSIBLE,)
    yield (text[-rng.randint(1, 9) :] + places.IMPOSSIBLE,)
    yield (text[-4:],)


CONTROLS = {seed: pieces_of(text_of(seed)) for seed in range(TEXTS)}


def test_the_text_path_is_never_accused() -> None:
    judged = 0
    for seed, pieces in CONTROLS.items():
        text = "".join(pieces)
        for stops in stop_lists(seed):
            shown = "".join(pieces_of(text, stops))
            assert fate(text, shown, stops) is Fate.EXACT, (seed, stops, shown)
            judged += 1
    assert judged > 10 * TEXTS


def test_the_gate_that_the_bugs_are_made_from_is_right() -> None:
    for seed, pieces in CONTROLS.items():
        text = "".join(pieces)
        for stops in stop_lists(seed):
            cut = cut_at(text, stops)
            right = text if cut is None else text[: cut[0]]
            shown = gated(Gate(stops), pieces)
            # Where one stop string ends inside of another that began earlier, both are servers'.
            assert right == shown or _nested(stops, text), (seed, stops)


def _nested(stops: Sequence[str], text: str) -> bool:
    return len({text.find(stop) for stop in stops if stop in text}) > 1


@pytest.mark.parametrize("name", LEAKS)
def test_each_bug_is_found_and_called_by_its_name(name: str) -> None:
    make, expected = LEAKS[name]
    seen: dict[Fate, int] = {}
    for seed, pieces in list(CONTROLS.items())[:40]:
        text = "".join(pieces)
        for stops in stop_lists(seed):
            became = fate(text, gated(make(stops), pieces), stops)
            seen[became] = seen.get(became, 0) + 1
    assert seen.get(expected, 0) >= 5, seen


def test_a_bug_at_the_limit_only_does_not_show_at_the_end() -> None:
    pieces = pieces_of(COUNT[:100])
    text, stops = "".join(pieces), chosen(pieces, wide=False)["near"]
    assert isinstance(stops, list)
    near = [str(stop) for stop in stops]
    assert fate(text, gated(gates.LostAtLimit(near), pieces), near) is Fate.EXACT
    assert fate(text, gated(gates.LostAtLimit(near), pieces, limited=True), near) is Fate.LOST


@pytest.mark.parametrize(
    "shown",
    [
        "1, 2, 3 and so on",  # left before the place
        "0, 1",
        "1, 2, 3, 4, five",  # left inside of it
        "1, 2, 3, 4, 8",  # too little to call it the text behind the stop string
        "1, 2, 3, 4, 5",  # a beginning of the stop string, but of another text
    ],
)
def test_a_text_that_left_its_control_before_the_stop_string_says_nothing(shown: str) -> None:
    control = "1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12"
    assert fate(control, shown, [", 6, 7"]) is Fate.ELSEWHERE


@pytest.mark.parametrize(
    ("shown", "became"),
    [
        ("the river is wide and slow in su", Fate.LOST),
        ("the river is wide and slow", Fate.LOST),  # one token with the beginning of it
        ("the river", Fate.ELSEWHERE),  # that much cannot have been withheld
        ("the river is slow in summer", Fate.ELSEWHERE),
        ("the river is wide slow in summer", Fate.ELSEWHERE),
        ("a river", Fate.ELSEWHERE),
        ("the mmriver is wide and slow in summer", Fate.ELSEWHERE),  # no copy of what stands there
        ("the river is wide and slow in sumummer", Fate.ELSEWHERE),  # no beginning of it
        ("the river is wide and slow in summmer", Fate.DOUBLED),
    ],
)
def test_only_what_can_have_been_withheld_is_called_lost(shown: str, became: Fate) -> None:
    control = "the river is wide and slow in summer"
    assert fate(control, shown, ["mmer" + places.IMPOSSIBLE]) is became


def test_the_hardest_place_spans_deltas_and_stands_nowhere_before() -> None:
    pieces = pieces_of(COUNT)
    text, place = "".join(pieces), places.hardest(pieces)
    assert place is not None
    assert place.spans >= 3
    assert place.middle
    assert text.find(text[place.start : place.end]) == place.start


def test_a_hard_place_is_worth_more_than_one_past_the_first_third() -> None:
    pieces = ("some words ", "and", " x", "yy", "y2", "z3 ", "then a long delta without", " an end")
    place = places.hardest(pieces)
    assert place is not None
    assert place.spans >= 3
    assert place.middle
    assert place.overlaps
    assert place.start < len("".join(pieces)) // 3


def test_a_wide_place_holds_characters_of_several_bytes() -> None:
    pieces = pieces_of("between the rivers 🫠🥹 漢字 한국어 and gardens")
    place = places.hardest(pieces, wide=True)
    assert place is not None
    assert not "".join(pieces)[place.start : place.end].isascii()


@pytest.mark.parametrize("text", ["a" * 500, "ab" * 250, "a" * 2_000_000, "b" + "a" * 400_000])
def test_a_text_made_to_be_slow_is_not(text: str) -> None:
    started = time.process_time()
    pieces = [text[:7], text[7:]]
    chosen(tuple(pieces), wide=True)
    chosen(tuple(pieces), wide=False)
    places.behind(text, 9)
    for shown in (text[:-9], text[9:], text + text[:9], "b" + text, text[::-1]):
        fate(text, shown, [text[:8] + places.IMPOSSIBLE, text[-8:] + places.IMPOSSIBLE])
        fate(text, shown, [text[5:12]])
    assert time.process_time() - started < 5


@pytest.mark.parametrize("text", ["", "short", "ha" * 100, "\ufffd" * 40])
def test_a_text_without_a_place_is_not_cut(text: str) -> None:
    assert places.hardest([*text]) is None


def test_half_a_surrogate_pair_is_never_sent() -> None:
    pieces = ["some words and ", "\ud83e", " more words"]
    place = places.hardest(pieces)
    assert place is not None
    assert "\ud83e" not in "".join(pieces)[place.start : place.end]
    assert places.first(["\ud83e"]) is None


def test_of_several_stop_strings_each_is_before_and_behind_its_own_beginning() -> None:
    later, middle, short, long = places.several(pieces_of(COUNT))
    assert long.startswith(middle)
    assert middle.startswith(short)
    assert COUNT.find(short) < COUNT.find(later)


def test_a_near_miss_of_the_end_begins_with_a_letter() -> None:
    _, tail = places.near_misses('{"text": "between the rivers and the gardens."}')
    assert tail[0].isalnum()
    assert places.near_misses("too short") == ()
