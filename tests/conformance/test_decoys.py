"""Decoys: what is chosen stands nowhere in the text; each mistake ends the text at its place."""

from __future__ import annotations

import pytest

from conformance.cuts import decoys
from conformance.cuts.decoys import Decoy, Kind
from reference_server.faults.gates import AnyCase, Pattern
from tests.conformance.test_cuts import gated, pieces_of, text_of

TEXTS = [text_of(seed) for seed in range(60)]


def of(text: str) -> list[str]:
    return [each for each in (decoys.pattern(text), decoys.other_case(text)) if each is not None]


def test_a_right_text_path_passes_every_decoy_over() -> None:
    found = [(text, of(text)) for text in TEXTS]
    assert sum(map(len, (stops for _, stops in found))) > 60
    for text, stops in found:
        assert "".join(pieces_of(text, stops)) == text


@pytest.mark.parametrize(("gate", "kind"), [(Pattern, Kind.PATTERN), (AnyCase, Kind.CASE)])
def test_a_text_searched_in_another_way_ends_where_the_decoy_says(
    gate: type[Pattern] | type[AnyCase], kind: Kind
) -> None:
    ended = 0
    for text in TEXTS:
        for decoy in decoys.decoys(of(text), text, ()):
            if decoy.kind is kind:
                assert gated(gate([decoy.stop]), pieces_of(text)) == text[: decoy.start]
                ended += 1
    assert ended > 10


def test_a_word_of_the_prompt_is_one_that_the_text_has_in_no_spelling() -> None:
    prompt = "Count from 1 to 300, separated by commas."
    assert decoys.of_prompt(prompt, "I COUNT: 1, 2") == "from"
    assert decoys.of_prompt(prompt, f"again: {prompt}") is None
    (found,) = decoys.decoys(["Count", "absent"], "1, 2, 3", [prompt])
    assert found == Decoy(Kind.PROMPT, "Count")


@pytest.mark.parametrize("text", ["", "short", "漢字" * 40, "a.b.c.d." * 9, "1, 1, 1, 1, 1, 1, 1"])
def test_a_text_without_a_place_has_no_decoy(text: str) -> None:
    assert of(text) == []


def test_a_decoy_in_another_case_stands_before_the_place_that_is_cut() -> None:
    assert decoys.other_case("between the gardens and the sea", 8) == "ETWE"
    assert decoys.other_case("between the gardens and the sea", 4) is None


def test_letters_whose_other_case_the_text_has_as_well_are_no_decoy() -> None:
    assert decoys.other_case("gardens and more words, ARDE, here") == "ORDS"
