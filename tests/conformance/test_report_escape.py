"""Hostile content is escaped for its medium, and excerpts can be read back."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conformance.report.escape import (
    excerpt,
    html,
    markdown,
    markdown_code,
    terminal,
    unescape,
    xml,
)

HOSTILE = [
    "\x1b[31mred\x1b]0;title\x07",
    "\u009b31m",
    "ab\rcd\bef",
    "\u202egnp.exe\u2066",
    "zero\u200bwidth\u2060\ufeff",
    "line\u2028sep\x85next",
    "\ud800 lone",
    "a\x00b",
]


@given(st.binary(max_size=200))
@example(b"\\n")
@example(b"\xed\xa0\x80")
@example("\u202e\u0085\U0010ffff".encode())
def test_an_excerpt_is_one_printable_line_that_gives_its_bytes_back(data: bytes) -> None:
    text = excerpt(data)
    assert text.isprintable()
    assert unescape(text) == data


def test_an_excerpt_keeps_what_people_can_read() -> None:
    assert excerpt("data: Grüße 😀\r\n".encode()) == "data: Grüße 😀\\r\\n"
    assert excerpt(b"\xff\xfe\x1b[0m\\") == "\\xff\\xfe\\x1b[0m\\\\"
    assert excerpt("\u202e".encode()) == "\\u{202e}"


@pytest.mark.parametrize("text", ["\\", "\\q", "\\x1", "\\u{}", "\\u{110000}", "\\u{d800}", "a\\"])
def test_what_no_excerpt_contains_is_not_read_back(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        unescape(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_terminal_gets_one_line_without_controls_or_reordering(text: str) -> None:
    shown = terminal(text)
    assert shown.isprintable()
    assert "\\" in shown


@given(st.text(max_size=60))
def test_no_text_at_all_reaches_a_terminal_unprintable(text: str) -> None:
    assert terminal(text).isprintable()


def test_html_gets_no_markup_and_no_attribute_breaks() -> None:
    shown = html("<img src=x onerror='alert(1)'>\"&\x1b")
    assert not set(shown) & set("<>'\"")
    assert "\\x1b" in shown


@given(st.text(max_size=60))
def test_xml_gets_only_characters_that_it_allows(text: str) -> None:
    allowed = "\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff"
    assert re.fullmatch(f"[{allowed}]*", xml(text))


@pytest.mark.parametrize(
    "text",
    [
        "a | b\n| c",
        "[click](http://evil.example)",
        "<script>alert(1)</script>",
        "![x](y) `code` **bold** _i_ ~~s~~",
        "@everyone #1 $x$",
        "http://evil.example www.evil.example",
        "&lt;b&gt;",
        "\\| escaped",
    ],
)
def test_markdown_text_is_only_text(text: str) -> None:
    shown = markdown(text)
    assert not set(shown) & set("|[]<>`*_~@$\\") - {"\\"} or "\\n" in text
    assert re.search(r"(?<!&)#(?!\d+;)|://|www\.|\n", shown) is None
    assert re.search(r"&(?!#\d+;)", shown) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("plain", "`plain`"),
        ("a`b", "``a`b``"),
        ("``", "``` `` ```"),
        (" x", "`  x `"),
        ("a|b", "`a\\|b`"),
        ("a\nb", "`a\\nb`"),
    ],
)
def test_a_code_span_cannot_be_left(text: str, code: str) -> None:
    assert markdown_code(text) == code
