"""Unicode CLDR's names of characters, territories and languages, from its XML as Debian ships it.

Package `unicode-cldr-core`, folder /usr/share/unicode/cldr/common; Unicode licence, LICENSES.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

FOLDER = Path("/usr/share/unicode/cldr/common")


@dataclass(frozen=True, slots=True)
class Names:
    """One language's names: character → name, and places and tongues by code."""

    characters: Mapping[str, str]
    places: Mapping[str, str]
    tongues: Mapping[str, str]


def read(folder: Path, language: str) -> Names:
    """The names that `folder` has for `language` (a code such as "he").

    Raises OSError where the package is not installed.
    """
    said = ElementTree.parse(folder / "annotations" / f"{language}.xml").getroot()
    main = ElementTree.parse(folder / "main" / f"{language}.xml").getroot()
    return Names(
        {e.attrib["cp"]: e.text or "" for e in said.iter("annotation") if "type" in e.attrib},
        _named(main, "territory"),
        _named(main, "language"),
    )


def _named(tree: ElementTree.Element, tag: str) -> dict[str, str]:
    """Code → name; alternatives (short, variant) are left out, and so is "same as the parent"."""
    found = (e for e in tree.iter(tag) if "type" in e.attrib and "alt" not in e.attrib)
    return {e.attrib["type"]: e.text for e in found if e.text and e.text != "↑↑↑"}
