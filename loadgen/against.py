"""Two endpoints in one command: whose turn it is, and what came of it. Pure but for `write`.

Both get the whole load that was asked for, in turns, never both at once: they may stand on one
machine, or one behind the other, and requests sent to both at the same time (or to either by lot)
would load what they share twice as much, and each of them half as much, as was asked. A turn is a
run of its own: it begins when everything of the last one has ended. Turns come in pairs with the
same moments and lengths, and in which order a pair is played is drawn, each order equally often:
what drifts meanwhile (heat, neighbours, caches) hits both alike. The prompts of a pair differ in
their mark and in the words that they share by a prefix or a trace, so that a cache which both
share knows neither's; prompts of a file are the same.
The turns are the units of the comparison, as runs are in `compare`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random

from conformance.capture import Json
from loadgen import archive, compare_console, export, page, together
from loadgen.blocks import units_of
from loadgen.compare import differences
from loadgen.compare_console import Comparison
from loadgen.export import SCHEMA, TOOL
from loadgen.output import Outputs
from loadgen.reload import Document, reading_report, result_from
from loadgen.result import Result, exit_of

PAIRS = 8
NAMES = ("A", "B")


@dataclass(frozen=True, slots=True)
class Versus:
    """`order`: 0 or 1 for each turn, the side that played; of an interrupted one what was played.

    `comparison` None: a side has not played at all.
    """

    first: tuple[Result, ...]
    second: tuple[Result, ...]
    order: tuple[int, ...]
    comparison: Comparison | None

    @property
    def results(self) -> tuple[Result, ...]:
        return (*self.first, *self.second)

    @property
    def complete(self) -> bool:
        return self.comparison is not None and all(each.complete for each in self.results)

    @property
    def exit(self) -> int:
        """3: a turn, or the comparison, is not valid. 1: worse, or a side missed its gates."""
        compared = 3 if self.comparison is None else self.comparison.exit
        codes = {compared, exit_of(self.results)}
        return next(code for code in (3, 1, 0) if code in codes)


def turns(pairs: int, seed: int) -> tuple[int, ...]:
    """Side 0 or 1 for each turn: in either half of a pair equally often, as far as pairs are even.

    Which pairs begin with which side is drawn.
    """
    rng = Random(f"{seed}:turns")
    firsts = [n % 2 for n in range(pairs - pairs % 2)] + [rng.randrange(2)] * (pairs % 2)
    rng.shuffle(firsts)
    return tuple(chain.from_iterable((first, 1 - first) for first in firsts))


def versus(played: Sequence[Result], order: Sequence[int], seed: int, threshold: float) -> Versus:
    """`played`: in the order of the turns, fewer where an interruption ended them; at least one."""
    sides = tuple(
        tuple(result for result, side in zip(played, order, strict=False) if side == which)
        for which in (0, 1)
    )
    first, second = sides
    return Versus(
        first, second, tuple(order[: len(played)]), _compared(first, second, seed, threshold)
    )


def _compared(
    first: Sequence[Result], second: Sequence[Result], seed: int, threshold: float
) -> Comparison | None:
    if not (first and second):
        return None
    units = units_of(first, second)
    found = () if units is None else differences(units, seed, threshold)
    names = (first[0].target.url, second[0].target.url)
    return Comparison(names, first, second, units, found, threshold, seed)


def reloaded(document: Document, name: str) -> Versus | None:
    """From what `dumps` wrote; None: the report of one endpoint. Raises UsageError."""
    if "against" not in document:
        return None
    with reading_report(name):
        stored = document["against"]
        order = [NAMES.index(str(side).upper()) for side in stored["order"]]
        sides = [iter(list(map(result_from, document[side]))) for side in ("a", "b")]
        played = [next(sides[side]) for side in order]
        if not played:
            raise TypeError("order")
        compared = stored["comparison"] or {"seed": 0, "threshold": 0.0}
        return versus(played, order, int(compared["seed"]), float(compared["threshold"]))


# -- telling ---------------------------------------------------------------------------------------


def render(made: Versus, *, definitions: bool = False) -> str:
    """Each side as `--repeat` has it, then both compared; ends with the exit code."""
    sides = [each for each in (made.first, made.second) if each]
    told = [together.render(each, definitions=definitions) for each in sides]
    if made.comparison is not None:
        told.append(compare_console.render(made.comparison))
    turns_ = f"{len(made.order)} turns, {''.join(NAMES[side] for side in made.order)}"
    last = f"{turns_}{'' if made.complete else ', not complete'} · exit {made.exit}"
    return "\n".join([*told, last]) + "\n"


def write(outputs: Outputs, made: Versus, version: str, *, definitions: bool) -> None:
    """Every report that is wanted."""
    outputs.write("json", dumps(made, version, definitions=definitions))
    outputs.write("jsonl", export.json_lines(*made.results))
    outputs.write("csv", export.csv_lines(*made.results))
    outputs.write("html", parts(made))
    outputs.tell(render(made, definitions=definitions))


def dumps(made: Versus, version: str, *, definitions: bool = False) -> Iterator[str]:
    """The runs of both sides and what their comparison says, in parts."""
    head: dict[str, Json] = {
        "schema": SCHEMA,
        "tool": {"name": TOOL, "version": version},
        "command": "run",
        "against": {
            "order": [NAMES[side].lower() for side in made.order],
            "comparison": None
            if made.comparison is None
            else compare_console.document(made.comparison, version),
        },
        "complete": made.complete,
        "valid": made.exit != 3,
        "exit": made.exit,
    }
    yield json.dumps(head, indent=1, allow_nan=False).removesuffix("\n}")
    for name, side in zip(("a", "b"), (made.first, made.second), strict=True):
        yield f',\n "{name}": [\n'
        for number, result in enumerate(side):
            yield ",\n" if number else ""
            yield from archive.run(result, version, definitions)
        yield "\n ]"
    yield "\n}\n"


def parts(made: Versus) -> Iterator[str]:
    """The page: the comparison, then the turns as they were played."""
    named: list[tuple[str, Result]] = []
    sides = (iter(made.first), iter(made.second))
    for side in made.order:
        named.append((f"{NAMES[side]}, turn {len(named) + 1}", next(sides[side])))
    results, names = [each for _, each in named], [name for name, _ in named]
    yield from page.parts(results, names, made.comparison)
