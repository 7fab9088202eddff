"""Which cases are asked for: globs over ids, gates, profiles, and the names of clients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from conformance.errors import UsageError
from conformance.schema import did_you_mean
from conformance.specs import GATES, Case, Profile, is_published


@dataclass(frozen=True, slots=True)
class Selection:
    """Empty `select` and `gates` mean all."""

    select: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()


def select(
    cases: Sequence[Case], selection: Selection, profile: Profile | None = None
) -> tuple[Case, ...]:
    """The cases that remain, in their order.

    Raises UsageError for a glob or gate that matches nothing, and when nothing remains.
    """
    ids = [case.id for case in cases]
    for option, globs in (("--select", selection.select), ("--skip", selection.skip)):
        for glob in globs:
            if not any(fnmatchcase(each, glob) for each in ids):
                raise UsageError(f"{option} {glob}: no check matches{did_you_mean(glob, ids)}")
    for gate in selection.gates:
        one_of("--gate", gate, GATES)
    chosen = tuple(case for case in cases if _wanted(case, selection, profile))
    if not chosen:
        raise UsageError("no check is left to run: --select, --skip, --gate exclude each other")
    return chosen


def _wanted(case: Case, selection: Selection, profile: Profile | None) -> bool:
    if selection.select:
        if not any(fnmatchcase(case.id, glob) for glob in selection.select):
            return False
    elif profile is not None and case.id not in profile.ids and is_published(case):
        return False  # a case of the user's own is wanted, or it would not have been given
    if any(fnmatchcase(case.id, glob) for glob in selection.skip):
        return False
    return not selection.gates or case.gate in selection.gates


def check_clients(clients: Iterable[str], cases: Sequence[Case]) -> None:
    """Raise UsageError for a client that no case names: a typo would gate nothing."""
    known = sorted({harm.client for case in cases for harm in case.harms})
    for client in clients:
        one_of("--clients", client, known)


def one_of(option: str, word: str, known: Sequence[str]) -> None:
    """Raise UsageError unless `word` is known."""
    if word not in known:
        hint = did_you_mean(word, known) or f"; known are {', '.join(known) or 'none'}"
        raise UsageError(f"{option} {word}: not known{hint}")


def find_case(cases: Sequence[Case], name: str) -> Case:
    """The case with that id. Raises UsageError with what is close to it."""
    for case in cases:
        if case.id == name:
            return case
    raise UsageError(f"{name}: no such check{did_you_mean(name, [case.id for case in cases])}")
