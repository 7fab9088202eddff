"""`transformers serve`: where its packages and its stored exchanges are."""

from __future__ import annotations

from tests.interop.llama import HERE, ROOT

ENVIRONMENT = ROOT / ".components" / "serve"
REQUIREMENTS = HERE / "requirements-serve.txt"
SCRIPT = "serve_server.py"
CAPTURES = HERE / "captures" / "serve"
START = 300.0  # seconds; converting the model on a cold cache is most of it
