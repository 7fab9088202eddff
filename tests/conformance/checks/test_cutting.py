"""Stop strings out of the server's own text: each wrong answer is told once, by the right check."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.capture import Capture, Given
from conformance.dossier import Dossier
from conformance.findings import Verdict
from tests.conformance.bodies import ASKS_USAGE, judged, named, plain, plain_chat, streamed, texts

TOKENS = ("1", ",", " 2", ",", " 3", ",", " 11", ",", " 12", ",", " 13", ",", " 14", ",", " 15")
TEXT = "".join(TOKENS)
CUT, SEVERAL = "1, 1", ["14,", " 12, ", " 12", " 12, 1"]
FIVE = ["\u241e0", "\u241e1", "\u241e2", "\u241e3", "1"]
PATTERN, ASKED = "3, .1,", "Count"  # a dot where the text has a digit; a word of the prompt alone
NEAR = ["11, 12\u241e", "14, 15\u241e", ASKED, PATTERN]
PROMPT: list[Any] = [{"role": "user", "content": "Count to fifteen."}]
WIDE_TOKENS = ("between", " 🫠", " 漢", "字", " and", " gardens")
WIDE, LETTERS = "n 🫠 漢字", "gard"
OPEN, PASS = Verdict.INCONCLUSIVE, Verdict.PASS
FAILED = (Verdict.FAIL, Verdict.NON_STRICT)
CHECKS = (
    "accepted", "exact-prefix", "finish", "first-text", "mid-token", "multi-byte", "near-miss",
    "parity", "per-choice", "several", "tail-leak", "ignored", "included", "literal", "prompt",
    "whitespace", "five",
)  # fmt: skip


def stream(*pieces: str, reason: str = "stop", **request: Any) -> Capture:
    return streamed(texts(*pieces, reason=reason), **request)


def refused(status: int, **request: Any) -> Capture:
    capture = stream("", **request)
    given = Given(status, "application/json", "/v1/chat/completions", {"stream": True, **request})
    return Capture(b'{"error": {"message": "no"}}', capture.layer, end=capture.end, given=given)


BEFORE = TEXT[: TEXT.index(" 12")]


def choices(*said: str, reasons: str = "stop stop") -> Capture:
    """One answer of several choices, one after the other."""
    records = [
        {**record, "choices": [{**record["choices"][0], "index": index}]}
        for index, (text, reason) in enumerate(zip(said, reasons.split(), strict=True))
        for record in texts(text, reason=reason)
    ]
    return streamed(records, stop=SEVERAL, n=len(said))


def near(*pieces: str, reason: str = "stop", **request: Any) -> Capture:
    """An answer under near misses and decoys."""
    return stream(*pieces, reason=reason, **{"stop": NEAR, "messages": PROMPT, **request})


def control() -> Capture:
    return stream(*TOKENS, reason="length")


def clean() -> dict[str, tuple[Capture, ...]]:
    """A server that is in order, its controls cut off by the limit."""
    at = TEXT.index(CUT)
    whole = plain_chat(TEXT[:at])
    return {
        "control": (control(), control()),
        "cut": (stream(TEXT[:at], stop=CUT),),
        "cut-plain": (plain(whole, stop=CUT),),
        "several": (choices(BEFORE, BEFORE),),
        "near": (near(*TOKENS, reason="length"),),
        "first": (stream("", stop="1"),),
        "five": (refused(400, stop=FIVE),),
        "white": (stream("1,", stop=" "),),
    }


def verdicts(roles: dict[str, tuple[Capture, ...]], answer: str = "long") -> dict[str, Any]:
    picked: dict[str, Any] = {"stops": {role: "" for role in roles if role != "control"}}
    each = Dossier("stop-cut", roles, api="chat", parameters={"answer": answer}, picked=picked)
    found = judged(each)
    return {name: found[f"stop.{name}"] for name in CHECKS}


def failed(roles: dict[str, tuple[Capture, ...]], answer: str = "long") -> set[str]:
    return {name for name, r in verdicts(roles, answer).items() if r.verdict in FAILED}


def test_a_right_server_passes_every_check_of_the_long_text() -> None:
    found = verdicts(clean())
    open_ = {name for name, r in found.items() if r.verdict is not Verdict.PASS}
    assert open_ == {"multi-byte"}


def limited(text: str) -> dict[str, Any]:
    record = plain_chat(text)
    record["choices"][0]["finish_reason"] = "length"
    return record


TAIL = TEXT[: TEXT.index(CUT) + 2]
GOES_ON = TEXT.replace(CUT, "", 1)
Wrong = tuple[str, dict[str, Capture], set[str]]
WRONG: list[Wrong] = [
    ("a tail leaks", {"cut": stream(TAIL, stop=CUT)}, {"tail-leak", "parity"}),
    ("a tail of a list leaks", {"several": stream(TEXT[: TEXT.index(" 12") + 2], stop=SEVERAL)},
     {"tail-leak"}),
    ("text before it is lost", {"cut": stream("1, 2", stop=CUT)}, {"exact-prefix"}),
    ("it is taken out", {"cut": stream(GOES_ON, reason="length", stop=CUT)}, {"exact-prefix"}),
    ("it is shown", {"cut": stream(TEXT[: TEXT.index(CUT) + 4], stop=CUT)}, {"included"}),
    ("it is passed over in the middle of tokens", {"cut": stream(*TOKENS, stop=CUT)},
     {"mid-token"}),
    ("its delta is lost with it", {"cut": stream("1, 2, 3,", stop=CUT)}, {"mid-token"}),
    ("another finish", {"cut": stream(TEXT[: TEXT.index(CUT)], reason="stop_sequence", stop=CUT)},
     {"finish"}),
    ("the end is withheld for ever",
     {"near": near(TEXT.removesuffix("14, 15"), reason="length")}, {"near-miss"}),
    ("a phrase is withheld for ever",
     {"near": near(TEXT.replace("11, 1", ""), reason="length")}, {"near-miss"}),
    ("a phrase comes twice",
     {"near": near(TEXT.replace("11, 12", "11, 1211, 12"), reason="length")},
     {"near-miss"}),
    ("a dot is any character", {"near": near(*TOKENS[:4], " ")}, {"literal"}),
    ("a dot is any character, and what it matched is shown",
     {"near": near(*TOKENS[:8])}, {"literal"}),
    ("a word of the prompt ends it at once", {"near": near("")}, {"prompt"}),
    ("a word of the prompt ends it after a token", {"near": near("1")}, {"prompt"}),
    ("of a list the first counts", {"several": stream(TEXT[: TEXT.index("14,")], stop=SEVERAL)},
     {"several"}),
    ("another choice's tail leaks", {"several": choices(BEFORE, BEFORE + " 1")}, {"per-choice"}),
    ("another choice loses text", {"several": choices(BEFORE, BEFORE[:-1])}, {"per-choice"}),
    ("another choice has another finish",
     {"several": choices(BEFORE, BEFORE, reasons="stop length")}, {"per-choice"}),
    ("another choice goes on", {"several": choices(BEFORE, TEXT, reasons="stop length")},
     {"ignored"}),
    ("the first text is there", {"first": stream("1", stop="1")}, {"first-text"}),
    ("no text, other finish", {"first": stream("", reason="length", stop="1")}, {"first-text"}),
    ("white space is trimmed away", {"white": stream(*TOKENS, stop=" ")}, {"whitespace"}),
    ("white space is shown", {"white": stream("1, ", stop=" ")}, {"whitespace"}),
    ("white space says length", {"white": stream("1,", reason="length", stop=" ")}, {"whitespace"}),
    ("a fifth is passed over", {"five": stream(*TOKENS, reason="length", stop=FIVE)}, {"five"}),
    ("plain, a tail leaks", {"cut-plain": plain(plain_chat(TAIL), stop=CUT)}, {"parity"}),
    ("plain, another finish", {"cut-plain": plain(limited(TEXT[: TEXT.index(CUT)]), stop=CUT)},
     {"parity"}),
    ("plain, it goes on", {"cut-plain": plain(plain_chat(TEXT), stop=CUT)}, {"parity"}),
    ("a string is refused", {"cut": refused(400, stop=CUT)}, {"accepted"}),
    ("a list is refused", {"several": refused(422, stop=SEVERAL)}, {"accepted"}),
]  # fmt: skip


@pytest.mark.parametrize("row", WRONG, ids=named)
def test_a_wrong_answer_is_told_by_the_check_it_belongs_to(row: Wrong) -> None:
    _, changes, expected = row
    roles = {**clean(), **{role: (capture,) for role, capture in changes.items()}}
    found = failed(roles)
    # What differs from the plain answer may be told there as well, never instead.
    assert found - {"parity"} == expected - {"parity"}
    assert found


def test_a_text_that_came_in_one_delta_has_no_middle_of_a_token() -> None:
    whole = (stream(TEXT, reason="length"),) * 2
    found = verdicts({**clean(), "control": whole})
    assert found["mid-token"].verdict is Verdict.INCONCLUSIVE
    assert found["exact-prefix"].verdict is Verdict.PASS


NEW = set(CHECKS) - {"ignored", "included"}
Reluctant = tuple[str, dict[str, tuple[Capture, ...]], str]
RELUCTANT: list[Reluctant] = [
    ("the second control differs early",
     {"control": (control(), stream("one, two, three", reason="length"))}, "det"),
    ("no second control", {"control": (control(),), "near": (refused(429, stop="x"),)}, "det"),
    ("no text", {"control": (stream("", reason="length"),) * 2}, "mat"),
    ("busy", {role: (refused(429, stop="x"),) for role in clean() if role != "control"}, "rate"),
    ("down", {role: (refused(503, stop="x"),) for role in clean() if role != "control"}, "rate"),
    ("refused", {role: (refused(400, stop="x"),) for role in clean() if role != "control"},
     "not-seen"),
    ("no place", {role: () for role in clean() if role != "control"}, "mat"),
    ("another text each time",
     {role: (stream(f"{role} says this and that", stop="x"),) for role in clean()
      if role != "control"}, "det"),
]  # fmt: skip


@pytest.mark.parametrize("row", RELUCTANT, ids=named)
def test_a_server_that_cannot_be_judged_neither_passes_nor_fails(row: Reluctant) -> None:
    _, changes, reason = row
    found = verdicts({**clean(), **changes})
    for name in NEW - {"accepted", "multi-byte"}:
        result = found[name]
        assert result.verdict is Verdict.INCONCLUSIVE, (name, result)
        assert (result.reason or "").startswith(reason), (name, result.reason)
    assert found["accepted"].verdict in (Verdict.INCONCLUSIVE, Verdict.PASS)


def test_reasoning_without_an_answer_is_its_own_reason() -> None:
    thought: list[Any] = texts(reason="length")
    thought[0]["choices"][0]["delta"] = {"reasoning_content": "so"}
    found = verdicts({**clean(), "control": (streamed(thought),) * 2})
    assert (found["exact-prefix"].reason or "").startswith("reason")


def test_stop_strings_that_do_nothing_fail_one_check_and_leave_the_others_open() -> None:
    ignored = stream(*TOKENS, reason="length", stop=CUT)
    listed = stream(*TOKENS, reason="length", stop=SEVERAL)
    whole = plain_chat(TEXT)
    roles = {
        **clean(),
        "cut": (ignored,),
        "cut-plain": (plain(whole, stop=CUT),),
        "several": (listed,),
        "first": (stream(*TOKENS, reason="length", stop="1"),),
    }
    found = verdicts(roles)
    assert failed(roles) == {"ignored"}
    for name in NEW:
        assert found[name].verdict in (Verdict.INCONCLUSIVE, Verdict.BLOCKED), name


def wide(text: str, *, reason: str = "stop") -> dict[str, tuple[Capture, ...]]:
    return {
        "control": (stream(*WIDE_TOKENS), plain(plain_chat("".join(WIDE_TOKENS)))),
        "cut": (stream(text, reason=reason, stop=[WIDE, LETTERS]),),
    }


def test_a_stop_string_of_several_bytes_is_judged_by_what_follows_it() -> None:
    assert verdicts(wide("betwee"), "characters")["multi-byte"].verdict is Verdict.PASS
    for wrong in ("between 🫠 漢字 and ", "between", "betw"):
        assert failed(wide(wrong), "characters") == {"multi-byte"}
    said = verdicts(wide("between 🫠 漢字 and "), "characters")["multi-byte"].findings[0].message
    assert "is in the text, and what follows it too" in said
    ignored = verdicts(wide("".join(WIDE_TOKENS)), "characters")["multi-byte"]
    assert ignored.verdict is Verdict.INCONCLUSIVE


def test_letters_of_any_case_are_told_apart_from_characters_of_several_bytes() -> None:
    stops = [WIDE, LETTERS, "ETWE"]
    right = {**wide("betwee"), "cut": (stream("betwee", stop=stops),)}
    assert verdicts(right, "characters")["literal"].verdict is Verdict.PASS
    for shown in ("b", "betwe"):
        roles = {**right, "cut": (stream(shown, stop=stops),)}
        assert failed(roles, "characters") == {"literal"}


NOT_STOPPED: list[tuple[str, Capture]] = [
    ("cut by its limit at the very place", near(*TOKENS[:4], " ", reason="length")),
    ("another text", near("1, 2, and so on")),
    ("a text that ends by itself elsewhere", near(*TOKENS[:4])),
    ("another text at once", near("One")),
]


@pytest.mark.parametrize("row", NOT_STOPPED, ids=named)
def test_what_no_decoy_can_have_stopped_accuses_nobody(row: tuple[str, Capture]) -> None:
    found = verdicts({**clean(), "near": (row[1],)})
    for name in ("literal", "prompt"):
        assert found[name].verdict is not Verdict.FAIL
    assert found["literal"].verdict is Verdict.INCONCLUSIVE


def test_five_that_are_accepted_and_honoured_stand_for_the_first_text() -> None:
    found = verdicts({**clean(), "five": (), "first": (stream("", stop=FIVE),)})
    assert found["five"].verdict is found["first-text"].verdict is Verdict.PASS
    one = verdicts({**clean(), "five": ()})["five"]
    assert one.verdict is Verdict.INCONCLUSIVE


def test_white_space_at_the_very_beginning_is_measured_by_what_the_first_text_does() -> None:
    begins = (stream(" 1", *TOKENS[1:], reason="length"),) * 2
    passed = stream(" 1", *TOKENS[1:], reason="length", stop=" ")
    roles = {**clean(), "control": begins, "near": begins[:1], "white": (passed,)}
    wrong = {**roles, "first": (stream(" 1", *TOKENS[1:], reason="length", stop=" 1"),)}
    assert verdicts(wrong)["whitespace"].verdict is Verdict.INCONCLUSIVE
    right = {**roles, "first": (stream("", stop=" 1"),)}
    assert verdicts(right)["whitespace"].verdict is Verdict.FAIL


def test_a_thought_that_is_not_told_may_say_what_the_prompt_says() -> None:
    for tokens, verdict in ((40, OPEN), (1, Verdict.FAIL)):
        answer = costing(tokens, stop=NEAR, messages=PROMPT)
        assert verdicts({**clean(), "near": (answer,)})["prompt"].verdict is verdict


THOUGHT = {"choices": [{"index": 0, "delta": {"reasoning_content": "Count, so 1 and 2"}}]}
DETAILS = {"completion_tokens_details": {"reasoning_tokens": 9}}


@pytest.mark.parametrize("more", [THOUGHT, {"usage": DETAILS}], ids=["told", "counted"])
def test_a_stop_string_that_may_end_a_thought_accuses_nobody(more: dict[str, Any]) -> None:
    records = texts(*TOKENS, reason="length")
    records.insert(1, {**records[0], **more})
    thinking = (streamed(records),) * 2
    empty = stream("", stop=" ")
    assert verdicts({**clean(), "white": (empty,)})["whitespace"].verdict is Verdict.FAIL
    roles = {**clean(), "control": thinking, "white": (empty,)}
    assert verdicts(roles)["whitespace"].verdict is OPEN
    assert verdicts({**roles, "white": (stream("1,", stop=" "),)})["whitespace"].verdict is PASS
    assert verdicts({**roles, "near": (near(""),)})["prompt"].verdict is OPEN


def costing(tokens: int, *pieces: str, reason: str = "stop", **request: Any) -> Capture:
    """An answer that cost so many tokens."""
    usage = {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": 1 + tokens}
    records = [record | {"usage": None} for record in texts(*pieces, reason=reason)]
    last = {**records[0], "choices": [], "usage": usage}
    return streamed([*records, last], **ASKS_USAGE, **request)


def cost(used: int, whole: int = 64, reason: str = "length", cut: str = CUT) -> Verdict:
    """The verdict where the control and the answer that a stop string ended cost so much."""
    before = costing(whole, *TOKENS, reason=reason)
    roles = {
        "control": (before, before),
        "cut": (costing(used, TEXT[: TEXT.index(cut)], stop=cut),),
    }
    picked: dict[str, Any] = {"stops": {"cut": cut}}
    each = Dossier("stop-cut", roles, api="chat", parameters={"answer": "long"}, picked=picked)
    found: Verdict = judged(each)["stop.cost"].verdict
    return found


def test_an_answer_that_a_stop_string_ended_costs_less_than_one_that_its_limit_did() -> None:
    assert cost(20) is Verdict.PASS
    assert cost(63) is Verdict.PASS  # how many tokens a text has is not known
    assert cost(64) is Verdict.NON_STRICT
    assert cost(64, cut=" 14") is Verdict.INCONCLUSIVE  # so little remains that it may be ahead
    assert cost(16, whole=16) is Verdict.INCONCLUSIVE
    assert cost(64, reason="stop") is Verdict.INCONCLUSIVE


def none(*limits: Capture, before: Capture | None = None, idle: bool = False) -> Verdict:
    """The verdict on `stop` that names no string, in a crowd beside an answer without it."""
    reason = "length" if idle else "stop"
    roles = {
        "control": (before or control(),),
        "limit": (stream(*TOKENS[:9], reason="length"), *limits),
        "stop": (stream(BEFORE, stop=[" 12,"], reason=reason),),
    }
    found: Verdict = judged(Dossier("crowd", roles, api="chat"))["stop.none"].verdict
    return found


def test_a_stop_that_names_no_string_stops_nothing() -> None:
    cut = stream(*TOKENS[:4], reason="length", stop=None)
    assert none(cut, stream(*TOKENS[:2], reason="length", stop=[])) is Verdict.PASS
    assert none(cut, refused(400, stop=[])) is Verdict.PASS
    assert none(refused(400, stop=[])) is Verdict.PASS
    assert none(refused(400, stop=None)) is Verdict.NON_STRICT
    assert none(refused(429, stop=None), refused(503, stop=[])) is Verdict.INCONCLUSIVE
    assert none(cut, stream("", stop=[])) is Verdict.NON_STRICT
    assert none(cut, stream(*TOKENS[:3], stop=None)) is Verdict.NON_STRICT
    assert none(cut, stream("One", stop=None)) is Verdict.PASS  # another text, that ended
    assert none() is none(cut, idle=True) is Verdict.INCONCLUSIVE
    assert none(cut, before=refused(429)) is Verdict.INCONCLUSIVE


def test_usage_that_an_empty_answer_lacks_is_missed_where_a_full_one_had_it() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    counted = [*texts(*TOKENS, reason="length")]
    counted.append({**counted[0], "choices": [], "usage": usage})
    full = streamed(counted, **ASKS_USAGE)
    roles = {**clean(), "control": (full, full)}
    roles["first"] = (stream("", stop="1", **ASKS_USAGE),)
    assert "first-text" in failed(roles)


def test_a_near_miss_that_leaves_the_text_whole_is_as_good_as_a_second_control() -> None:
    found = verdicts({**clean(), "control": (control(),)})
    open_ = {name for name, r in found.items() if r.verdict is not Verdict.PASS}
    assert open_ == {"multi-byte"}


def test_one_choice_alone_says_nothing_about_several() -> None:
    one = stream(BEFORE, stop=SEVERAL)
    assert verdicts({**clean(), "several": (one,)})["per-choice"].verdict is Verdict.INCONCLUSIVE
