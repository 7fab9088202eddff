"""Two endpoints in turns: the slower one is found, and one and the same is not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.errors import UsageError
from conformance.options import OneLineParser
from loadgen import cli
from loadgen.against import Versus, dumps, parts, reloaded, render, turns, versus
from loadgen.against_command import setups_of
from loadgen.blocks import Units
from loadgen.compare_console import Comparison
from loadgen.looking import Tally
from loadgen.reload import document_of
from loadgen.result import INTERRUPTED, Ran, Result, Target, result_of
from loadgen.run_command import execute, judged
from loadgen.run_options import configure
from loadgen.setup import Setup
from loadgen.summary import Window
from loadgen.versions import version
from tests.loadgen.playing import STEP, reference, virtually
from tests.loadgen.rows import row

LOAD = ("--rate", "20", "--requests", "5", "--output-tokens", "6", "--arrivals", "poisson")
QUIET = ("--checks", "none", "--metrics", "none")
PAIRS = 6


def tiny(seed: int) -> Result:
    """A run of three requests."""
    ran = Ran(
        target=Target(f"http://{seed}/v1", "chat", "m"),
        load={"kind": "open", "seed": seed},
        rows=[row(n, float(n)) for n in range(3)],
        tally=Tally(),
        gates=(),
        window=Window(0.0, 3.0),
        lags=(0.001,),
        complete=True,
        steady=False,
    )
    return result_of(ran, (), 0, "0")


def asked(*words: str, environment: dict[str, str] | None = None) -> list[Setup]:
    parser = OneLineParser()
    configure(parser)
    args = parser.parse_args(["http://a/v1", *LOAD, *QUIET, "--against", "http://b/v1", *words])
    return setups_of(args, turns(2, args.seed), environment or {}, 4096)


def test_turns_come_in_pairs_and_either_side_begins_as_often() -> None:
    for pairs in range(1, 12):
        order = turns(pairs, pairs)
        both = [set(order[n : n + 2]) for n in range(0, 2 * pairs, 2)]
        assert both == [{0, 1}] * pairs
        assert sum(order[::2]) in (pairs // 2, (pairs + 1) // 2)
    assert turns(8, 7) == turns(8, 7)
    assert len({turns(8, seed) for seed in range(10)}) > 3


def test_a_pair_asks_the_same_at_the_same_moments_but_for_the_mark() -> None:
    order = turns(2, 7)
    made = asked()
    for pair in (made[:2], made[2:]):
        one, other = (setup.workload for setup in pair)
        assert pair[0].load == pair[1].load
        assert {one.side, other.side} == {"", "b"}
        assert replace(one, side="") == replace(other, side="")
    assert made[0].workload.seed != made[2].workload.seed
    hosts = [str(setup.target.url) for setup in made]
    assert hosts == [("http://a/v1", "http://b/v1")[side] for side in order]


@pytest.mark.parametrize(
    ("words", "models", "keys"),
    [
        ((), ("", ""), ("one", None)),
        (("--model", "m"), ("m", "m"), ("one", None)),
        (("--model", "m", "--against-model", "n"), ("m", "n"), ("one", None)),
        (("--against-key-env", "OTHER"), ("", ""), ("one", "two")),
        (("--against-key-env", "OPENAI_API_KEY"), ("", ""), ("one", "one")),
    ],
)
def test_the_second_endpoint_gets_its_own_model_and_no_key_that_was_not_named_for_it(
    words: tuple[str, ...], models: tuple[str, str], keys: tuple[str, str | None]
) -> None:
    environment = {"OPENAI_API_KEY": "one", "OTHER": "two"}
    for setup in asked(*words, environment=environment):
        side = 0 if str(setup.target.url) == "http://a/v1" else 1
        key = keys[side]
        assert setup.workload.model == models[side]
        assert setup.fields == ((("Authorization", f"Bearer {key}"),) if key else ())


def played(step: float) -> Versus:
    """Two reference servers in one process and on one virtual clock; the second has that step."""
    out: list[Versus] = []

    async def main() -> None:
        async with reference() as first, reference(step=step) as second:
            parser = OneLineParser()
            configure(parser)
            args = parser.parse_args([first, *LOAD, *QUIET, "--against", second])
            order = turns(PAIRS, args.seed)
            results = []
            for setup in setups_of(args, order, {}, 4096):
                made = replace(setup, clock="user", paced=False)
                results.append(judged(made, await execute(made)))
            out.append(versus(results, order, args.seed, 0.05))

    virtually(main)
    return out[0]


def test_an_endpoint_whose_steps_take_a_fifth_longer_is_worse() -> None:
    made = played(STEP * 1.2)
    assert (len(made.first), len(made.second), made.exit) == (PAIRS, PAIRS, 1)
    assert made.comparison is not None
    changes = {each.measure.name: each for each in made.comparison.found}
    assert changes["tpot mean"].change.value == "worse"
    assert changes["tpot mean"].difference == pytest.approx(0.2, abs=0.02)
    assert render(made).splitlines()[-1].endswith("· exit 1")
    found: Any = json.loads("".join(dumps(made, "1")))
    assert (found["exit"], found["complete"], found["valid"]) == (1, True, True)
    assert (len(found["a"]), len(found["b"]), len(found["against"]["order"])) == (6, 6, 12)
    assert found["against"]["comparison"]["units"]["kind"] == "run"


def test_an_endpoint_is_not_worse_than_itself() -> None:
    made = played(STEP)
    assert made.comparison is not None
    assert {each.change.value for each in made.comparison.found} <= {"no difference", "unknown"}
    assert made.exit == 0


def test_a_side_that_missed_its_own_gates_is_exit_1_and_one_that_is_not_valid_exit_3() -> None:
    one, other = tiny(0), tiny(1)
    fine = Comparison(("A", "B"), (one,), (other,), Units("run", None, (), ()), (), 0.05, 7)
    made = Versus((one,), (other,), (0, 1), fine)
    assert made.exit == 0
    assert replace(made, second=(replace(other, too_many=True),)).exit == 1
    assert replace(made, first=(replace(one, doubts=(INTERRUPTED,)),)).exit == 3
    assert replace(made, comparison=replace(fine, units=None)).exit == 3
    assert replace(made, comparison=None).exit == 3


def test_an_interruption_leaves_what_was_played() -> None:
    cut = replace(tiny(0), complete=False, doubts=(INTERRUPTED,))
    for played_ in ([cut], [tiny(1), cut]):
        made = versus(played_, turns(8, 1), 7, 0.05)
        assert (made.exit, made.complete) == (3, False)
        assert "not complete · exit 3" in render(made).splitlines()[-1]
        assert json.loads("".join(dumps(made, "1")))["complete"] is False
        assert "</html>" in "".join(parts(made))


def test_a_stored_comparison_renders_again_and_is_no_run_to_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = versus([tiny(1), tiny(0), replace(tiny(2), complete=False)], (1, 0, 0), 7, 0.1)
    text = "".join(dumps(made, version()))
    assert reloaded(document_of(text, "x.json"), "x.json") == made
    file = tmp_path / "both.json"
    file.write_text(text)
    assert cli.main(["report", str(file), "--json", str(tmp_path / "again.json")]) == 0
    assert capsys.readouterr().out == render(made)
    assert (tmp_path / "again.json").read_text() == text
    assert cli.main(["compare", str(file), str(file)]) == 2
    assert "two endpoints in one run" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flaw", [{"a": []}, {"a": [{}]}, {"b": None}, {"against": {}}, {"against": {"order": []}}]
)
def test_what_is_no_such_report_is_one_line(flaw: dict[str, Any]) -> None:
    made = versus([tiny(1), tiny(0)], (1, 0), 7, 0.1)
    text = json.dumps({**json.loads("".join(dumps(made, "1"))), **flaw})
    with pytest.raises(UsageError) as error:
        reloaded(document_of(text, "x.json"), "x.json")
    assert len(str(error.value).splitlines()) == 1
