"""Case, profile and plain YAML: any bytes give records, or one line that says where and why not."""

from __future__ import annotations

import random

from conformance.errors import SpecError
from conformance.plainyaml import read_bytes
from conformance.specs import read_cases, read_profile, specs_dir
from tests.fuzz.harness import Target

TOKENS = (
    *(b"\n", b"\n  ", b"- ", b": ", b"? ", b"[", b"]", b"{", b"}", b",", b"&a ", b"*a", b"!!int "),
    *(b"|\n ", b">-\n", b'"', b"'", b"#", b"%YAML 1.2\n", b"---\n", b"...\n", b"<<: ", b"\t"),
    *(b"~", b"yes", b"1:30", b"0x1f", b"1e999", b".inf", b"9" * 30, b"\\ud800", b"\xef\xbb\xbf"),
    *(b"\x00", b"\xff", b"\xe2\x80\xa8", b"\xc2\x85", b"id: ", b"level: must", b"after: "),
)


def examples() -> list[bytes]:
    files = [*(specs_dir() / "cases").iterdir(), *(specs_dir() / "profiles").iterdir()]
    return [path.read_bytes()[:4000] for path in sorted(files) if path.suffix == ".yaml"]


def one(data: bytes) -> None:
    """Raise AssertionError if the readers bring anything but records or one line."""
    for read in (read_bytes, read_cases, read_profile):
        try:
            read(data, "fuzz.yaml")
        except SpecError as error:
            text = str(error)
            if not (text.startswith("fuzz.yaml:") and text.isprintable()):
                raise AssertionError(f"not one line with its place: {text!r}") from error


def check(data: bytes, chance: random.Random) -> None:
    one(data)


TARGET = Target(examples, TOKENS, check)
