"""The embedded model: `--model tiny`.

`model/` holds what the server loads, as any other model's folder. The other modules made it and are
not imported by the server: `phrases`, `material` and `corpus` are the text, `cldr` reads Unicode's
names, `spelling` learns the byte-level BPE, `train` trains. Licences: LICENSES.md.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "model"
