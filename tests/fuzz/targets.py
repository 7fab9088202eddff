"""What is fuzzed: name → target. One entry here is all that a new one needs."""

from __future__ import annotations

from tests.fuzz import fuzz_http1, fuzz_inputs, fuzz_judge, fuzz_specs, fuzz_sse, fuzz_storage
from tests.fuzz.harness import Target

TARGETS: dict[str, Target] = {
    "http1": fuzz_http1.TARGET,
    "inputs": fuzz_inputs.TARGET,
    "judge": fuzz_judge.TARGET,
    "specs": fuzz_specs.TARGET,
    "sse": fuzz_sse.TARGET,
    "storage": fuzz_storage.TARGET,
}
