"""What is fuzzed: name → target. One entry here is all that a new one needs."""

from __future__ import annotations

from tests.fuzz import fuzz_inputs, fuzz_specs, fuzz_sse
from tests.fuzz.harness import Target

TARGETS: dict[str, Target] = {
    "inputs": fuzz_inputs.TARGET,
    "specs": fuzz_specs.TARGET,
    "sse": fuzz_sse.TARGET,
}
