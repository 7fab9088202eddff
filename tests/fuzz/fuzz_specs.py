"""Case, profile and plain YAML readers: any bytes give records or one line that says why not."""

from __future__ import annotations

from conformance.errors import SpecError
from conformance.plainyaml import read_bytes
from conformance.specs import read_cases, read_profile

# Where a fuzzer may start from: a case, a profile, and what each refusal is about.
SEEDS = (
    b"- id: sse.bom\n  title: t\n  level: must\n  gate: wire\n  rules: [F03]\n"
    b'  sources: [{standard: W, section: "9", quote: q, reports: [a]}]\n  api: [chat]\n'
    b"  needs: [n]\n  provoke: {scenario: stream, with: {k: 1}}\n  expect: {on: stream}\n"
    b"  inconclusive_when: [mat]\n  trials: 2\n  harms: [{client: c, how: h}]\n"
    b"  after: [sse.x]\n  advice: a\n",
    b"name: must-x\nrevision: 1\napi: chat\nrequires: [usage]\nids: [sse.bom]\n",
    b"a: &a [*a, !!int 1, <<, 0x1f, 1e9, .inf, ~]\n? {b: c}\n: |\n  d\n---\n%YAML 1.2\n",
)


def one(data: bytes) -> None:
    for read in (read_bytes, read_cases, read_profile):
        try:
            read(data, "fuzz.yaml")
        except SpecError as error:
            text = str(error)
            if "\n" in text or not text.startswith("fuzz.yaml:"):
                raise AssertionError(f"not one line with its place: {text!r}") from error
