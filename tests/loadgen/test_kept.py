"""Answers wait for their look within a bound; who cannot wait gets figures without judgements."""

from __future__ import annotations

import pytest

from conformance.capture import Capture, Read, Segment
from loadgen.kept import A_CAPTURE, A_READ, Kept, _size
from loadgen.looking import Look
from loadgen.played import Played
from tests.loadgen.captures import whole
from tests.loadgen.test_looking import CHECKS, LOAD

PLAYED = [Played(index, float(index), float(index), whole([1.0, 1.5])) for index in range(10)]


def kept(held_at_most: int = 1 << 30) -> Kept:
    made = Kept(LOAD, held_at_most)
    for each in PLAYED:
        made.take(each)
    return made


@pytest.mark.parametrize("after", [0, 1, 4, 10])
def test_once_hurried_the_rest_is_measured_and_not_judged(after: int) -> None:
    made = kept()
    found: list[Look] = []
    for look in made.told(CHECKS, lambda: len(found) >= after):
        found.append(look)
    assert [look.row.index for look in found] == list(range(10))
    judged = [look.row.index for look in found if look.breaches is not None]
    assert judged == list(range(after))
    assert made.unjudged == 10 - after
    assert all(look.row.success for look in found)


def test_what_exceeds_the_bound_is_measured_at_once() -> None:
    made = kept(held_at_most=4 * A_CAPTURE)
    assert 0 < len(made.waiting) < 4
    told = list(made.told(CHECKS, lambda: False))
    assert [look.row.index for look in told] == list(range(10))
    assert 0 < made.unjudged == sum(look.breaches is None for look in told)
    assert [look.row for look in told] == [look.row for look in kept().looks(CHECKS, 1)]


def test_of_an_answer_without_a_byte_there_is_nothing_to_judge() -> None:
    made = Kept(LOAD)
    for number, capture in enumerate((None, Capture(b""))):
        made.take(Played(number, 0.0, 0.0, capture))
    assert len(list(made.told(CHECKS, lambda: True))) == 2
    assert made.unjudged == 0


def test_what_a_record_takes_is_its_bytes_both_ways_and_its_reads() -> None:
    made = Capture(b"abc", request=(Segment(b"12345"),), reads=(Read(1, 1.0), Read(3, 2.0)))
    assert _size(made) == 3 + 5 + 2 * A_READ + A_CAPTURE
