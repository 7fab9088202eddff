"""Write `specs/profiles/must-*.yaml` anew from the cases: `python tests/freeze_profiles.py`.

Once a revision is released its ids stay; a change then raises `REVISION`.
"""

from __future__ import annotations

from conformance.dossier import APIS
from conformance.specs import known_cases, specs_dir

REVISION = 1
REQUIRES = ("usage", "stop")


def profile(api: str) -> str:
    ids = "".join(f"  - {case.id}\n" for case in known_cases() if api in case.api)
    return (
        f"# Every check that applies to {api}. What is must gates, what is should is reported.\n"
        f"name: must-{api}\nrevision: {REVISION}\napi: {api}\n"
        f"requires: [{', '.join(REQUIRES)}]\nids:\n{ids}"
    )


if __name__ == "__main__":
    for api in APIS:
        (specs_dir() / "profiles" / f"must-{api}.yaml").write_text(profile(api))
