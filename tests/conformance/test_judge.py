"""The judge: one verdict per case, from findings, silence, supersession, overlays and clients."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from conformance import judge as judge_module
from conformance.capture import Capture, End, Given, How, Json, Layer
from conformance.checks import Trial
from conformance.dialects import OVERLAYS, Overlay
from conformance.dossier import Dossier
from conformance.errors import UsageError
from conformance.findings import Abstain, Finding, Level, Result, Verdict
from conformance.judge import Policy, judge, trial_from
from conformance.reading import Reading
from conformance.specs import Case, Harm, Source, known_cases

CASE = Case(
    id="sse.a",
    title="A",
    level=Level.MUST,
    gate="wire",
    rules=("F01",),
    sources=(Source("S", "1"),),
    api=("chat", "completions"),
    scenario="stream",
    on="stream",
    advice="",
    check="sse.a",
)
OTHER = replace(CASE, id="sse.b", check="sse.b")
Said = Finding | Abstain | Exception


def speak(monkeypatch: pytest.MonkeyPatch, **said: list[Said]) -> None:
    """Let the checks a and b say these things of every record."""

    def function(check: str) -> Callable[[Reading], Iterator[Finding | Abstain]] | None:
        if check.removeprefix("sse.") not in said:
            return None

        def generate(reading: Reading) -> Iterator[Finding | Abstain]:
            for item in said[check.removeprefix("sse.")]:
                if isinstance(item, Exception):
                    raise item
                yield item

        return generate

    monkeypatch.setattr(judge_module, "function_of", function)


def record(path: str = "/v1/chat/completions", body: bytes = b"") -> Capture:
    given = Given(200, "text/event-stream", path, {"stream": True})
    return Capture(body, Layer.BODY, end=End(How.FRAMED), given=given)


ONE = Dossier("stream", {"stream": (record(),)}, name="one")
TWO = Dossier("stream", {"stream": (record(), record())}, name="two")


def verdict(*cases: Case, policy: Policy | None = None, dossier: Dossier = ONE) -> Result:
    return judge([dossier], cases or (CASE,), policy)[0]


def test_silence_is_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    speak(monkeypatch, a=[])
    assert verdict().verdict is Verdict.PASS


def test_nothing_to_look_at_is_not_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    speak(monkeypatch, a=[])
    found = verdict(replace(CASE, on="refusal"))
    assert (found.verdict, found.reason) == (Verdict.INCONCLUSIVE, "not-seen")


def test_an_abstention_is_not_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    speak(monkeypatch, a=[Abstain("det", "controls disagree")])
    found = verdict()
    assert (found.verdict, found.reason) == (Verdict.INCONCLUSIVE, "det: controls disagree")


@pytest.mark.parametrize(
    ("level", "expected"),
    [(Level.MUST, Verdict.FAIL), (Level.SHOULD, Verdict.NON_STRICT), (Level.MAY, Verdict.INFO)],
)
def test_the_level_makes_the_verdict(
    monkeypatch: pytest.MonkeyPatch, level: Level, expected: Verdict
) -> None:
    speak(monkeypatch, a=[Finding("F01", "x")])
    assert verdict(replace(CASE, level=level)).verdict is expected


def test_the_worst_finding_gives_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    said = [Finding("F01", "x"), Finding("F01", "y", level=Level.MUST)]
    speak(monkeypatch, a=[*said])
    found = verdict(replace(CASE, level=Level.SHOULD))
    assert (found.verdict, found.level) == (Verdict.FAIL, Level.MUST)


def test_one_bad_capture_is_a_failure_and_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    speak(monkeypatch, a=[Finding("F01", "x")])
    assert verdict(dossier=TWO).reason == "2 of 2"


def test_a_finding_is_superseded_on_its_own_stretch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    after = replace(CASE, after=("sse.b",))
    speak(monkeypatch, a=[Finding("F01", "x", event=1)], b=[Finding("F02", "y", event=1)])
    found = verdict(after, OTHER)
    assert (found.verdict, found.reason) == (Verdict.BLOCKED, "sse.b")
    speak(monkeypatch, a=[Finding("F01", "x", event=1)], b=[Finding("F02", "y", event=2)])
    assert verdict(after, OTHER).verdict is Verdict.FAIL
    speak(monkeypatch, a=[Finding("F01", "x", event=1)], b=[Finding("F02", "y")])
    assert verdict(after, OTHER).verdict is Verdict.BLOCKED


def test_a_missing_capability_is_unsupported_unless_something_broke(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = Policy(unsupported={("chat", "logprobs"): "400 naming it"})
    needy = replace(CASE, needs=("logprobs",))
    speak(monkeypatch, a=[Abstain("not-seen")])
    assert verdict(needy, policy=policy).verdict is Verdict.UNSUPPORTED
    speak(monkeypatch, a=[Finding("F01", "x")])
    assert verdict(needy, policy=policy).verdict is Verdict.FAIL


def test_the_harms_of_a_named_client_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    harmful = replace(CASE, level=Level.SHOULD, harms=(Harm("httpx-sse", "loses an event"),))
    speak(monkeypatch, a=[Finding("F03", "x")])
    assert verdict(harmful).verdict is Verdict.NON_STRICT
    named = verdict(harmful, policy=Policy(clients=("httpx-sse",)))
    assert named.verdict is Verdict.FAIL
    assert named.findings[0].harms == ("httpx-sse",)


def test_an_overlay_lowers_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    lower = Overlay("x", lower={"sse.a": (Level.MAY, "documented")})
    monkeypatch.setitem(OVERLAYS, "x", lower)
    speak(monkeypatch, a=[Finding("F01", "x")])
    assert verdict(dossier=replace(ONE, dialect="x")).verdict is Verdict.INFO


def test_equal_trials_that_disagree_are_inconsistent(monkeypatch: pytest.MonkeyPatch) -> None:
    said = iter([[Finding("F01", "x")], []])
    monkeypatch.setattr(judge_module, "function_of", lambda check: lambda trial: iter(next(said)))
    provoked = replace(CASE, on="dossier", trials=2)
    found = judge([ONE, replace(ONE, trial=1, name="again")], [provoked])[0]
    assert found.verdict is Verdict.INCONSISTENT
    assert found.trials == (Verdict.FAIL, Verdict.PASS)


def test_a_provoked_case_sees_only_its_own_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    speak(monkeypatch, a=[Finding("F01", "x")])
    provoked = replace(CASE, on="dossier", parameters={"n": 2})
    assert verdict(provoked).verdict is Verdict.INCONCLUSIVE
    assert verdict(provoked, dossier=replace(ONE, parameters={"n": 2})).verdict is Verdict.FAIL


def test_a_defect_of_ours_costs_one_verdict_and_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    speak(monkeypatch, a=[ZeroDivisionError("no")], b=[])
    first, second = judge([ONE], [CASE, OTHER])
    assert first.verdict is Verdict.HARNESS_ERROR
    assert "test_judge.py" in (first.reason or "")
    assert second.verdict is Verdict.PASS


def test_each_api_is_judged_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    speak(monkeypatch, a=[])
    both = [ONE, Dossier("stream", {"stream": (record("/v1/completions"),)}, name="c")]
    assert [(r.id, r.api) for r in judge(both, [CASE])] == [
        ("sse.a", "chat"),
        ("sse.a", "completions"),
    ]


def test_a_case_without_a_check_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"no check is named sse\.no-such"):
        judge([ONE], [replace(CASE, check="sse.no-such")])


def answer(text: str, *, stream: bool) -> Capture:
    inner = {"delta" if stream else "message": {"role": "assistant", "content": text}}
    object_ = "chat.completion.chunk" if stream else "chat.completion"
    body = json.dumps({"object": object_, "choices": [{"index": 0, **inner}]}).encode()
    kind = "text/event-stream" if stream else "application/json"
    given = Given(200, kind, "/v1/chat/completions", {"stream": stream})
    framed = b"data: " + body + b"\n\ndata: [DONE]\n\n" if stream else body
    return Capture(framed, Layer.BODY, end=End(How.FRAMED), given=given)


@pytest.mark.parametrize(
    ("plain", "streamed", "given", "stable"),
    [
        ("bb", "aa", None, True),
        ("b", "aa", None, False),
        ("bb", "a", None, False),
        ("bc", "aa", None, False),
        ("bb", "ac", None, False),
        ("", "a", "b", True),
        ("", "ac", "b", False),
    ],
)
def test_a_control_of_our_own_is_stable_once_both_forms_repeated_themselves(
    plain: str, streamed: str, given: str | None, stable: bool
) -> None:
    roles = {
        "plain": tuple(answer(text, stream=False) for text in plain),
        "stream": tuple(answer(text, stream=True) for text in streamed),
    }
    picked: dict[str, Json] = {} if given is None else {"plain_text": given}
    trial = trial_from(Dossier("pair", roles, picked=picked))
    control = trial.readings["stream"][0].control
    assert control is not None
    assert control.stable is stable


def test_what_was_not_selected_still_supersedes(monkeypatch: pytest.MonkeyPatch) -> None:
    after = replace(CASE, after=("sse.b",))
    speak(monkeypatch, a=[Finding("F01", "x")], b=[Finding("F02", "y")])
    (only,) = judge([ONE], [after], known=[after, OTHER])
    assert (only.id, only.verdict) == ("sse.a", Verdict.BLOCKED)


def test_the_readings_of_one_dossier_are_gone_before_the_next_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alive: weakref.WeakSet[Trial] = weakref.WeakSet()
    most = 0
    read_all = judge_module.trial_from

    def counted(dossier: Dossier) -> Trial:
        nonlocal most
        gc.collect()
        trial = _Trial(dossier, read_all(dossier).readings)
        alive.add(trial)
        most = max(most, len(alive))
        return trial

    speak(monkeypatch, a=[Finding("F01", "bad")])
    monkeypatch.setattr(judge_module, "trial_from", counted)
    dossiers = [Dossier("file", {"stream": (record(),)}, name=f"d{n}") for n in range(5)]
    (found,) = judge(dossiers, (CASE,))
    assert found.reason == "5 of 5"
    assert most == 1


class _Trial(Trial):
    """One that can be watched; equal to none but itself."""

    __slots__ = ("__weakref__",)
    __eq__ = object.__eq__
    __hash__ = object.__hash__


def events(*data: str) -> bytes:
    return "".join(f"data: {each}\n\n" for each in data).encode()


def chunk(choices: str) -> str:
    envelope = '"id":"c","object":"chat.completion.chunk","created":1,"model":"m"'
    return f'{{{envelope},"choices":[{choices}]}}'


def choice(delta: str, index: int = 0, finish: str = "null") -> str:
    return f'{{"index":{index},"delta":{{{delta}}},"finish_reason":{finish}}}'


def call(index: int) -> str:
    return f'"tool_calls":[{{"index":{index},"id":"t","function":{{"name":"f","arguments":"{{"}}}}]'


MANY = 20_000
HOSTILE = {
    "names": events("{" + "".join(f'"k{i}":0,' for i in range(10 * MANY)) + '"z":1,"z":2}'),
    "choices": events(*(chunk(choice("", i, '"stop"')) for i in range(4 * MANY))),
    "calls": events(
        *(chunk(choice(call(i))) for i in range(MANY)), chunk(choice("", 0, '"length"')), "[DONE]"
    ),
}


@pytest.mark.parametrize("shape", HOSTILE)
def test_a_stream_of_very_many_parts_is_judged_at_a_cost_that_grows_with_its_length(
    shape: str,
) -> None:
    """With a cost that grows with the square, each of these ends at the suite's time limit."""
    found = judge([Dossier("file", {"stream": (record(body=HOSTILE[shape]),)})], known_cases())
    assert not [r.id for r in found if r.verdict is Verdict.HARNESS_ERROR]
    assert [r.id for r in found if r.verdict is Verdict.FAIL]
