"""Cases, profiles and the YAML they come from."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.errors import SpecError, UsageError
from conformance.findings import REASONS, Level
from conformance.plainyaml import MOST_BYTES, MOST_DEPTH, MOST_NODES, read_bytes, read_file
from conformance.run_report import KEY
from conformance.schema import kind_of, load_schema, validate
from conformance.specs import (
    GATES,
    ON,
    known_cases,
    load_cases,
    load_profile,
    read_cases,
    read_profile,
    specs_dir,
)
from tests import freeze_profiles

CASE = """\
- id: sse.bom
  title: The body starts without a byte-order mark
  level: should
  gate: wire
  rules: [F03]
  sources: [{standard: WHATWG HTML, section: "9.2.5", quote: "strips one", reports: [a/b#1]}]
  api: [chat, completions]
  needs: [usage]
  provoke: {scenario: limit, with: {k: 3}}
  expect: {on: stream}
  inconclusive_when: [not-seen]
  trials: 2
  harms: [{client: openai-python, how: loses the first event}]
  after: [json.invalid]
  advice: Write no signature.
"""


def refusal(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(SpecError) as caught:
        read_cases(data, "x.yaml")
    message = str(caught.value)
    assert "\n" not in message
    return message


def value_of(text: str) -> Any:
    return read_bytes(text.encode(), "x.yaml").plain()


def test_a_case_has_every_field_of_its_yaml() -> None:
    (case,) = read_cases(CASE.encode(), "x.yaml")
    assert (case.id, case.level, case.gate, case.rules) == (
        "sse.bom", Level.SHOULD, "wire", ("F03",),
    )  # fmt: skip
    assert case.sources[0].quote == "strips one"
    assert case.sources[0].reports == ("a/b#1",)
    assert (case.scenario, case.parameters, case.on) == ("limit", {"k": 3}, "stream")
    assert (case.needs, case.inconclusive_when, case.trials) == (("usage",), ("not-seen",), 2)
    assert (case.harms[0].client, case.after) == ("openai-python", ("json.invalid",))
    assert (case.check, case.file, case.line) == ("sse.bom", "x.yaml", 1)


def test_a_case_of_ones_own_may_borrow_a_check() -> None:
    text = CASE.replace("sse.bom", "acme.signature").replace("stream}", "stream, check: sse.bom}")
    (case,) = read_cases(text.encode(), "x.yaml")
    assert (case.id, case.check) == ("acme.signature", "sse.bom")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "level: should",
            "level: shoud",
            "x.yaml:3: [0].level: expected one of must, should, may; got 'shoud' "
            "(did you mean should?)",
        ),
        (
            "level: should",
            "levl: should",
            "x.yaml:3: [0].levl: expected no such field (did you mean level?)",
        ),
        (
            "rules: [F03]",
            "rules: [9112]",
            "x.yaml:5: [0].rules[0]: expected text, got a whole number (quote it)",
        ),
        ("trials: 2", "trials: 0", "x.yaml:12: [0].trials: expected at least 1, got 0"),
        (
            "trials: 2",
            "trials: 1:30",
            "x.yaml:12: [0].trials: expected a whole number, got text",
        ),
        (
            "needs: [usage]",
            "needs: [usage, usage]",
            "x.yaml:8: [0].needs[1]: expected each entry once, this one repeats",
        ),
        ("  advice: Write no signature.\n", "", "x.yaml:1: [0].advice: expected this field, "),
        ("id: sse.bom", "id: SSE", "x.yaml:1: [0].id: expected an id of lower-case words"),
        ("rules: [F03]", "rules: []", "x.yaml:5: [0].rules: expected at least 1 entry"),
        ("trials: 2", "trials: 2\n  trials: 2", "x.yaml:13: 'trials': expected once, "),
    ],
)
def test_a_broken_case_is_refused_with_its_line_its_field_and_what_was_expected(
    old: str, new: str, message: str
) -> None:
    assert refusal(CASE.replace(old, new)).startswith(message)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- &a 1\n- *a", "x.yaml:1: file: expected no anchors and no aliases"),
        ("- 1\n- *a", "x.yaml:2: file: expected no anchors and no aliases"),
        ("a: !!str b", "x.yaml:1: file: expected no tags"),
        ("a:\n  <<: {b: 1}", "x.yaml:2: <<: expected no merges"),
        ("a: 1\n---\nb: 1", "x.yaml:2: file: expected one document"),
        ("%YAML 1.1\n---\na: 1", "file: expected one document and no directives"),
        ("%TAG ! tag:x,2000:\n---\na: 1", "file: expected one document and no directives"),
        ("1: a", "x.yaml:1: key: expected text as the key"),
        ("? [a]\n: b", "x.yaml:1: key: expected text as the key"),
        ("a: .inf", "expected a finite number"),
        ("a: 1e999", "expected a finite number"),
        ("a: .NaN", "expected a finite number"),
        ("a: " + "9" * 5000, "expected at most 18 digits"),
        ('a: "\\ud800"', "x.yaml:1: file: expected"),
        ("a: [1", "file: expected YAML: did not find"),
        ("", "x.yaml:1: file: expected a document, got nothing"),
        ("# only a comment", "file: expected a document, got nothing"),
    ],
)
def test_yaml_that_a_plain_file_never_needs_is_refused_in_one_line(
    text: str, expected: str
) -> None:
    with pytest.raises(SpecError) as caught:
        read_bytes(text.encode(), "x.yaml")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


BOMB = b"a: &a [x,x]\n" + b"".join(
    b"%c: &%c [*%c,*%c]\n" % (98 + n, 98 + n, 97 + n, 97 + n) for n in range(20)
)


@pytest.mark.parametrize(
    "data",
    [
        BOMB,
        b"[" * 900_000,
        b"{a: " * 200_000,
        b"- " * 400_000,
        b"".join(b" " * n + b"a:\n" for n in range(1000)),
        b"- x\n" * (MOST_NODES + 5),
        b" " * (MOST_BYTES + 1),
        bytes(range(256)),
        b"\xff\xfea\x00",
        b"a: \x1b[31m",
        b"\x7fELF" + b"\0" * 5000,
    ],
    ids=[
        "bomb",
        "lists",
        "maps",
        "dashes",
        "indents",
        "wide",
        "huge",
        "bin",
        "utf16",
        "esc",
        "elf",
    ],
)
@pytest.mark.timeout(10)
def test_hostile_yaml_is_refused_in_one_line(data: bytes) -> None:
    refusal(data)


def test_a_document_as_deep_as_allowed_is_read() -> None:
    assert value_of("[" * MOST_DEPTH + "]" * MOST_DEPTH) is not None


def test_a_file_that_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.yaml")
    with pytest.raises(SpecError, match="expected a regular file"):
        read_file(tmp_path / "x.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("NO", "NO"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("0777", 777),
        ("0o17", 15),
        ("0xff", 255),
        ("1_000", "1_000"),
        ("0b1", "0b1"),
        ("-7", -7),
        ("1.", 1.0),
        (".5e1", 5.0),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("''", ""),
        ('"true"', "true"),
        ("|\n 1\n", "1\n"),
    ],
)
def test_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    read = value_of(f"a: {text}")["a"]
    assert (type(read), read) == (type(value), value)


# PyYAML still breaks lines at U+2028 and U+2029, as YAML 1.1 did, so these are left out.
TEXT = st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn", "Zl", "Zp"])
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(TEXT, max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abcdef", min_size=1, max_size=4), inner, max_size=4)
    ),
    max_leaves=15,
)


@settings(max_examples=200, deadline=None)
@given(JSON_VALUES)
def test_json_is_yaml_and_means_the_same(value: object) -> None:
    assert value_of(json.dumps(value, ensure_ascii=False)) == value


@settings(max_examples=200, deadline=None)
@given(st.text("ab:-[]{}&*!|>'\"#,? \n0123456789.~<%", max_size=60))
def test_what_is_accepted_has_the_structure_that_pyyaml_sees(text: str) -> None:
    try:
        mine = read_bytes(text.encode(), "x.yaml")
    except SpecError:
        return
    # Every scalar as text, by the scanner that ours uses: libyaml's takes `|#`, PyYAML's own not.
    theirs = yaml.load(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    assert shape(mine.plain()) == shape(theirs)


def shape(value: object) -> object:
    if isinstance(value, list):
        return [shape(each) for each in value]
    if isinstance(value, dict):
        return {str(key): shape(each) for key, each in value.items()}
    return "scalar"


# The published schema, and jsonschema as a witness that our own validator reads it the same way.

SCHEMAS = {
    path.name: load_schema(path)
    for path in (specs_dir() / name for name in ("case.schema.json", "profile.schema.json"))
}


def mine_accepts(value: object, schema: Any) -> bool:
    try:
        validate(read_bytes(json.dumps(value).encode(), "x.yaml"), schema, "x.yaml")
    except SpecError:
        return False
    return True


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            found += places(child, (*path, key))
    return found


def changed(value: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    document = copy.deepcopy([value])
    holder: Any = document
    for key in (0, *path)[:-1]:
        holder = holder[key]
    change(holder, (0, *path)[-1])
    return document[0] if document else None


def replaced(new: Any) -> Callable[[Any, Any], None]:
    return lambda holder, key: holder.__setitem__(key, new)


def removed(holder: Any, key: Any) -> None:
    del holder[key]


def twice(holder: Any, key: Any) -> None:
    if isinstance(holder[key], list) and holder[key]:
        holder[key].append(holder[key][0])
    elif isinstance(holder[key], dict):
        holder[key]["surplus"] = 1


CHANGES = [
    replaced(new)
    for new in (None, True, 0, 1, 2.0, 2.5, 21, "", "x", "x" * 3000, [], ["x"], {}, {"x": 1})
] + [removed, twice]


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_loader_and_the_published_schema_accept_the_same_documents(name: str) -> None:
    schema = SCHEMAS[name]
    right = value_of(CASE) if name.startswith("case") else value_of(PROFILE)
    witness = jsonschema.Draft202012Validator(schema)
    assert witness.is_valid(right)
    assert mine_accepts(right, schema)
    verdicts = set()
    for path in places(right):
        for change in CHANGES:
            document = changed(right, path, change)
            verdict = witness.is_valid(document)
            assert mine_accepts(document, schema) == verdict, (path, document)
            verdicts.add(verdict)
    assert verdicts == {True, False}


# What was asked for is told in the words of the options, which grow in number; a quantity has the
# name that another tool gives it.
OPEN = {("run.schema.json", "$defs", name) for name in ("load", "definition")}


@pytest.mark.parametrize("path", sorted(specs_dir().glob("*.schema.json")), ids=lambda p: p.name)
def test_a_published_schema_is_a_schema_and_closed(path: Path) -> None:
    schema = json.loads(path.read_bytes())
    jsonschema.Draft202012Validator.check_schema(schema)
    for place in places(schema):
        part: Any = schema
        for key in place:
            part = part[key]
        if isinstance(part, dict) and "properties" in part and place[-1:] != ("properties",):
            is_open = (path.name, *map(str, place)) in OPEN
            assert (part.get("additionalProperties") is not False) == is_open, place


def test_the_schema_knows_the_words_that_the_code_knows() -> None:
    fields = SCHEMAS["case.schema.json"]["$defs"]["case"]["properties"]
    assert tuple(fields["gate"]["enum"]) == GATES
    assert tuple(fields["expect"]["properties"]["on"]["enum"]) == ON
    assert tuple(fields["inconclusive_when"]["items"]["enum"]) == REASONS
    assert fields["level"]["enum"] == [level.value for level in Level]
    wanted = SCHEMAS["profile.schema.json"]["properties"]["requires"]["items"]["enum"]
    assert fields["needs"]["items"]["enum"] == [*wanted, KEY]  # no capability of the server


def test_a_keyword_that_the_validator_lacks_is_never_ignored() -> None:
    with pytest.raises(ValueError, match="not implemented"):
        validate(read_bytes(b"a", "x"), {"type": "string", "const": "b"}, "x")


@pytest.mark.parametrize("path", sorted(specs_dir().glob("*.schema.json")), ids=lambda p: p.name)
def test_a_form_ends_where_the_text_ends_and_not_before_a_last_line_feed(path: Path) -> None:
    """To ECMA-262 `$` is the end of the text; jsonschema here takes it as Python does."""
    schema = json.loads(path.read_bytes())
    forms = [at for at in places(schema) if at[-1:] == ("pattern",)]
    for place in forms:
        part: Any = schema
        for key in place:
            part = part[key]
        assert (part[0], part.count("$"), part[-1]) == ("^", 1, "$"), place
    name = {"type": "string", "pattern": "^[a-z]+$"}
    assert mine_accepts("leaver", name)
    assert not mine_accepts("leaver\n", name)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1", "integer"),
        ("2.0", "integer"),
        ("1.5", "number"),
        ("true", "boolean"),
        ("x", "string"),
        ("[]", "array"),
        ("{}", "object"),
        ("~", "null"),
    ],
)
def test_a_node_has_the_kind_that_json_schema_gives_it(text: str, kind: str) -> None:
    assert kind_of(read_bytes(text.encode(), "x")) == kind


# Folders, profiles, and what is published.


def test_cases_come_in_one_order_whatever_the_folders_order(tmp_path: Path) -> None:
    for name, id in (("b.yaml", "a.x"), ("a.yaml", "c.x"), ("c.yml", "b.x")):
        (tmp_path / name).write_text(
            CASE.replace("sse.bom", id).replace("  after: [json.invalid]\n", "")
        )
    (tmp_path / "README.md").write_text("not a case")
    assert [case.id for case in load_cases([tmp_path])] == ["a.x", "b.x", "c.x"]


def test_an_id_that_stands_twice_is_refused_with_both_places(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(CASE.replace("  after: [json.invalid]\n", ""))
    with pytest.raises(SpecError) as caught:
        load_cases([tmp_path])
    expected = f"{tmp_path}/b.yaml:1: id: expected a new id, sse.bom stands in {tmp_path}/a.yaml:1"
    assert str(caught.value) == expected


def test_a_folder_without_cases_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="expected at least one YAML file"):
        load_cases([tmp_path])
    with pytest.raises(SpecError, match="expected a folder"):
        load_cases([tmp_path / "nothing"])


def test_the_users_own_folder_is_added_to_the_published_cases(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(CASE.replace("sse.bom", "acme.bom"))
    added = {case.id for case in known_cases([tmp_path])} - {case.id for case in known_cases()}
    assert added == {"acme.bom"}


def test_every_published_case_gives_way_only_to_cases_that_exist() -> None:
    cases = known_cases()
    ids = {case.id for case in cases}
    assert [(case.id, other) for case in cases for other in case.after if other not in ids] == []


def test_an_unknown_id_in_after_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(
        CASE.replace("sse.bom", "acme.x").replace("json.invalid", "json.invalud")
    )
    with pytest.raises(SpecError) as caught:
        known_cases([tmp_path])
    assert str(caught.value).endswith(
        "x.yaml:1: after: expected a known id, got 'json.invalud' (did you mean json.invalid?)"
    )


PROFILE = "name: must-x\nrevision: 1\napi: chat\nrequires: [usage]\nids: [sse.bom, sse.x]\n"


def test_a_profile_has_every_field_of_its_yaml() -> None:
    profile = read_profile(PROFILE.encode(), "x.yaml")
    assert (profile.name, profile.revision, profile.api) == ("must-x", 1, "chat")
    assert (profile.requires, profile.ids) == (("usage",), ("sse.bom", "sse.x"))


def test_an_unknown_profile_is_refused_with_what_is_close() -> None:
    with pytest.raises(UsageError, match=r"did you mean must-chat\?"):
        load_profile("must-chatt")


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_the_first_revision_of_a_profile_freezes_the_checks_of_its_api(api: str) -> None:
    profile = load_profile(f"must-{api}")
    assert (profile.api, profile.revision) == (api, 1)
    assert list(profile.ids) == freeze_profiles.ids(api)
    assert set(profile.ids) == {case.id for case in known_cases() if api in case.api}
