"""Write `specs/profiles/*.yaml` anew from the cases: `python tests/freeze_profiles.py`.

Once a revision is released its ids stay; a change then raises `REVISION`.
"""

from __future__ import annotations

from conformance.dossier import APIS
from conformance.specs import known_cases, specs_dir

REVISION = 1
REQUIRES = ("usage", "stop")


def ids(api: str) -> list[str]:
    """Every check of an API, in the order of their ids."""
    return [case.id for case in known_cases() if api in case.api]


def profile(api: str) -> str:
    """The profile's file."""
    listed = "".join(f"  - {each}\n" for each in ids(api))
    return (
        f"# Every check that applies to {api}; those of level must gate.\n"
        f"name: must-{api}\nrevision: {REVISION}\napi: {api}\n"
        f"requires: [{', '.join(REQUIRES)}]\nids:\n{listed}"
    )


if __name__ == "__main__":
    for each in APIS:
        (specs_dir() / "profiles" / f"must-{each}.yaml").write_text(profile(each))
