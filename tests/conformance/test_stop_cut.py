"""Where the stop-cut scenario cuts a text that it did not choose."""

from __future__ import annotations

import pytest

from conformance.scenarios.stop_cut import LEAST_BEFORE, LENGTH, place

COUNT = " 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14"
REPEATED = "The model is a 3D object.\n" * 8


def test_a_text_is_cut_past_its_first_third() -> None:
    at = place(COUNT)
    assert at is not None
    assert at >= len(COUNT) // 3
    assert COUNT.find(COUNT[at : at + LENGTH]) == at


def test_a_text_that_repeats_itself_is_cut_before_it_does() -> None:
    at = place(REPEATED)
    assert at is not None
    assert LEAST_BEFORE <= at < len("The model is a 3D object.\n")
    assert REPEATED.find(REPEATED[at : at + LENGTH]) == at


@pytest.mark.parametrize("text", ["", "short", "ha" * 100])
def test_a_text_without_such_a_place_is_not_cut(text: str) -> None:
    assert place(text) is None
