"""Material: texts that a model is asked to say again, because servers break them on the way.

Each piece is looked for by itself in what comes back, so a model that manages one of them shows
something. Pieces hold no digits, lest a count look like one of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

# Characters without a token of their own in common vocabularies, or of several code points: what
# is cut into bytes somewhere shows here.
SCRIPTS: Mapping[str, str] = {
    "emoji": "🫠🥹",
    "ZWJ family": "👩\u200d👩\u200d👧",
    "flag": "🇳🇴",
    "CJK": "漢字龜",
    "Hangul": "한국어",
    "Thai": "น้ำใจ",
    "Devanagari": "क्षत्रिय",
    "Arabic": "مرحبا",
    "Hebrew": "שלום",
}
NORMAL_FORM: Mapping[str, str] = {
    "e with a combining acute": "e\u0301t",
    "a decomposed o": "o\u0308l",
}
SEPARATORS: Mapping[str, str] = {
    "U+2028": "a\u2028b",
    "U+2029": "b\u2029c",
    "U+0085": "c\u0085d",
    "U+FEFF": "d\ufeffe",
    "U+00A0": "e\u00a0f",
}
ESCAPES: Mapping[str, str] = {
    "markup": "<b>&amp;</b>",
    "quotes": '"it\'s"',
    "backslashes": "C:\\new\\u",
    "slash": "a/b",
}
LOOKALIKES: Mapping[str, str] = {
    "a sentinel": "data: [DONE]",
    "an event field": "event: x",
    "a data field": "data: x",
}
# Between blank lines these look like the blocks of an event stream; as code, like Python.
BLOCKS: Mapping[str, str] = {
    "a sentinel between blank lines": "\n\ndata: [DONE]\n\n",
    "an event between blank lines": "\n\nevent: x\n\n",
}
INDENTED: Mapping[str, str] = {
    "indented lines": "def f(a):\n    if a:\n        return a\n",
    "a tab": "\n\tb = a",
    "two spaces inside": "b  =  a",
    "a blank line": "a\n\nc",
}

# The pieces by the check that looks for them.
PIECES: Mapping[str, Mapping[str, str]] = {
    "utf8.characters": SCRIPTS,
    "text.normal-form": NORMAL_FORM,
    "text.separators": SEPARATORS,
    "text.escapes": ESCAPES,
    "text.sse-lookalike": {**LOOKALIKES, **BLOCKS},
    "text.whitespace": INDENTED,
}

CHARACTERS = " ".join([*SCRIPTS.values(), *NORMAL_FORM.values()])
LINE = " ".join([CHARACTERS, *SEPARATORS.values(), *ESCAPES.values(), *LOOKALIKES.values(), "end"])
CODE = (
    "def f(a):\n    if a:\n        return a\n\tb = a\n\nc = b  =  a\n\nc\n"
    "\ndata: [DONE]\n\nevent: x\n\nend"
)


def forms(piece: str) -> tuple[str, ...]:
    """How a piece may stand in an answer: as it is, or inside of a JSON string."""
    inside = json.dumps(piece, ensure_ascii=False)[1:-1]
    return (piece,) if inside == piece else (piece, inside)
