"""What is fuzzed: name → target. One entry here is all that a new one needs."""

from __future__ import annotations

from tests.fuzz import fuzz_sse
from tests.fuzz.harness import Target

TARGETS: dict[str, Target] = {
    "sse": fuzz_sse.TARGET,
}
