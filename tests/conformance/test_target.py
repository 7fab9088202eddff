"""An endpoint's address in every spelling, and the target file's errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.errors import SpecError, UsageError
from conformance.target import (
    Target,
    Url,
    load_target,
    parse_header,
    parse_host_port,
    parse_url,
    request_bytes,
)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://host:8000/v1", Url("http", "host", 8000, "/v1")),
        ("http://host:8000/v1/", Url("http", "host", 8000, "/v1")),
        ("http://host:8000", Url("http", "host", 8000)),
        ("https://host/", Url("https", "host", 443)),
        ("http://host/v1/chat/completions", Url("http", "host", 80, "/v1")),
        ("http://host/api/v1/completions", Url("http", "host", 80, "/api/v1")),
        ("http://host/v1/models", Url("http", "host", 80, "/v1")),
        ("http://[::1]:80/v1?api-version=1", Url("http", "::1", 80, "/v1", "api-version=1")),
        ("unix:/run/x.sock", Url("http", "localhost", 80, unix="/run/x.sock")),
        ("http://unix:/run/x.sock:/v1", Url("http", "localhost", 80, "/v1", unix="/run/x.sock")),
    ],
)
def test_every_spelling_names_the_same_kind_of_thing(text: str, url: Url) -> None:
    assert parse_url(text) == url


@pytest.mark.parametrize(
    "text",
    ["", "host:8000", "ftp://host", "http://", "http://host:99999", "http://[::1", "unix:",
     "http://host/\r\nX: y", "http://user:password@host/v1", "http://hóst/"],
)  # fmt: skip
def test_what_is_no_address_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_url(text)
    assert "\n" not in str(refused.value)
    assert "password" not in str(refused.value)[:15]


def test_the_server_root_and_the_api_base_lead_to_the_same_routes() -> None:
    assert parse_url("http://h").bases() == ("/v1", "")
    assert parse_url("http://h/v1").bases() == ("/v1",)
    assert parse_url("http://h/proxy").bases() == ("/proxy", "/proxy/v1")


@pytest.mark.parametrize(
    ("text", "is_loopback"),
    [
        ("http://127.0.0.1:1", True),
        ("http://127.9.9.9", True),
        ("http://[::1]/", True),
        ("http://localhost/v1", True),
        ("unix:/x", True),
        ("http://10.0.0.1", False),
        ("http://localhost.example", False),
    ],
)
def test_loopback_is_told_by_the_name_alone(text: str, is_loopback: bool) -> None:
    assert parse_url(text).is_loopback is is_loopback


def test_a_request_carries_the_targets_fields_and_query() -> None:
    target = Target(
        parse_url("http://h:81/v1?a=b"), headers=(("X-Team", "red"),), query=(("v", "1 2"),)
    )
    sent = request_bytes(target, "/v1/chat/completions", b"{}", secrets=(("Authorization", "k"),))
    head, _, body = sent.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v1/chat/completions?a=b&v=1+2 HTTP/1.1"
    assert {b"Host: h:81", b"X-Team: red", b"Authorization: k", b"Content-Length: 2"} <= set(lines)
    assert body == b"{}"


def test_a_users_field_replaces_ours() -> None:
    target = Target(parse_url("http://h"), headers=(("accept", "x/y"),))
    sent = request_bytes(target, "/", None)
    assert sent.count(b"ccept:") == 1
    assert b"accept: x/y" in sent


@pytest.mark.parametrize(
    "text", ["no colon", "a b: c", "Host: x", "content-length: 3", "X: a\r\nY: b", "X: \u4e00"]
)
def test_a_header_that_would_break_the_request_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--header"):
        parse_header(text)


def test_a_host_and_port_are_both_needed() -> None:
    assert parse_host_port("[::1]:80", "--connect-to") == ("::1", 80)
    assert parse_host_port("a-b.example:80", "--connect-to") == ("a-b.example", 80)
    assert parse_host_port("[fe80::1%eth0]:80", "--connect-to") == ("fe80::1%eth0", 80)


@pytest.mark.parametrize(
    "text",
    ["host", "host:", ":80", "host:0", "host:70000", "host:8x", "1:2:3", "::1:80", "[::1:80",
     "::1]:80", "[host]:80", "[]:80", "http://host:80", "host/v1:80", "me@host:80", "ho st:80",
     "host:80\n", "host:٨٠", "host:0000801234"],
)  # fmt: skip
def test_any_other_host_and_port_are_refused_with_the_form_that_is_expected(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_host_port(text, "--connect-to")
    assert str(refused.value).endswith("expected HOST:PORT or [IPv6]:PORT")


def written(folder: Path, text: str) -> Path:
    path = folder / "target.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_target_file_says_everything_about_one_endpoint(tmp_path: Path) -> None:
    target = load_target(
        written(
            tmp_path,
            "url: http://h/v1\nmodel: m\nheaders: {X-A: b}\nquery: {v: '1'}\n"
            "capabilities: {tools: false}\nrequest: {limit: max_completion_tokens, omit: [seed], "
            "extra: {think: false}}\nlimits: {context: 512, tokens: 9, requests: 8, "
            "concurrency: 2}\ndialect: azure\napi_key_env: KEY\n",
        )
    )
    assert target.url == Url("http", "h", 80, "/v1")
    assert (target.model, target.dialect, target.api_key_env) == ("m", "azure", "KEY")
    assert (target.headers, target.query) == ((("X-A", "b"),), (("v", "1"),))
    assert (target.limit, target.omit) == ("max_completion_tokens", ("seed",))
    assert target.extra == {"think": False}
    assert target.capabilities == {"tools": False}
    assert (target.context, target.max_tokens, target.max_requests) == (512, 9, 8)
    assert target.concurrency == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model: m\n", ":1: url: expected this field"),
        ("url: ftp://h\n", ":1: url: expected a URL"),
        ("url: http://h\nmodle: m\n", ":2: modle: expected no such field (did you mean model?)"),
        ("url: http://h\nheaders:\n  X-A: 1\n", ":3: headers.X-A: expected text (quote it)"),
        ("url: http://h\nheaders:\n  Host: x\n", ":3: headers.Host: this field is ours"),
        ("url: http://h\nlimits: {context: 0}\n", ":2: limits.context: expected at least 1"),
        ("url: http://h\nurl: http://h\n", ":2: 'url': expected once"),
        ("- url\n", ":1: file: expected a mapping"),
    ],
)
def test_errors_name_file_line_and_field(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SpecError) as refused:
        load_target(path)
    assert str(refused.value).startswith(f"{path}{said}")


def test_the_url_of_the_command_line_replaces_that_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "model: m\n")
    assert load_target(path, "http://other").url.host == "other"
