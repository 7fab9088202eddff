"""Tool calls: fragments that break one sentence, and legal ways of cutting a call."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.chunks import ABSENT
from conformance.findings import Verdict
from tests.conformance.bodies import (
    CHUNKS,
    MUST,
    SHOULD,
    Record,
    Row,
    broken,
    chunk,
    finish,
    named,
    only,
    result,
    role,
    say,
    streamed,
    texts,
)


def offer(*names: str, **schema: Any) -> dict[str, Any]:
    tools: list[Any] = [
        {"type": "function", "function": {"name": name, **schema}} for name in names
    ]
    return {"tools": tools}


OFFER = offer("f", "g")
CITY = offer("f", parameters={"type": "object", "properties": {"city": {}}, "required": ["city"]})


def tool(
    arguments: Any = ABSENT,
    *,
    index: Any = 0,
    id: Any = ABSENT,
    name: Any = ABSENT,
    type: Any = ABSENT,
) -> dict[str, Any]:
    members = {"index": index, "id": id, "type": type}
    function = {"name": name, "arguments": arguments}
    out = {key: value for key, value in members.items() if value is not ABSENT}
    return out | {"function": {k: v for k, v in function.items() if v is not ABSENT}}


def first(arguments: Any = "", *, index: Any = 0, id: Any = "t1", name: Any = "f") -> Any:
    return tool(arguments, index=index, id=id, name=name, type="function")


def call(*events: Any, reason: str | None = "tool_calls") -> list[Record]:
    """A stream whose chunks bring these fragments, several where a list stands."""
    chunks = [chunk({"tool_calls": e if isinstance(e, list) else [e]}) for e in events]
    return [role(), *chunks, finish(reason)]


def one(*events: Any, **request: Any) -> Any:
    return streamed(call(*events), **{**OFFER, **request})


BROKEN: list[Row] = [
    ("no index", one(first("{}", index=ABSENT)), {"tool.index-missing": MUST}),
    ("a null index, an empty id", one(first("{}", index=None, id="")),
     {"tool.index-missing": MUST, "tool.id-missing": MUST}),
    ("an index in words", one(first("{}", index="0")), {"tool.index-missing": MUST}),
    ("no index on two calls", one(first("{}", index=ABSENT),
                                  first("{}", index=ABSENT, id="t2")),
     {"tool.index-missing": MUST}),
    ("no id", one(first("{}", id=ABSENT)), {"tool.id-missing": MUST}),
    ("no name", one(first("{}", name=ABSENT)), {"tool.name-missing": MUST}),
    ("a name after the arguments", one(first('{"x":', name=ABSENT), tool("1}", name="f")),
     {"tool.name-missing": MUST}),
    ("another type", one(tool("{}", id="t1", name="f", type="custom")), {"tool.type": MUST}),
    ("no type", one(tool("{}", id="t1", name="f")), {"tool.type": SHOULD}),
    ("the name again", one(first(), tool("{", name="f"), tool("}", name="f")),
     {"tool.name-repeat": MUST}),
    ("the id again", one(first(), tool("{", id="t1"), tool("}", id="t1")),
     {"tool.id-repeat": MUST}),
    ("a new id on each fragment", one(first(), tool("{", id="t2"), tool("}", id="t3")),
     {"tool.id-repeat": MUST}),
    ("indices from 1", one(first("{}", index=1)), {"tool.index-order": MUST}),
    ("a gap in the indices", one(first("{}"), first("{}", index=2, id="t2")),
     {"tool.index-order": MUST}),
    ("the second call first", one(first("{}", index=1), first("{}", index=0, id="t2")),
     {"tool.index-order": MUST}),
    ("two calls on one index", one(first('{"a":1}'), first('{"b":2}', id="t2", name="g")),
     {"tool.id-duplicate": MUST}),
    ("two calls with one id", one(first("{}"), first("{}", index=1)), {"tool.id-duplicate": MUST}),
    ("an object as arguments", one(first({"x": 1})), {"tool.args-type": MUST}),
    ("null arguments first", one(first(None), tool("{}")), {"tool.args-type": SHOULD}),
    ("the whole object twice", one(first(), tool('{"x":1}'), tool('{"x":1}')),
     {"tool.args-invalid": MUST}),
    ("the brace too early", one(first('{"x":1}'), tool(',"y":2}')), {"tool.args-invalid": MUST}),
    ("the first piece lost", one(first(), tool('city":"Lima"}')), {"tool.args-invalid": MUST}),
    ("no arguments at all", one(first("")), {"tool.args-invalid": MUST}),
    ("an array of arguments", one(first("[1]")), {"tool.args-invalid": MUST}),
    ("a call cut, and yet tool_calls", one(first('{"x":')), {"tool.args-invalid": MUST}),
    ("a broken call, and the next one cut by the limit",
     streamed(call(first('{"x"'), first('{"x', index=1, id="t2", name="g"), reason="length"),
              **OFFER), {"tool.args-invalid": MUST}),
    ("a required argument missing", one(first("{}"), **CITY), {"tool.args-invalid": SHOULD}),
    ("NUL and two digits", one(first('{"q":"Ume\\u0000e5"}')), {"tool.args-nul": SHOULD}),
    ("escaped twice", one(first('{"q":["\\\\u5317"]}')), {"tool.args-double-escape": SHOULD}),
    ("half characters", one(first('{"q":"\ufffd'), tool('\ufffd"}')),
     {"utf8.replacement-char": MUST}),
    ("a tool of its own making", one(first("{}", name="h")), {"tool.unknown-name": SHOULD}),
    ("another tool than demanded",
     one(first("{}", name="g"), tool_choice={"type": "function", "function": {"name": "f"}}),
     {"tool.unknown-name": MUST}),
    ("a call as text", streamed(texts("<tool_call>\n", '{"name": "f"', "}</tool_call>"), **OFFER),
     {"tool.markup-leak": MUST}),
    ("markup beside a call", streamed([role(), say("[TOOL_CALLS]"), *call(first("{}"))[1:]],
                                      **OFFER), {"tool.markup-leak": MUST}),
    ("markup without a call", streamed(texts("see </tool_call>"), **OFFER),
     {"tool.markup-leak": SHOULD}),
    ("a call that goes on after the next one opened",
     one(first('{"x":'), first("{}", index=1, id="t2", name="g"), tool("1}")),
     {"tool.resumed": MUST}),
]  # fmt: skip


@pytest.mark.parametrize("row", BROKEN, ids=named)
def test_tool_calls_break_just_these_sentences(row: Row) -> None:
    assert broken(row[1]) == row[2]


LEGAL: list[Row] = [
    ("a call in one fragment", one(first('{"x": 1}')), {}),
    ("a call of many fragments", one(first(), *[tool(c) for c in '{"x": "\\u4f60"}']), {}),
    ("empty names and ids later", one(first(), tool("{}", id="", name="")), {}),
    ("null names and ids later", one(first(), tool("{}", id=None, name=None)), {}),
    ("a call without arguments", one(first("{}")), {}),
    ("two calls, one after the other",
     one(first("{"), tool("}"), first("{}", index=1, id="t2", name="g")), {}),
    ("two calls opened together, interleaved",
     one([first(), first(index=1, id="t2", name="g")], tool("{"), tool("{", index=1), tool("}"),
         tool("}", index=1)), {}),
    ("an empty last fragment after the next call",
     one(first("{}"), first("{}", index=1, id="t2", name="g"), tool("")), {}),
    ("text before the call", streamed([role(), say("Let me see."), *call(first("{}"))[1:]],
                                      **OFFER), {}),
    ("a call cut by the limit", streamed(call(first('{"x":'), reason="length"), **OFFER), {}),
    ("the second of two calls cut by the limit",
     streamed(call(first("{}"), first('{"x', index=1, id="t2", name="g"), reason="length"),
              **OFFER), {}),
    ("two interleaved calls cut by the limit",
     streamed(call([first(), first(index=1, id="t2", name="g")], tool("{"), tool("{", index=1),
                   reason="length"), **OFFER), {}),
    ("markup where no tool was offered", streamed(texts("Use <tool_call> tags.")), {}),
    ("a required argument given", one(first('{"city": "Lima"}'), **CITY), {}),
    ("characters outside ASCII", one(first('{"q": "北京\\n"}')), {}),
]  # fmt: skip


@pytest.mark.parametrize("row", LEGAL, ids=named)
def test_tool_calls_are_legal(row: Row) -> None:
    assert broken(row[1]) == row[2]


def test_markup_that_the_plain_answer_has_too_is_sure_to_be_nobodys_leak() -> None:
    said = '<tool_call>{"name": "f"}</tool_call>'
    capture = streamed(texts(said), **OFFER)
    assert broken(capture, control=said) == {"tool.markup-leak": SHOULD}


def test_interleaving_is_worth_knowing() -> None:
    capture = one([first(), first(index=1, id="t2", name="g")], tool("{}", index=1), tool("{}"))
    assert result("tool.resumed", capture).verdict is Verdict.INFO


def test_the_finding_says_what_is_wrong_with_the_arguments() -> None:
    assert "second text" in only("tool.args-invalid", one(first("{}"), tool("{}"))).message


@pytest.mark.parametrize(
    "check",
    ["tool.index-missing", "tool.id-missing", "tool.name-missing", "tool.name-repeat", "tool.type",
     "tool.id-repeat", "tool.index-order", "tool.id-duplicate", "tool.args-type",
     "tool.args-invalid", "tool.args-nul", "tool.args-double-escape", "tool.unknown-name",
     "tool.resumed", "fin.tool-calls"],
)  # fmt: skip
def test_a_stream_without_a_call_decides_nothing(check: str) -> None:
    assert result(check, streamed(CHUNKS, **OFFER)).verdict is Verdict.INCONCLUSIVE
