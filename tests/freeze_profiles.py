"""Write `specs/profiles/*.yaml` anew from the cases: `python tests/freeze_profiles.py`.

Once a revision is released its ids stay; a change then raises `REVISION`.
"""

from __future__ import annotations

from conformance.dossier import APIS
from conformance.specs import known_cases, specs_dir

REVISION = 1
REQUIRES = ("usage", "stop")


# These would take the default past 60 generations an API: they are for `--profile full`.
COMPANY = ("crowd", "abort", "storm", "slow-read")
ABOUT = {
    "must": "Every check that {api} gets within the default's 60 generations and 40 refusals.",
    "full": "Every check that applies to {api}, those that need company or hang-ups too.",
}


def ids(family: str, api: str) -> list[str]:
    """The checks of one profile, in the order of their ids."""
    return [
        case.id
        for case in known_cases()
        if api in case.api
        and (family == "full" or case.on != "dossier" or case.scenario not in COMPANY)
    ]


def profile(family: str, api: str) -> str:
    """The profile's file."""
    listed = "".join(f"  - {each}\n" for each in ids(family, api))
    return (
        f"# {ABOUT[family].format(api=api)}\n"
        f"name: {family}-{api}\nrevision: {REVISION}\napi: {api}\n"
        f"requires: [{', '.join(REQUIRES)}]\nids:\n{listed}"
    )


if __name__ == "__main__":
    for name in ABOUT:
        for each in APIS:
            (specs_dir() / "profiles" / f"{name}-{each}.yaml").write_text(profile(name, each))
